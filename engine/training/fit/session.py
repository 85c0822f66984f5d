"""State of one training on one worker: rows, model, counts and progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engine.recipe.trainers import TrainParams
from engine.training.data.rows import Counts, Dataset, GroupedRows, Shards
from engine.training.fit.callbacks import Callback, Callbacks, EpochEnd, PhaseEnd
from engine.training.fit.checkpoint import Checkpoints, ModelStore, Progress
from engine.training.fit.sampling import Draw, balance
from engine.training.objectives import RowLosses
from engine.training.rules import Rule
from operators.arrays import Float64, Mask
from operators.base import OperatorError
from operators.communicator import Slots
from operators.metrics.group_scores import pool_groups
from operators.probe.scoring import predict


@dataclass(frozen=True)
class Unweighted:
    """Shards whose rows all have weight 1."""

    shards: Shards

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, shard: int, /) -> GroupedRows:
        rows = self.shards[shard]
        return replace(rows, weight=np.ones(len(rows)))


@dataclass(frozen=True)
class ClassWeighted:
    """Shards whose rows have the weight of their class."""

    shards: Shards
    weight_of_class: Float64
    """(C,)"""

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, shard: int, /) -> GroupedRows:
        rows = self.shards[shard]
        return replace(rows, weight=self.weight_of_class[rows.y])


@dataclass(frozen=True)
class Phase:
    """A number of epochs under one rule."""

    rule: Rule
    draw: Draw
    epochs: int
    weighted: bool | None = None
    """Whether losses are multiplied by the rows' weights; default: where rows are not drawn by weight."""
    selects: bool = True
    """Whether ``keep: best`` applies to it."""


class Method(Protocol):
    """A trainer as a sequence of phases. Its state is in the session's progress, so that it can resume."""

    n_phases: int

    def prepare(self, phase: int, session: Session) -> None:
        """Prepare a phase, for example by scores of the rows.

        An interrupted phase resumes without another call.
        """
        ...

    def phase(self, phase: int, session: Session) -> Phase:
        """Return the phase's rule, draw and length. They depend on the progress only."""
        ...

    def finish(self, session: Session) -> int:
        """Store the models after the last phase and return their number."""
        ...


class PhaseLearner(Protocol):
    """The base model that a training fits, phase by phase: a network, or an estimator of a library."""

    @property
    def device(self) -> torch.device:
        """Device that it computes on."""
        ...

    @property
    def model(self) -> nn.Module:
        """The model as a module from rows to outputs."""
        ...

    def fit_phase(self, phase: Phase, session: Session) -> None:
        """Fit the model for a phase, from where the session's progress says; it notes every epoch there."""
        ...

    def first_errors(self, session: Session) -> dict[int, Mask]:
        """Return slot -> (n,) whether a first model is wrong on each train row of this worker's slots."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Return all that a checkpoint needs as named tensors on the CPU; ``model.`` begins the model's."""
        ...

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore a result of :meth:`state`."""
        ...


class Session:
    """One worker's view of a training."""

    def __init__(
        self,
        data: Dataset,
        params: TrainParams,
        slots: Slots,
        learner: PhaseLearner,
        counts: Counts,
        seed: int,
        checkpoints: Checkpoints,
        model_store: ModelStore,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.data, self.params, self.slots, self.learner = data, params, slots, learner
        self.counts, self.seed, self.model_store = counts, seed, model_store
        self._checkpoints = checkpoints
        self.callbacks = Callbacks(callbacks, slots.communicator.rank)
        self.progress = Progress(notes={"curve": []})

    def run(self, method: Method) -> int:
        """Run all phases, from the last checkpoint where there is one; return the number of models."""
        self._resume()
        while self.progress.phase < method.n_phases:
            if not self.progress.epoch and not self.progress.notes.get("begun"):
                method.prepare(self.progress.phase, self)
                self.progress.notes["begun"] = True
            self.learner.fit_phase(method.phase(self.progress.phase, self), self)
            self._next_phase()
            if self.params.is_estimator:  # only now: a checkpoint of a phase that goes on is fitted again
                self.save()
            self.callbacks.on_phase_end(PhaseEnd(self.progress.phase, method.n_phases))
        n_models = method.finish(self)
        self._checkpoints.clear()
        return n_models

    def _next_phase(self) -> None:
        self.progress.phase, self.progress.epoch = self.progress.phase + 1, 0
        self.progress.notes["begun"] = False
        self._drop("rule.")
        self._drop("best.")
        self.progress.notes.pop("best", None)

    def note_epoch(self, note: dict[str, Any]) -> None:
        """Add an entry to the curve of the training, and tell the callbacks."""
        curve = self.progress.notes["curve"]
        curve.append(note)
        total = max(len(curve), self.params.total_epochs)
        event = EpochEnd(**{**note, "phase": note["phase"] + 1}, number=len(curve), total=total)
        self.callbacks.on_epoch(event)

    def weighed_rows(self, weighted: bool | None = None) -> tuple[Shards, float]:
        """Return the train shards with the weights that losses are multiplied by, and the mean of those.

        ``weighted``: see :class:`Phase`.
        """
        params, counts = self.params, self.counts
        if params.balances_classes:
            return ClassWeighted(self.data.train, self._class_weights()), 1.0
        weighted = params.sampling == "shuffle" if weighted is None else weighted
        if params.weights and weighted:
            return self.data.train, counts.total_weight / counts.n_rows
        return Unweighted(self.data.train), 1.0

    def _class_weights(self) -> Float64:
        """Return (C,) weights of mean 1 over the train rows under which every class has the same total."""
        labels = self.of_rows("train", lambda rows: rows.y)
        n_classes = self.data.n_classes

        def count(slot: int) -> torch.Tensor:
            return torch.from_numpy(np.bincount(labels[slot], minlength=n_classes).astype(np.float64))

        return balance(self.slots.total(count).numpy())[:-1]

    def save(self) -> None:
        """Write a checkpoint."""
        self._drop("learner.")
        self._put("learner.", self.learner.state())
        self._checkpoints.save(self.progress)

    def _resume(self) -> None:
        found = self._checkpoints.load()
        if found is not None:
            self.progress = found
            self.learner.restore(self._tensors("learner."))

    def _put(self, prefix: str, values: dict[str, torch.Tensor]) -> None:
        self.progress.tensors.update({prefix + name: value for name, value in values.items()})

    def _tensors(self, prefix: str) -> dict[str, torch.Tensor]:
        found = self.progress.tensors.items()
        return {name.removeprefix(prefix): value for name, value in found if name.startswith(prefix)}

    def _drop(self, prefix: str) -> None:
        for name in self._tensors(prefix):
            del self.progress.tensors[prefix + name]

    def keep(self, name: str, state: dict[str, torch.Tensor]) -> None:
        """Store named tensors under a prefix of their own. They are part of every checkpoint."""
        self._put(f"{name}.", state)

    def kept(self, name: str) -> dict[str, torch.Tensor]:
        """Return the tensors that :meth:`keep` stored under a name."""
        return self._tensors(f"{name}.")

    def errors(self, split: str) -> dict[int, Mask]:
        """Return slot -> (n,) whether the model in eval mode is wrong on each row of this worker's slots."""
        shards = self.data.splits[split]
        self.learner.model.eval()
        try:
            return {
                slot: np.concatenate([self._wrong(shards[i]) for i in self.slots.shards(slot)])
                for slot in self.slots.mine
            }
        finally:
            self.learner.model.train()

    def _wrong(self, rows: GroupedRows) -> Mask:
        if not len(rows):
            return np.zeros(0, bool)
        wrong: Mask = predict(self.learner.model, rows.X, rows.y)[0] != rows.y
        return wrong

    def scores(self, split: str, losses: RowLosses) -> tuple[float, float]:
        """Return the mean score of the worst inferred group of a split, and of all its rows.

        Small groups are pooled, see :mod:`operators.metrics.group_scores`; the rows of a class that are in no
        group count as one of the groups. Raises OperatorError if the split has no rows.
        """
        shards, model = self.data.splits[split], self.learner.model
        model.eval()
        try:
            found = {
                slot: np.concatenate([losses.scores(model, shards[i]) for i in self.slots.shards(slot)])
                for slot in self.slots.mine
            }
        finally:
            model.train()
        keys = self.of_rows(split, lambda rows: np.where(rows.group >= 0, rows.group, -1 - rows.y))
        n_classes, size = self.data.n_classes, self.data.n_groups + self.data.n_classes

        def count(slot: int) -> torch.Tensor:
            place = keys[slot] + n_classes
            rows = np.bincount(place, minlength=size)
            sums = np.bincount(place, found[slot], minlength=size)
            return torch.from_numpy(np.concatenate([rows, sums]).astype(np.float64))

        rows, sums = self.slots.total(count).numpy().reshape(2, -1)
        if not rows.sum():
            raise OperatorError(
                f"train.keep: there are no {split} rows to choose an epoch by. Set split.{split} in the "
                "recipe, or keep: last."
            )
        pools = pool_groups(dict(enumerate(rows.astype(int).tolist())))
        means = [float(sums[list(members)].sum() / rows[list(members)].sum()) for members in pools]
        average = float(sums.sum() / rows.sum())
        return min(means, default=average), average

    def of_rows(
        self, split: str, value: Callable[[GroupedRows], npt.NDArray[Any]]
    ) -> dict[int, npt.NDArray[Any]]:
        """Return slot -> (n,) one value for each row of this worker's slots, in the order of the shards."""
        shards = self.data.splits[split]
        return {
            slot: np.concatenate([value(shards[i]) for i in self.slots.shards(slot)])
            for slot in self.slots.mine
        }

    def gather(self, values: dict[int, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Return every slot's values (n,) on every worker. Only for small values, such as a byte per row."""
        lengths = self.slots.each(lambda slot: torch.tensor([len(values[slot])]))[:, 0].tolist()
        most = max(lengths)

        def padded(slot: int) -> torch.Tensor:
            own = values[slot]
            return torch.from_numpy(np.concatenate([own, np.zeros(most - len(own), own.dtype)]))

        table = self.slots.each(padded).numpy()
        return [table[slot, :length] for slot, length in enumerate(lengths)]


def count_rows(data: Dataset, slots: Slots) -> Counts:
    """Count the train rows. Raises OperatorError if there is nothing to learn from."""
    n, n_classes = data.n_groups, data.n_classes

    def count(slot: int) -> torch.Tensor:
        sums, apart = np.zeros((2, n + 1)), np.zeros(n_classes)
        for shard in slots.shards(slot):
            rows = data.train[shard]
            sums[0] += np.bincount(rows.group + 1, minlength=n + 1)
            sums[1] += np.bincount(rows.group + 1, rows.weight, minlength=n + 1)
            apart += np.bincount(rows.y[rows.group < 0], minlength=n_classes)
        return torch.from_numpy(np.concatenate([sums.reshape(-1), apart]))

    table = slots.each(count).numpy()
    by_slot, apart = table[:, :-n_classes].reshape(-1, 2, n + 1), table[:, -n_classes:].sum(axis=0)
    rows, weight = by_slot.sum(axis=0)
    if not rows.sum() or not 0 < weight.sum() < np.inf:
        raise OperatorError(
            f"There is nothing to train on: {rows.sum():g} rows of split train, whose weights sum to "
            f"{weight.sum():g}. Check the version's columns `split` and `weight`, and train.noise."
        )
    slot_rows = tuple(int(count) for count in by_slot[:, 0].sum(axis=1))
    whole = rows[1:].astype(np.int64)
    return Counts(slot_rows, float(weight.sum()), whole, weight[1:], apart.astype(np.int64))
