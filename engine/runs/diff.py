"""Differences between two versions: new, removed and changed groups, and changed rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.runs.row_pairs import FILE, KEY, ROW, RowBatch, RowPairs
from engine.training.data.version import Version
from operators.arrays import NOISE
from operators.base import DUPLICATE_OF, GROUP, IS_OUTLIER, ROW_ID, SPLIT, WEIGHT

EXAMPLES = 5
Pair = tuple[Any, Any]
Column = npt.NDArray[Any]


@dataclass
class ChangeCounts:
    """Numbers of common rows by their values before and after."""

    rows: int = 0
    groups: Counter[tuple[int, int]] = field(default_factory=Counter)
    splits: Counter[tuple[str, str]] = field(default_factory=Counter)
    outliers: Counter[tuple[bool, bool]] = field(default_factory=Counter)
    weights: int = 0
    """Rows whose weight has changed by more than the tolerance."""
    largest: float = 0.0
    rewritten: int = 0
    """Rows whose source columns have changed, apart from the key that they were matched by."""
    duplicates: int = 0
    """Rows that nearly duplicate an older row in one version alone."""
    examples: dict[tuple[str, Any], list[dict[str, Any]]] = field(default_factory=dict)
    """Up to ``EXAMPLES`` rows of each kind of change."""


def diff(
    before: Version, after: Version, *, tolerance: float = 0.01, key: Sequence[str] = ()
) -> dict[str, Any]:
    """Compare two versions of a dataset; see :func:`compare`. ``key`` are source columns that name a row."""
    with RowPairs(before, after, key) as pairs:
        return compare(pairs, tolerance=tolerance)


def compare(pairs: RowPairs, *, tolerance: float = 0.01) -> dict[str, Any]:
    """Compare the matched rows of two versions.

    Two groups are the same if each has more rows in common with the other than with any other group. Memory
    is bounded as :class:`RowPairs` says.

    Parameters
    ----------
    tolerance
        Smallest absolute difference above which a weight counts as changed.

    Returns
    -------
    JSON-able: ``rows`` (before, after, common, gone, new), ``matched`` (by what rows were matched),
    ``groups``, ``changed`` (rows in common with another group, weight, split or verdict on outliers, that are
    near duplicates in one version alone, or with other source columns than the key, with examples),
    ``largest_weight_change``.
    """
    counts = ChangeCounts()
    for batch in pairs.batches():
        _add(counts, batch, tolerance)
    before, after = pairs.before, pairs.after
    groups = match_groups(counts.groups, *(_sizes(version) for version in (before, after)))
    same = {g["before"]: g["after"] for g in groups if g["before"] is not None} | {NOISE: NOISE}
    moved = {pair: n for pair, n in counts.groups.items() if same.get(pair[0]) != pair[1]}
    n_before, n_after = int(before.manifest["rows"]), int(after.manifest["rows"])
    return {
        "before": before.name,
        "after": after.name,
        "rows": {
            "before": n_before,
            "after": n_after,
            "common": counts.rows,
            "gone": n_before - counts.rows,
            "new": n_after - counts.rows,
        },
        "matched": {
            "key": list(pairs.key),
            "content_columns": [] if pairs.key else [column.name for column in pairs.content],
            **asdict(pairs.counts),
        },
        "groups": groups,
        "changed": {
            "group": _changes(counts, "group", moved),
            "split": _changes(counts, "split", _unequal(counts.splits)),
            "outlier": _changes(counts, "outlier", _unequal(counts.outliers)),
            "weight": {"rows": counts.weights, "examples": counts.examples.get(("weight", None), [])},
            "duplicate": {
                "rows": counts.duplicates,
                "examples": counts.examples.get(("duplicate", None), []),
            },
            "source": {"rows": counts.rewritten, "examples": counts.examples.get(("source", None), [])},
        },
        "largest_weight_change": counts.largest,
        "tolerance": tolerance,
    }


def match_groups(
    common_rows: Mapping[tuple[int, int], int], before: Mapping[int, int], after: Mapping[int, int]
) -> list[dict[str, Any]]:
    """Return one entry for each group of either version: matched with its counterpart, new ("born") or gone.

    Two groups correspond if each has most rows in common with the other. Noise is not a group.
    """
    best: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for (a, b), n in sorted(common_rows.items(), key=lambda item: (-item[1], item[0])):
        if n and NOISE not in (a, b):
            best[0].setdefault(a, b)
            best[1].setdefault(b, a)
    found = []
    for group in sorted(set(before) - {NOISE}):
        other = best[0].get(group)
        stays = other is not None and best[1].get(other) == group
        found.append(_pair(common_rows, before, after, group, other if stays else None, other))
    matched = {entry["after"] for entry in found}
    new = sorted(set(after) - {NOISE} - matched)
    return found + [_pair(common_rows, before, after, None, group, best[1].get(group)) for group in new]


def _pair(
    common_rows: Mapping[tuple[int, int], int],
    before: Mapping[int, int],
    after: Mapping[int, int],
    then: int | None,
    now: int | None,
    nearest: int | None,
) -> dict[str, Any]:
    """Return one entry. ``nearest``, the group with most common rows, is given only without a counterpart."""
    n_then, n_now = (0 if g is None else side.get(g, 0) for g, side in ((then, before), (now, after)))
    if then is None:
        change = "born"
    elif now is None:
        change = "gone"
    else:
        change = "grown" if n_now > n_then else "shrunk" if n_now < n_then else "same size"
    shared = 0 if then is None or now is None else common_rows.get((then, now), 0)
    entry = {"before": then, "after": now, "change": change, "rows_before": n_then, "rows_after": n_now}
    return entry | {"common": shared, "nearest": nearest if None in (then, now) else None}


def _add(counts: ChangeCounts, batch: RowBatch, tolerance: float) -> None:
    then, now = (
        {name: table.column(name).to_numpy() for name in table.column_names}
        for table in (batch.then, batch.now)
    )
    counts.rows += batch.then.num_rows
    for kind, counter, name in (
        ("group", counts.groups, GROUP),
        ("split", counts.splits, SPLIT),
        ("outlier", counts.outliers, IS_OUTLIER),
    ):
        pairs = list(zip(then[name].tolist(), now[name].tolist(), strict=True))
        counter.update(pairs)
        last = len(pairs) - 1
        first_rows = {pair: last - back for back, pair in enumerate(reversed(pairs))}
        for pair, row in first_rows.items():
            if pair[0] != pair[1] or kind == "group":
                _example(counts, (kind, pair), row, then, now, name)
    change = np.abs(now[WEIGHT].astype(np.float64) - then[WEIGHT])
    for row in np.flatnonzero(change > tolerance)[:EXAMPLES].tolist():
        _example(counts, ("weight", None), row, then, now, WEIGHT)
    for row in np.flatnonzero(batch.other_duplicate)[:EXAMPLES].tolist():
        _example(counts, ("duplicate", None), row, then, now, DUPLICATE_OF)
    counts.duplicates += int(np.count_nonzero(batch.other_duplicate))
    for row in np.flatnonzero(batch.rewritten)[:EXAMPLES].tolist():
        _example(counts, ("source", None), row, then, now, None)
    counts.weights += int(np.count_nonzero(change > tolerance))
    counts.rewritten += int(np.count_nonzero(batch.rewritten))
    counts.largest = max(counts.largest, float(change.max(initial=0.0)))


def _example(
    counts: ChangeCounts,
    key: tuple[str, Any],
    row: int,
    then: Mapping[str, Column],
    now: Mapping[str, Column],
    name: str | None,
) -> None:
    """Keep an example; without a ``name`` it has no values, as all source columns are compared."""
    known = counts.examples.setdefault(key, [])
    if len(known) >= EXAMPLES:
        return
    ids = {"row_id_before": int(then[ROW_ID][row]), "row_id_after": int(now[ROW_ID][row])}
    before, after = (_value(side[name][row]) if name else None for side in (then, now))
    values = {"before": before, "after": after}
    place = {"file": now[FILE][row], "row": int(now[ROW][row]), "key": now[KEY][row]}
    known.append({**place, **ids, **values})


def _value(value: Any) -> Any:
    """Return a number or text of a column; None for the row id that a row without an older one lacks."""
    plain = value.item() if hasattr(value, "item") else value
    return None if isinstance(plain, float) and math.isnan(plain) else plain


def _changes(counts: ChangeCounts, kind: str, moved: Mapping[Pair, int]) -> dict[str, Any]:
    """Return the number of changed rows, the most frequent changes, and examples of these."""
    ordered = sorted(moved.items(), key=lambda item: (-item[1], str(item[0])))
    examples = [example for pair, _ in ordered for example in counts.examples.get((kind, pair), ())]
    pairs = [{"before": a, "after": b, "rows": n} for (a, b), n in ordered]
    return {"rows": sum(moved.values()), "by_value": pairs, "examples": examples[:EXAMPLES]}


def _unequal(counts: Mapping[Any, int]) -> dict[Any, int]:
    return {pair: n for pair, n in counts.items() if pair[0] != pair[1]}


def _sizes(version: Version) -> dict[int, int]:
    return {int(group): int(n) for group, n in version.manifest["summary"]["groups"].items()}
