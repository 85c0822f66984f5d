"""Boosted CVaR classification: base models are trained in turn, each on the rows that the others get wrong.

Source: Zhai et al. 2021, "Boosted CVaR Classification", Algorithms 1 and 2.

Deviation from the paper: the model of the ERM warm-up is itself the first base model, where the paper trains
the first one from it with uniform weights. Every later round restarts from the warm-up model, as in the
paper's experiments; the optimiser, of which the paper says nothing, starts afresh.
"""

from __future__ import annotations

import numpy as np
import torch

from engine.recipe.trainers import BoostedParams
from engine.training.fit.learner import model_state
from engine.training.fit.sampling import Draw
from engine.training.fit.session import Phase, Session
from engine.training.rules import Erm
from operators.arrays import Float64, Mask
from operators.lpboost import SampleWeightSolver, Solution

MAX_DRAWS = 50.0
"""Maximum number of draws of a row, relative to the draws by its published weight."""
CAP_ROUNDS = 50
"""Maximum number of rounds in which weight above the caps is redistributed."""
TOTAL, LOSSES, SOLVED, WEIGHTS = "total", "losses", "solved", "sample_weights"


class Boosted:
    """Boosting as phases of a training: phase 0 is ERM, phase s fits base model s to its sample weights.

    The learner of the paper: minibatches drawn with replacement by the sample weights, from model 0 and with
    a fresh optimiser in each round. Losses are 0/1. ``ada`` only ever adds up a worker's own losses; the
    two LPs are solved by rank 0 on all rows' losses (a byte a row and model while they travel, eight there),
    so that any number of workers gets the same weights to the bit.
    """

    def __init__(self, params: BoostedParams) -> None:
        self._params = params
        self.n_phases = params.rounds
        self._solver: SampleWeightSolver | None = None
        self._ready = False

    def prepare(self, phase: int, session: Session) -> None:
        """Implement the method of :class:`engine.training.fit.session.Method`."""
        if phase == 0:
            return
        self._keep_model(phase - 1, session)
        if phase == 1:
            session.keep("warm", model_state(session.learner.state()))
        wrong = session.errors("train")
        total = _add_up(wrong, session)
        if self._params.boosting == "ada":
            weights = self._with_published_weights(
                self._trimmed(self._ada_weights(total, session), session), session
            )
        else:  # the published weights are in the caps of the LP
            weights = self._trimmed(self._lp_weights(wrong, session), session)
        session.progress.by_slot[WEIGHTS] = weights
        session.learner.restore(session.kept("warm"))

    def phase(self, phase: int, session: Session) -> Phase:
        """Implement the method of :class:`engine.training.fit.session.Method`."""
        if phase == 0:
            return Phase(Erm(), Draw(), self._params.n_epochs)
        draw = Draw(weights=session.progress.by_slot[WEIGHTS])
        return Phase(Erm(), draw, self._params.round_epochs, weighted=False)

    def finish(self, session: Session) -> int:
        """Implement the method of :class:`engine.training.fit.session.Method`."""
        self._keep_model(self.n_phases - 1, session)
        return self.n_phases

    def _keep_model(self, index: int, session: Session) -> None:
        session.model_store.put(index, model_state(session.learner.state()))

    def _ada_weights(self, total: dict[int, Float64], session: Session) -> dict[int, Float64]:
        """Return w_i proportional to exp(eta times row i's losses so far) (Zhai et al. 2021, Algorithm 2)."""
        peaks = session.slots.each(lambda slot: torch.tensor([float(total[slot].max(initial=0))]))
        most = float(peaks.max())
        return {slot: np.exp(self._params.eta * (own - most)) for slot, own in total.items()}

    def _lp_weights(self, wrong: dict[int, Mask], session: Session) -> dict[int, Float64]:
        if not self._ready:
            self._solver, self._ready = self._resumed(session), True
        t = session.progress.phase
        losses = session.gather({slot: own.astype(np.uint8) for slot, own in wrong.items()})
        lengths = [len(own) for own in losses]
        found = torch.zeros(sum(lengths) + t + 2, dtype=torch.float64)
        if self._solver is not None:
            self._solver.add(np.concatenate(losses))
            found = _packed(self._solver)
        *parts, mixture, proof = torch.split(session.slots.communicator.broadcast(found), [*lengths, t, 2])
        _append(wrong, session)
        weights = {slot: parts[slot].numpy().copy() for slot in session.slots.mine}
        session.progress.by_slot[SOLVED] = weights
        session.keep("lp", {"model_weights": mixture.clone(), "proof": proof.clone()})
        return weights

    def _resumed(self, session: Session) -> SampleWeightSolver | None:
        """Return rank 0's solver as it was after the finished rounds; None on other ranks."""
        params, progress = self._params, session.progress
        earlier = None
        if LOSSES in progress.by_slot:
            every = session.gather({s: own.reshape(-1) for s, own in progress.by_slot[LOSSES].items()})
            earlier = np.concatenate(every).reshape(-1, progress.phase - 1)
            weights = np.concatenate(session.gather(progress.by_slot[SOLVED]))
        published = None
        if params.weights:
            published = np.concatenate(session.gather(session.of_rows("train", lambda rows: rows.weight)))
        if session.slots.communicator.rank:
            return None
        beta = params.beta if params.boosting == "regularized_lp" else None
        solver = SampleWeightSolver(params.alpha, beta, sample_weight=published)
        if earlier is not None:
            kept = session.kept("lp")
            value, gap = kept["proof"].tolist()
            solver.restore(earlier, Solution(weights, kept["model_weights"].numpy(), value, gap, "kept"))
        return solver

    def _with_published_weights(self, weights: dict[int, Float64], session: Session) -> dict[int, Float64]:
        """Multiply Ada's sample weights by the rows' published weights.

        The published weight decides how often a row is drawn, not how much its loss counts: a row that is
        trusted little would otherwise never be learnt, always be wrong, and take most of the draws.
        """
        if not self._params.weights:
            return weights
        published = session.of_rows("train", lambda rows: rows.weight)
        found = {slot: own * published[slot] for slot, own in weights.items()}
        ends = session.slots.each(
            lambda slot: torch.tensor(
                [published[slot].min(initial=np.inf), published[slot].max(initial=0.0)], dtype=torch.float64
            )
        )
        if float(ends[:, 0].min()) == float(ends[:, 1].max()):
            return weights  # equal weights: the paper's draws
        return self._capped(found, published, session)

    def _capped(
        self, drawn: dict[int, Float64], published: dict[int, Float64], session: Session
    ) -> dict[int, Float64]:
        """Return draw probabilities of which no row exceeds ``MAX_DRAWS`` times its published share.

        Each round cuts the rows above their cap and shares what was cut out over the others.
        """
        total = float(session.slots.total(lambda s: torch.tensor([published[s].sum()])))
        caps = {slot: MAX_DRAWS * own / total for slot, own in published.items()}
        capped = {slot: np.zeros(len(own), bool) for slot, own in drawn.items()}
        found = drawn
        for _ in range(CAP_ROUNDS):
            sums = session.slots.total(
                lambda s: torch.tensor([caps[s][capped[s]].sum(), drawn[s][~capped[s]].sum()])  # noqa: B023
            )
            held, free = float(sums[0]), float(sums[1])
            scale = (1 - held) / free if free > 0 else 0.0
            found = {s: np.where(capped[s], caps[s], scale * own) for s, own in drawn.items()}
            over = {s: ~capped[s] & (own > caps[s]) for s, own in found.items()}
            if not int(session.slots.total(lambda s: torch.tensor([float(over[s].sum())]))):  # noqa: B023
                break
            capped = {s: capped[s] | over[s] for s in capped}
        return {s: np.minimum(own, caps[s]) for s, own in found.items()}

    def _trimmed(self, weights: dict[int, Float64], session: Session) -> dict[int, Float64]:
        """Remove the weight of the share ``trim`` of rows that most models get wrong."""
        if not self._params.trim:
            return weights
        total = session.progress.by_slot[TOTAL]
        bins = session.progress.phase + 1
        held = session.slots.total(
            lambda slot: torch.from_numpy(
                np.bincount(total[slot].astype(np.int64), minlength=bins).astype(float)
            )
        ).numpy()
        above = np.cumsum(held[::-1])[::-1] - held
        cut = (self._params.trim * held.sum() - above).clip(0, held)
        kept = 1 - np.divide(cut, held, out=np.zeros(bins), where=held > 0)
        found = {slot: own * kept[total[slot].astype(np.int64)] for slot, own in weights.items()}
        mass = session.slots.total(lambda slot: torch.tensor([float(found[slot].sum())]))
        return found if float(mass) > 0 else {slot: kept[total[slot].astype(np.int64)] for slot in found}


def _packed(solver: SampleWeightSolver) -> torch.Tensor:
    """Return the result of a round as one vector: sample weights, model weights, value and gap."""
    found = solver.solution_
    if found is None:
        raise RuntimeError("the solver has no losses yet")
    proof = [found.value, found.gap]
    return torch.from_numpy(np.concatenate([found.sample_weights, found.model_weights, proof]))


def _add_up(wrong: dict[int, Mask], session: Session) -> dict[int, Float64]:
    """Add the last model's losses to each row's sum over all models so far."""
    before = session.progress.by_slot.get(TOTAL, {})
    total = {slot: before.get(slot, 0.0) + own.astype(np.float64) for slot, own in wrong.items()}
    session.progress.by_slot[TOTAL] = total
    return total


def _append(wrong: dict[int, Mask], session: Session) -> None:
    """Store the losses of every model, (n, t) per slot, for a solver that must start again."""
    before = session.progress.by_slot.get(LOSSES)
    session.progress.by_slot[LOSSES] = {
        slot: np.column_stack([*([] if before is None else [before[slot]]), own.astype(np.uint8)])
        for slot, own in wrong.items()
    }
