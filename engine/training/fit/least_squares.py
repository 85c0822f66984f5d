"""Linear regression by its normal equations, from sums over shards."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engine.training.data.rows import GroupedRows, Shards
from engine.training.objectives import TargetScale
from operators.arrays import Float64
from operators.communicator import Slots
from operators.models import Standardize

MAX_FEATURES = 2048
"""Most features of which the square is kept: 34 MB in float64 a slot."""
BLOCK = 4096
"""Rows that are converted to float64 at a time."""


class Linear(NamedTuple):
    """A linear model of one output, on standardised features."""

    weight: Float64
    """(d,)"""
    bias: float


def solve(shards: Shards, scaler: Standardize | None, scale: TargetScale, slots: Slots, l2: float) -> Linear:
    """Return the minimiser of sum_i w_i (y_i - z_i b - c)^2 / sum_i w_i + l2/2 ||b||^2.

    Of several minimisers, as of features that depend on each other with ``l2 = 0``, it has the least norm.

    Parameters
    ----------
    shards : rows with weights w and targets.
    scaler : turns features x into z; None takes them as they are.
    scale : mean and deviation by which targets become y.
    slots : the shards' order; every worker gets the same sums.
    l2 : penalty; the bias c has none.
    """
    sums = slots.total_over_shards(lambda shard: _moments(shards[shard], scaler, scale))
    size = int(sums.numel() ** 0.5)
    second = sums.reshape(size, size)
    mean = (
        second[-2] / second[-2, -2]
    )  # row -2 are the sums of w times each column; its own is the total weight
    d = size - 2
    centred = second / second[-2, -2] - torch.outer(mean, mean)
    matrix = centred[:d, :d] + l2 / 2 * torch.eye(d, dtype=torch.float64)
    weight = torch.linalg.lstsq(matrix, centred[:d, -1:], driver="gelsd").solution[:, 0]
    return Linear(weight.numpy(), float(mean[-1] - mean[:d] @ weight))


def _moments(rows: GroupedRows, scaler: Standardize | None, scale: TargetScale) -> Tensor:
    """Return the sum of w v v' over the rows' v = (z, 1, y), flattened: ((d + 2)^2,) float64."""
    size = rows.X.shape[1] + 2
    total = torch.zeros((size, size), dtype=torch.float64)
    for start in range(0, len(rows), BLOCK):
        part = rows.take(slice(start, start + BLOCK))
        z = torch.tensor(part.X, dtype=torch.float64)
        if scaler is not None:
            z = (z - scaler.mean.cpu().double()) / scaler.std.cpu().double()
        y = torch.from_numpy((part.numbers - scale.mean) / scale.std)
        v = torch.column_stack([z, torch.ones(len(part), dtype=torch.float64), y])
        total += v.T @ (torch.from_numpy(part.weight)[:, None] * v)
    return total.reshape(-1)
