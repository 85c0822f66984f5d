"""Trainers as sequences of phases. Boosting is in :mod:`engine.training.boosting`."""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt

from engine.recipe.trainers import BoostedParams, DfrParams, DoroParams, GdroParams, JttParams, TrainParams
from engine.training.boosting import Boosted
from engine.training.last_layer import Dfr
from engine.training.learner import model_state
from engine.training.rules import Chi2Doro, CvarDoro, Erm, GroupDro, Rule
from engine.training.sampling import Draw, balance
from engine.training.session import Method, Phase, Session
from operators.base import OperatorError

_log = logging.getLogger("rowsieve")


def method_of(params: TrainParams) -> Method:
    """Return the trainer of the given parameters."""
    if isinstance(params, JttParams):
        return Jtt(params)
    if isinstance(params, BoostedParams):
        return Boosted(params)
    if isinstance(params, DfrParams):
        return Dfr(params)
    return SinglePhase(params)


def rule_of(params: TrainParams, session: Session) -> Rule:
    """Return the rule by which a trainer weights the rows of a step."""
    if isinstance(params, GdroParams):
        sizes = session.counts.group_rows
        _warn_of_absent_groups(params, sizes)
        if not sizes.any():
            raise OperatorError(
                "train.trainer gdro: no train row is in a group, all are noise. Set train.noise to "
                "own_group, or train erm."
            )
        return GroupDro(sizes, params.step_size, params.adjustment)
    if isinstance(params, DoroParams):
        kind = CvarDoro if params.trainer == "cvar_doro" else Chi2Doro
        return kind(params.alpha, params.eps)
    return Erm()


def _warn_of_absent_groups(params: GdroParams, sizes: npt.NDArray[np.int64]) -> None:
    """Warn where a group is expected in fewer than one row of a step: its weight q then hardly grows."""
    if params.sampling == "group_balanced":
        return
    present = sizes[sizes > 0]
    expected = params.step_rows * float(present.min()) / float(present.sum())
    if expected < 1:
        _log.warning(
            "train.sampling is %r: a step of %d rows holds %.2f rows of the smallest group (%d rows) on "
            "average, so that group DRO hardly learns from it. Set sampling to group_balanced, or raise "
            "batch_size.",
            params.sampling,
            params.step_rows,
            expected,
            int(present.min()),
        )


def draw_of(session: Session) -> Draw:
    """Return how an epoch draws rows, as ``params.sampling`` says."""
    params, counts = session.params, session.counts
    if params.sampling == "shuffle":
        return Draw()
    weight = session.of_rows("train", lambda rows: rows.weight if params.weights else np.ones(len(rows)))
    if params.sampling == "weight":
        return Draw(weights=weight)
    group = session.of_rows("train", lambda rows: rows.group)
    mass = counts.group_weight if params.weights else counts.group_rows.astype(float)
    return Draw(weights={slot: weight[slot] * balance(mass)[group[slot]] for slot in weight})


class SinglePhase:
    """A trainer of one phase under one rule: erm and its baselines, gdro, cvar_doro, chi2_dro."""

    n_phases = 1

    def __init__(self, params: TrainParams) -> None:
        self._params = params

    def prepare(self, phase: int, session: Session) -> None:
        """Implement the method of :class:`engine.training.session.Method`."""

    def phase(self, phase: int, session: Session) -> Phase:
        """Implement the method of :class:`engine.training.session.Method`."""
        return Phase(rule_of(self._params, session), draw_of(session), self._params.epochs)

    def finish(self, session: Session) -> int:
        """Implement the method of :class:`engine.training.session.Method`."""
        session.model_store.put(0, model_state(session.learner.state()))
        return 1


class Jtt(SinglePhase):
    """Just train twice (Liu et al. 2021): a second model sees the first one's errors more often.

    The errors are those of the first phase's last epoch, whatever ``keep`` says. The second model starts from
    the same initial weights. Repeats are whole rows of the epoch, as in the paper, so an epoch of the second
    phase has n + (upweight - 1) |error set| rows.
    """

    n_phases = 2

    def __init__(self, params: JttParams) -> None:
        super().__init__(params)
        self._jtt = params

    def prepare(self, phase: int, session: Session) -> None:
        """Implement the method of :class:`engine.training.session.Method`."""
        if phase == 0:
            session.keep("initial", model_state(session.learner.state()))
            return
        wrong = session.first_errors()
        session.progress.by_slot["times"] = {
            slot: np.where(wrong[slot], self._jtt.upweight, 1).astype(np.int64) for slot in wrong
        }
        session.learner.restore(session.kept("initial"))

    def phase(self, phase: int, session: Session) -> Phase:
        """Implement the method of :class:`engine.training.session.Method`."""
        if phase == 0:
            epochs = 0 if self._jtt.is_estimator else self._jtt.first_epochs
            return Phase(Erm(), draw_of(session), epochs, selects=False)
        return Phase(Erm(), Draw(times=session.progress.by_slot["times"]), self._jtt.epochs)
