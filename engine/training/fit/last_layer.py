"""Deep feature reweighting: a network's last layer is fitted anew to held-out rows in balance over groups.

Source: Kirichenko, Izmailov and Wilson, Last layer re-training is sufficient for robustness to spurious
correlations, ICLR 2023. The paper draws balanced subsets of the validation rows and averages the fits, with
an L1 penalty. Here the rows are train rows that the first model has not seen, so that validation rows still
tell how good the model is; groups are balanced by weights, which needs no draws, under an L2 penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engine.recipe.trainers import DfrParams
from engine.training.data.rows import Dataset, GroupedRows, Shards
from engine.training.fit.learner import model_state
from engine.training.fit.sampling import Draw, balance
from engine.training.fit.session import Phase, Session
from engine.training.rules import Erm
from operators.arrays import Float64, Mask
from operators.base import OperatorError
from operators.hashing import row_hashes, uniform
from operators.models import ModelSpec, Standardize
from operators.probe.kernel import train
from operators.probe.rows import Rows
from operators.probe.settings import Settings

CHUNK = 4096
"""Rows of one forward pass."""


class Dfr:
    """A phase of ERM on most train rows, then a logistic regression on the other ones' activations."""

    n_phases = 1

    def __init__(self, params: DfrParams) -> None:
        self._params = params

    def prepare(self, phase: int, session: Session) -> None:
        """Implement the method of :class:`engine.training.fit.session.Method`."""

    def phase(self, phase: int, session: Session) -> Phase:
        """Implement the method of :class:`engine.training.fit.session.Method`."""
        held_out = self._held_out(session)
        self._group_weights(session, held_out)  # refuses before the first epoch
        times = session.of_rows("train", lambda rows: (~held_out(rows)).astype(np.int64))
        return Phase(Erm(), Draw(times=times), self._params.n_epochs)

    def finish(self, session: Session) -> int:
        """Fit the last layer, then store the model."""
        learner = session.learner
        layer = last_linear(learner.model, session.data.n_features, session.data.n_classes)
        held_out = self._held_out(session)
        rows = _HeldOutActivations(
            session.data.train,
            learner.model,
            layer,
            held_out,
            self._group_weights(session, held_out),
            weights=self._params.weights,
        )
        spec = ModelSpec(n_features=layer.in_features, n_classes=layer.out_features)
        trained = train(
            spec,
            rows,
            settings=Settings(l2=self._params.last_l2),
            seed=session.seed,
            communicator=session.slots.communicator,
        )
        _copy_regression(layer, trained.model)
        notes = session.progress.notes["curve"]
        notes.append({"phase": 1, "epoch": 1, "loss": trained.train_loss})
        session.model_store.put(0, model_state(learner.state()))
        return 1

    def _held_out(self, session: Session) -> _HeldOut:
        """Return which train rows the first phase leaves out.

        They are drawn by a hash of their ids. Of a class or group of which none is drawn, the row with the
        least hash is left out too if it is not the only one.
        """
        n, n_classes = session.data.n_groups + 1, session.data.n_classes
        share = self._params.held_out
        drawn = _HeldOut(session.seed, share, np.full(n, -1.0), np.full(n_classes, -1.0))

        def count(slot: int) -> Float64:
            rows_of, least = np.zeros(n + n_classes), np.ones(n + n_classes)
            for shard in session.slots.shards(slot):
                rows = session.data.train[shard]
                rows = rows.take(np.flatnonzero(rows.weight > 0)) if self._params.weights else rows
                hashes = drawn.hashes(rows)
                for places in (rows.group + 1, rows.y + n):
                    np.add.at(rows_of, places, 1)
                    np.minimum.at(least, places, hashes)
            return np.stack([rows_of, least]).reshape(-1)

        table = session.slots.each_array(count).reshape(-1, 2, n + n_classes)
        rows_of, least = table[:, 0].sum(axis=0), table[:, 1].min(axis=0)
        limits = np.where((least >= share) & (rows_of > 1), least, -1.0)
        limits[0] = -1.0  # rows in no group are none of their own
        return replace(drawn, by_group=limits[:n], by_class=limits[n:])

    def _group_weights(self, session: Session, held_out: _HeldOut) -> Float64:
        """Return (G + 1,) factors under which every group of the held-out rows has the same total weight.

        Raises OperatorError if a class or a group with train rows has no held-out row: the last layer would
        be fitted as if there were none.
        """
        groups, classes = self._weight_sums(session, held_out)
        if not groups[1].any():
            raise OperatorError(
                "train.trainer dfr: none of the rows that the last layer is fitted to is in a group. Raise "
                "train.held_out, set train.noise to own_group, or train erm."
            )
        named = [
            *_without_held_out(session.data, "class", range(session.data.n_classes), classes),
            *_without_held_out(session.data, "group", session.data.group_names, groups),
        ]
        if named:
            raise OperatorError(
                f"train.trainer dfr: {named[0]} has train rows, and none of them is held out for the last "
                f"layer, which would forget it. Raise train.held_out ({self._params.held_out:g}), take "
                f"another seed, or train gdro."
            )
        return balance(groups[1])

    def _weight_sums(self, session: Session, held_out: _HeldOut) -> tuple[Float64, Float64]:
        """Return sums of weights by group (2, G) and by class (2, C): of all train rows, of held-out ones."""
        n, n_classes = session.data.n_groups, session.data.n_classes

        def count(slot: int) -> Tensor:
            found = np.zeros((2, n + 1 + n_classes))
            for shard in session.slots.shards(slot):
                rows = session.data.train[shard]
                weight = rows.weight if self._params.weights else np.ones(len(rows))
                chosen = (np.ones(len(rows), bool), held_out(rows))
                for sums, mine in zip(found, chosen, strict=True):
                    sums[: n + 1] += np.bincount(rows.group[mine] + 1, weight[mine], minlength=n + 1)
                    sums[n + 1 :] += np.bincount(rows.y[mine], weight[mine], minlength=n_classes)
            return torch.from_numpy(found.reshape(-1))

        sums = session.slots.total(count).numpy().reshape(2, -1)
        return sums[:, 1 : n + 1], sums[:, n + 1 :]


@dataclass(frozen=True)
class _HeldOut:
    """Train rows that the first phase does not see, by hashes of their ids; see ``Dfr._held_out``."""

    seed: int
    share: float
    by_group: Float64
    """(G + 1,) largest hash of a row of each group that is left out beyond the share; -1 where none is."""
    by_class: Float64
    """(C,) the same of each class."""

    def hashes(self, rows: GroupedRows) -> Float64:
        """Return the hashes (n,) of rows, in [0, 1)."""
        return uniform(row_hashes(rows.row_id, self.seed, "train/last layer"))

    def __call__(self, rows: GroupedRows) -> Mask:
        """Return which rows (n,) are left out."""
        drawn = self.hashes(rows)
        found: Mask = drawn < self.share
        return found | (drawn <= self.by_group[rows.group + 1]) | (drawn <= self.by_class[rows.y])


def _without_held_out(data: Dataset, kind: str, numbers: Sequence[int], weight: Float64) -> list[str]:
    """Return the names of classes or groups of which weight (2, n) says: some rows, and none held out."""
    lost = (weight[0] > 0) & ~(weight[1] > 0)
    names = [numbers[place] for place in np.flatnonzero(lost).tolist()]
    if kind == "class":
        return [f"class {data.class_name(name)}" for name in names]
    return [
        f"group {name}" if name >= 0 else f"class {data.class_name(-1 - name)} without a group"
        for name in names
    ]


@dataclass(frozen=True)
class _HeldOutActivations:
    """The inputs of the last layer for the held-out rows of each shard, with weights in balance."""

    shards: Shards
    model: nn.Module
    layer: nn.Linear
    held_out: _HeldOut
    group_weights: Float64
    weights: bool

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, shard: int, /) -> Rows:
        rows: GroupedRows = self.shards[shard]
        rows = rows.take(np.flatnonzero(self.held_out(rows)))
        weight = rows.weight if self.weights else np.ones(len(rows))
        X = activations(self.model, self.layer, rows.X)[0]
        return Rows(X, rows.y, weight * self.group_weights[rows.group])


def activations(
    model: nn.Module, layer: nn.Linear, X: npt.NDArray[np.float32]
) -> tuple[npt.NDArray[np.float32], bool]:
    """Return the inputs (n, k) of a layer for rows X (n, d), and whether its output is the model's output."""
    seen: list[tuple[Tensor, Tensor]] = []
    hook = layer.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0], output)))
    was_training = model.training
    model.eval()
    try:
        outputs = _in_chunks(model, X)
    finally:
        hook.remove()
        model.train(was_training)
    # Compared as a whole: a pretrained network divides the rows into parts of its own.
    is_last = all(own.ndim == 2 for _, own in seen) and len(outputs) <= len(seen)
    if is_last and outputs:
        is_last = torch.equal(torch.cat([own for _, own in seen]), torch.cat(outputs))
    found = [inputs.float().cpu().numpy() for inputs, _ in seen] if is_last else []
    empty = np.empty((0, layer.in_features), np.float32)
    return (np.concatenate(found) if found else empty), is_last


@torch.no_grad()
def _in_chunks(model: nn.Module, X: npt.NDArray[np.float32]) -> list[Tensor]:
    """Return the outputs of the model for rows X (n, d), in pieces of ``CHUNK`` rows."""
    place = next(model.parameters()).device
    return [model(torch.tensor(X[i : i + CHUNK], device=place)) for i in range(0, len(X), CHUNK)]


def last_linear(model: nn.Module, n_features: int, n_classes: int) -> nn.Linear:
    """Return the linear layer whose output is the model's. Raises OperatorError if there is none."""
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    for layer in reversed(linear):
        if layer.out_features != n_classes or getattr(layer, "bias", None) is None:
            continue
        if activations(model, layer, np.zeros((2, n_features), np.float32))[1]:
            return layer
    raise OperatorError(
        "train.trainer dfr: the model does not end in a torch.nn.Linear with biases, whose output is the "
        "model's, so there is no last layer to fit anew. Set model to logistic or mlp, or let the factory "
        "end in one."
    )


@torch.no_grad()
def _copy_regression(layer: nn.Linear, fitted: nn.Module) -> None:
    """Write a standardised logistic regression into a linear layer."""
    scaler = cast(Standardize, fitted.get_submodule("standardize"))
    head = cast(nn.Linear, fitted.get_submodule("head"))
    weight = head.weight.double() / scaler.std.double()
    layer.weight.copy_(weight)
    layer.bias.copy_(head.bias.double() - weight @ scaler.mean.double())
