"""Statistics of the rows that training needs: count, weight, mean and deviation of the features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from operators.arrays import Float64
from operators.base import OperatorError
from operators.communicator import Communicator, SingleProcess, Slots, arrays_in_order
from operators.models.spec import ModelSpec
from operators.probe.rows import Rows, Shards, blocks


@dataclass(frozen=True)
class Census:
    """Counts and moments over all shards, equal on every worker."""

    slot_rows: tuple[int, ...]
    """Rows of each slot."""
    total_weight: float
    mean: Float64 | None = None
    """(d,) unweighted mean of the features; None where the model does not standardise."""
    std: Float64 | None = None
    """(d,) standard deviation beside ``mean``."""

    @property
    def n_rows(self) -> int:
        """Number of rows in all slots."""
        return sum(self.slot_rows)


def slots_of(shards: Shards, communicator: Communicator | None) -> Slots:
    """Return the slots of the shards; without a communicator this process works alone.

    Raises OperatorError where there are no shards.
    """
    if not len(shards):
        raise OperatorError("The probe has nothing to learn from: there are no shards.")
    return Slots(communicator or SingleProcess(), len(shards))


def take_census(spec: ModelSpec, shards: Shards, slots: Slots) -> Census:
    """Count rows, check labels, and measure mean and standard deviation where ``spec`` standardises.

    Two passes over the shards then (the second centred: one pass of squares loses small deviations beside
    large means), else one.

    Raises
    ------
    OperatorError
        No rows, no weight, features of another width than the model's, or a label out of range.
    """
    by_slot = slots.each_array(
        lambda slot: arrays_in_order([_count(spec, shards[shard], shard) for shard in slots.shards(slot)])
    )
    sums = arrays_in_order(list(by_slot))
    n, total_weight = float(sums[0]), float(sums[1])
    if not 0 < total_weight < float("inf"):
        raise OperatorError(
            f"The probe has nothing to learn from: {n:g} valid rows whose weights sum to {total_weight:g}. "
            "Check what the operators before it leave."
        )
    slot_rows = tuple(int(rows) for rows in by_slot[:, 0])
    if not spec.standardize:
        return Census(slot_rows, total_weight)
    mean = sums[2:] / n
    squares = slots.total_array_over_shards(lambda shard: _squares(shards[shard], mean))
    return Census(slot_rows, total_weight, mean, np.sqrt(squares / n))


def _count(spec: ModelSpec, rows: Rows, shard: int) -> Float64:
    """Return the rows, the weight and the feature sums of a shard: (2 + d,)."""
    sums = np.zeros(2 + spec.n_features)
    if len(rows):
        _check(spec, rows, shard)
    for x, _, weight in blocks(rows):
        sums[0] += len(x)
        sums[1] += weight.sum()
        sums[2:] += x.sum(axis=0)
    return sums


def _check(spec: ModelSpec, rows: Rows, shard: int) -> None:
    if rows.X.shape[1] != spec.n_features:
        raise OperatorError(
            f"Shard {shard} has rows of {rows.X.shape[1]} features, earlier ones of {spec.n_features}. "
            "Every row needs the same features; fix the source."
        )
    low, high = int(rows.y.min()), int(rows.y.max())
    if low < 0 or high >= spec.n_classes:
        raise OperatorError(
            f"Shard {shard} has the class index {low if low < 0 else high}, but there are {spec.n_classes} "
            f"classes (0 .. {spec.n_classes - 1}). Ingest again: the labels changed under it."
        )


def _squares(rows: Rows, mean: Float64) -> Float64:
    """Return the sums (d,) of squared distances from the mean, by feature."""
    sums = np.zeros_like(mean)
    for x, _, _ in blocks(rows):
        sums += np.square(x - mean).sum(axis=0)
    return sums
