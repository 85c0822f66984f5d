"""Statistics of the rows that training needs: count, weight, mean and deviation of the features."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from operators.base import OperatorError
from operators.communicator import Slots, in_order
from operators.models import ModelSpec, Standardize
from operators.probe.rows import Rows, Shards, blocks


@dataclass(frozen=True)
class Census:
    """Counts over all shards, equal on every worker."""

    slot_rows: tuple[int, ...]
    """Rows of each slot."""
    total_weight: float

    @property
    def n_rows(self) -> int:
        """Number of rows in all slots."""
        return sum(self.slot_rows)


def take_census(spec: ModelSpec, shards: Shards, slots: Slots, scaler: Standardize | None) -> Census:
    """Count rows, check labels, and give ``scaler`` the unweighted mean and standard deviation.

    Two passes over the shards (the second centred: one pass of squares loses small deviations beside
    large means), one if ``scaler`` is None.

    Raises
    ------
    OperatorError
        No rows, no weight, features of another width than the model's, or a label out of range.
    """
    device = torch.device("cpu") if scaler is None else scaler.mean.device
    by_slot = slots.each(
        lambda slot: in_order([_count(spec, shards[shard], shard, device) for shard in slots.shards(slot)])
    )
    sums = in_order(list(by_slot))
    n, total_weight = float(sums[0]), float(sums[1])
    if not 0 < total_weight < float("inf"):
        raise OperatorError(
            f"The probe has nothing to learn from: {n:g} valid rows whose weights sum to {total_weight:g}. "
            "Check what the operators before it leave."
        )
    if scaler is not None:
        mean = (sums[2:] / n).to(device)
        squares = slots.total_over_shards(lambda shard: _squares(shards[shard], mean))
        scaler.set(mean, (squares.to(device) / n).sqrt())
    return Census(tuple(int(rows) for rows in by_slot[:, 0]), total_weight)


def _count(spec: ModelSpec, rows: Rows, shard: int, device: torch.device) -> Tensor:
    """Return the rows, the weight and the feature sums of a shard: (2 + d,) float64."""
    sums = torch.zeros(2 + spec.n_features, dtype=torch.float64, device=device)
    if len(rows):
        _check(spec, rows, shard)
    for x, _, weight in blocks(rows, device):
        sums[0] += len(x)
        sums[1] += weight.sum()
        sums[2:] += x.sum(dim=0)
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


def _squares(rows: Rows, mean: Tensor) -> Tensor:
    """Return the sums (d,), float64, of squared distances from the mean, by feature."""
    sums = torch.zeros_like(mean)
    for x, _, _ in blocks(rows, mean.device):
        sums += (x - mean).square_().sum(dim=0)
    return sums
