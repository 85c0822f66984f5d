"""The drift of new shards against the old ones: features, gradients, shares of groups, and noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from engine.plan.model import Plan
from operators.base import FEATURES, GRADIENT, GROUP, ROW_ID, Executor, ShardReader
from operators.columns import vectors_to_numpy

if TYPE_CHECKING:
    from operators.metrics.drift import Shift

DIGITS = 6
"""Decimals of a figure in the manifest; further ones depend on the machine."""
Floats = npt.NDArray[np.float32]


def measure(plan: Plan, executor: Executor) -> list[dict[str, Any]]:
    """Measure every figure that the recipe has a threshold for and whose column is computed.

    Only counts and samples of rows (``incremental.drift.sample`` of each side) come back to this process.

    Returns
    -------
    JSON-able figures: ``name``, ``value``, ``chance`` (the value expected without drift), ``excess``,
    ``threshold`` and ``over``. Empty without new rows.

    """
    from operators.metrics.drift import mmd_shift, rise, share_shift

    found, spec, seed = plan.increment, plan.recipe.incremental.drift, plan.recipe.seed
    if found is None:
        return []
    n_old = len(found.matching.old)
    sides = (range(n_old), range(n_old, len(plan.shards)))
    placed = {field.name for planned in plan.operators if planned.kept for field in planned.operator.adds}
    figures: list[dict[str, Any]] = []
    with threadpool_limits(limits=1):
        for name, column, threshold in (
            ("features", FEATURES, spec.features),
            ("gradients", GRADIENT, spec.gradients),
        ):
            if threshold is None or column not in placed:
                continue
            old, new = (_sample(plan, executor, column, side, spec.sample) for side in sides)
            if len(old) and len(new):
                rows = _standardised(old, new) if column == FEATURES else np.concatenate([old, new])
                mask = np.arange(len(rows)) >= len(old)
                figures.append(_figure(name, mmd_shift(rows, mask, random_state=seed), threshold))
    if GROUP in placed:
        before, after = (_groups(plan, executor, side) for side in sides)
        if before.total() and after.total():
            if spec.shares is not None:
                figures.append(_figure("shares", share_shift(before, after, random_state=seed), spec.shares))
            if spec.noise is not None:
                pairs = [(side[-1], side.total()) for side in (before, after)]
                figures.append(_figure("noise", rise(*pairs), spec.noise))
    return figures


def _figure(name: str, shift: Shift, threshold: float) -> dict[str, Any]:
    return {
        "name": name,
        "value": round(shift.value, DIGITS),
        "chance": round(shift.noise, DIGITS),
        "excess": round(shift.excess, DIGITS),
        "threshold": threshold,
        "over": shift.beyond(threshold),
    }


def _standardised(old: Floats, new: Floats) -> npt.NDArray[np.float64]:
    """Standardise by mean and standard deviation of the old rows; columns constant there are only centred."""
    scale = old.std(axis=0, dtype=np.float64)
    rows = np.concatenate([old, new]).astype(np.float64) - old.mean(axis=0, dtype=np.float64)
    return np.asarray(rows / np.where(scale > 0, scale, 1.0))


def _sample(plan: Plan, executor: Executor, column: str, shards: Sequence[int], size: int) -> Floats:
    """Draw rows at random from some shards, without the quarantined ones."""
    infos = [plan.shards[shard] for shard in shards]
    total = sum(info.n_rows for info in infos)
    rng = np.random.default_rng([plan.recipe.seed, int(shards[0]) if len(shards) else 0])
    drawn = np.sort(rng.choice(total, min(size, total), replace=False))
    ends = np.cumsum([info.n_rows for info in infos])
    work, first = [], 0
    for info, end in zip(infos, ends.tolist(), strict=True):
        mine = drawn[(drawn >= first) & (drawn < end)] - first
        if len(mine):
            work.append((info.index, (mine + info.first_row).tolist()))
        first = end
    parts = [
        part for part in executor.map(partial(_rows, plan.reader(fitting=True), column), work) if len(part)
    ]
    return np.concatenate(parts) if parts else np.empty((0, 0), np.float32)


def _rows(reader: ShardReader, column: str, work: tuple[int, list[int]]) -> Floats:
    """Return the values of the drawn rows of one shard. Runs on a worker."""
    table = reader.read(work[0], [column])
    places = np.flatnonzero(np.isin(table.column(ROW_ID).to_numpy(), work[1]))
    return np.asarray(vectors_to_numpy(table.column(column).take(places)), np.float32)


def _groups(plan: Plan, executor: Executor, shards: Sequence[int]) -> Counter[int]:
    found: Counter[int] = Counter()
    for counts in executor.map(partial(_count, plan.reader(fitting=True)), list(shards)):
        found.update(counts)
    return found


def _count(reader: ShardReader, shard: int) -> dict[int, int]:
    """Count the rows of each group of one shard. Runs on a worker."""
    return dict(Counter(reader.read(shard, [GROUP]).column(GROUP).to_pylist()))
