"""The drift of the new rows against those that the operators have learnt from.

The reference is the version at which the operators were last fitted, not everything that has come since: rows
that were only placed would otherwise become part of the reference, and a slow drift would never be seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from connectors.storage import Place
from engine.core.output_layout import version_folder
from engine.plan.decisions import COMPARED
from engine.plan.model import Plan
from engine.plan.shard_matching import match_shards
from engine.storage.manifest import is_published, read_manifest
from engine.storage.reader import StoreReader
from operators.arrays import Float32, Float64
from operators.base import FEATURES, GRADIENT, GROUP, ROW_ID, VALID, Executor, ShardReader
from operators.columns import vectors_to_numpy
from operators.spread import mean_and_scale
from operators.threads import limit_threads

if TYPE_CHECKING:
    from operators.metrics.drift import Shift

DIGITS = 6
"""Decimals of a figure in the manifest; further ones depend on the machine."""
NAMED = 5
"""Maximum number of columns that a figure names."""
Sides = tuple[Sequence[int], Sequence[int]]


def measure(plan: Plan, executor: Executor) -> list[dict[str, Any]]:
    """Measure every figure that the recipe has a threshold for and whose column is computed.

    Only counts and samples of rows (``incremental.drift.sample`` of each side) come back to this process.

    Returns
    -------
    JSON-able figures: ``name``, ``value``, ``chance`` (the 0.95 quantile without drift), ``excess``,
    ``threshold``, ``p``, ``level`` (the p-value up to which the figure counts), ``over``, ``against`` (the
    reference version), and the source ``columns`` that moved, with the ``features`` of `encode` in words.
    Empty without new rows.

    """
    found, spec = plan.increment, plan.recipe.incremental.drift
    if found is None:
        return []
    against, sides = compared_shards(plan)
    placed = {field.name for planned in plan.operators if planned.kept for field in planned.operator.adds}
    shifts: dict[str, tuple[Shift, float]] = {}
    with limit_threads(1):
        if FEATURES in placed and (spec.columns is not None or spec.features is not None):
            shifts |= _feature_shifts(plan, executor, sides)
        if GRADIENT in placed and spec.gradients is not None:
            shifts |= _gradient_shift(plan, executor, sides)
    if GROUP in placed:
        shifts |= _group_shifts(plan, executor, sides)
    column, levels = _level_shift(plan)
    if levels is not None and spec.levels is not None:
        shifts["levels"] = (levels, spec.levels)
    level = spec.level(len(shifts))
    figures = [
        _figure(name, shift, threshold, level, against, _feature_names(plan))
        for name, (shift, threshold) in shifts.items()
    ]
    return [figure | ({"columns": [column]} if figure["name"] == "levels" else {}) for figure in figures]


def compared_shards(plan: Plan) -> tuple[str, Sides]:
    """Return the reference version, its shards in the plan, and the shards that are new in this plan."""
    if plan.increment is None:
        raise ValueError("the plan has no base version")
    base = plan.increment.manifest
    columns = set(COMPARED)
    learners = {one.name for one in plan.operators if columns & {field.name for field in one.operator.adds}}
    name, manifest = fitted_version(plan.output, plan.increment.base, base, learners)
    matching = match_shards(plan.listing, manifest)
    known = sorted(matching.order[: len(matching.old)])
    if not known:
        name, known = plan.increment.base, list(range(len(plan.increment.matching.old)))
    return name, (known, range(len(plan.increment.matching.old), len(plan.shards)))


def fitted_version(output: Place, name: str, manifest: Any, learners: Set[str]) -> tuple[str, Any]:
    """Return the last version, from a base backwards, at which one of some operators was fitted on all rows.

    If that version was removed, the oldest one that is left is returned.
    """
    seen = {name}  # a forged base could lead back to itself
    while (record := manifest.get("incremental")) and _only_placed(record, learners):
        earlier = str(record["base"])
        if earlier in seen or not is_published(output, earlier):
            break
        seen.add(earlier)
        name, manifest = earlier, read_manifest(version_folder(output, earlier))
    return name, manifest


def _only_placed(record: Mapping[str, Any], learners: Set[str]) -> bool:
    """Return whether a version kept the states of these operators."""
    return bool(record["outcome"] == "predict") and learners.isdisjoint(record.get("fitted", ()))


def _feature_shifts(plan: Plan, executor: Executor, sides: Sides) -> dict[str, tuple[Shift, float]]:
    from operators.metrics.drift import column_shift, mmd_shift

    spec, found = plan.recipe.incremental.drift, {}
    old, new = (_sample(plan, executor, FEATURES, side, spec.sample) for side in sides)
    if not len(old) or not len(new):
        return {}
    if spec.columns is not None:
        found["columns"] = (column_shift(old, new), spec.columns)
    if spec.features is not None:
        mask = np.arange(len(old) + len(new)) >= len(old)
        shift = mmd_shift(_standardised(old, new), mask, random_state=plan.recipe.seed)
        found["features"] = (shift, spec.features)
    return found


def _gradient_shift(plan: Plan, executor: Executor, sides: Sides) -> dict[str, tuple[Shift, float]]:
    from operators.metrics.drift import mmd_shift

    spec = plan.recipe.incremental.drift
    old, new = (_sample(plan, executor, GRADIENT, side, spec.sample) for side in sides)
    if not len(old) or not len(new) or spec.gradients is None:
        return {}
    mask = np.arange(len(old) + len(new)) >= len(old)
    shift = mmd_shift(np.concatenate([old, new]), mask, random_state=plan.recipe.seed)
    return {"gradients": (shift, spec.gradients)}


def _group_shifts(plan: Plan, executor: Executor, sides: Sides) -> dict[str, tuple[Shift, float]]:
    from operators.metrics.drift import rise, share_shift

    spec, found = plan.recipe.incremental.drift, {}
    before, after = (_groups(plan, executor, side) for side in sides)
    if not before.total() or not after.total():
        return {}
    if spec.shares is not None:
        found["shares"] = (share_shift(before, after, random_state=plan.recipe.seed), spec.shares)
    if spec.noise is not None:
        pairs = [(side[-1], side.total()) for side in (before, after)]
        found["noise"] = (rise(*pairs), spec.noise)
    return found


def _figure(
    name: str, shift: Shift, threshold: float, level: float, against: str, features: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    named = max(shift.columns, default=0) < len(features)  # not a vector column
    moved = [features[place] if named else (f"x[{place}]",) * 2 for place in shift.columns]
    columns = list(dict.fromkeys(column for column, _ in moved))[:NAMED]
    words = [feature for column, feature in moved if column in columns and feature != column][:NAMED]
    return {
        "name": name,
        "value": round(shift.value, DIGITS),
        "chance": round(shift.noise, DIGITS),
        "excess": round(shift.excess, DIGITS),
        "threshold": threshold,
        "p": float(f"{shift.p:.3g}"),
        "level": float(f"{level:.3g}"),
        "over": shift.beyond(threshold, level),
        "against": against,
        **({"columns": columns} if columns else {}),
        **({"features": words} if words else {}),
    }


def _kept_encoding(plan: Plan) -> Path | None:
    """Return the state of `encode` if this plan keeps it."""
    kept = [planned.fingerprint for planned in plan.operators if planned.name == "encode" and planned.kept]
    return plan.store.state(kept[0]) if kept else None


def _feature_names(plan: Plan) -> Sequence[tuple[str, str]]:
    """Return the source column of each feature, and the feature in words, which may be the column itself."""
    from operators.encoded_features import provenance

    state = _kept_encoding(plan)
    if state is None:
        return [(name, name) for name in plan.features]
    return [(output.source, output.label) for output in provenance(state)]


def _level_shift(plan: Plan) -> tuple[str, Shift | None]:
    """Return the column of `encode` whose categories or gaps have moved most since the fit, and how far."""
    from operators.encode.level_counts import read_counts
    from operators.metrics.drift import share_shift

    state = _kept_encoding(plan)
    if state is None:
        return "", None
    seen, new = read_counts(state, "seen"), read_counts(state, "new")
    shifts = {
        name: share_shift(seen[name].rows_by_level(), counts.rows_by_level(), random_state=plan.recipe.seed)
        for name, counts in new.items()
        if counts.rows and name in seen and seen[name].rows
    }
    worst = max(shifts, key=lambda name: (shifts[name].excess, name), default="")
    return worst, shifts.get(worst)


def _standardised(old: Float32, new: Float32) -> Float64:
    """Standardise by mean and standard deviation of the old rows; columns constant there are only centred."""
    mean, scale = mean_and_scale(old)
    return np.asarray((np.concatenate([old, new]).astype(np.float64) - mean) / scale)


def _sample(plan: Plan, executor: Executor, column: str, shards: Sequence[int], size: int) -> Float32:
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
    judged = any(f.name == VALID for planned in plan.operators if planned.kept for f in planned.operator.adds)
    task = partial(_rows, plan.reader(fitting=True), column, judged)
    parts = [part for part in executor.map(task, work) if len(part)]
    return np.concatenate(parts) if parts else np.empty((0, 0), np.float32)


def _rows(reader: StoreReader, column: str, judged: bool, work: tuple[int, list[int]]) -> Float32:
    """Return the values of the drawn rows of one shard. Runs on a worker.

    ``judged``: whether `ingest` is kept and has said which rows are valid. If it is fitted again, it has not
    done so yet, and the rows that have a value are taken.
    """
    table = reader.read(work[0], [column]) if judged else reader.read_all(work[0], [column]).drop_null()
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
