"""Rows of two versions with the same position in files with the same bytes, and what a version holds of rows.

:mod:`engine.runs.row_pairs` matches all other rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from engine.training.data.version import Version
from operators.base import DUPLICATE_OF, GROUP, IS_OUTLIER, ROW_ID, SPLIT, WEIGHT

VALUES = {
    ROW_ID: pa.int64(),
    GROUP: pa.int32(),
    SPLIT: pa.string(),
    IS_OUTLIER: pa.bool_(),
    WEIGHT: pa.float32(),
    DUPLICATE_OF: pa.int64(),
}
"""Published columns in which versions are compared, and their types. ``duplicate_of`` is null in all rows of
a version that does not have it."""
Key = tuple[str, int]
"""Identity of a file, and its number among the files with this identity."""


@dataclass(frozen=True)
class Segment:
    """Rows ``first`` to ``first + rows`` of a file, which are all rows of a part."""

    first: int
    rows: int
    part: int


@dataclass(frozen=True)
class CommonRows:
    """A run of common rows: it starts at row ``starts`` of each part, and at row ``row`` of the file."""

    parts: tuple[int, int]
    starts: tuple[int, int]
    rows: int
    path: str
    row: int


def match_rows(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[CommonRows]:
    """Return the common rows of two manifests, in the order of the parts. Their shards may differ."""
    then, now = _segments(before), _segments(after)
    found = [rows for key in then.keys() & now.keys() for rows in _overlaps(then[key][1], *now[key])]
    return sorted(found, key=lambda rows: (rows.parts, rows.starts))


def _segments(manifest: Mapping[str, Any]) -> dict[Key, tuple[str, list[Segment]]]:
    source = manifest["source"]
    by_path: dict[str, list[Segment]] = defaultdict(list)
    for part, (path, first) in enumerate(part_places(manifest)):
        by_path[path].append(Segment(first, int(source["shards"][part]["rows"]), part))
    copies: Counter[str] = Counter()
    found: dict[Key, tuple[str, list[Segment]]] = {}
    for path in sorted(by_path):
        identity = str(source["files"].get(path))
        found[identity, copies[identity]] = (path, sorted(by_path[path], key=lambda segment: segment.first))
        copies[identity] += 1
    return found


def part_places(manifest: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return the file of each part, and the row of the file (from 0) with which the part begins."""
    shards = manifest["source"]["shards"]
    order = sorted(
        range(len(shards)), key=lambda i: (shards[i]["path"], int(shards[i].get("range", (0, 0))[0]))
    )
    firsts, n_before = dict[int, int](), Counter[str]()
    for index in order:
        path = shards[index]["path"]
        firsts[index] = n_before[path]
        n_before[path] += int(shards[index]["rows"])
    return [(shard["path"], firsts[index]) for index, shard in enumerate(shards)]


class PartReader:
    """Reads the published values of a version; one part at a time is in memory."""

    def __init__(self, version: Version) -> None:
        self._reader, self._prefix = version.reader(), version.prefix
        published = {str(one["name"]) for one in version.manifest.get("outputs", ())}
        optional = self._prefix + DUPLICATE_OF
        self._names = [name for name in VALUES if name != DUPLICATE_OF or optional in published]
        self._part, self._table = -1, pa.table({})

    def rows(self, part: int, start: int, rows: int) -> pa.Table:
        """Return the columns of ``VALUES`` for ``rows`` rows of a part, from row ``start`` of it."""
        if part != self._part:
            found = self._reader.read_source(part, [self._prefix + name for name in self._names])
            columns = dict(zip(self._names, found.columns, strict=True))
            absent = (pa.nulls(found.num_rows, kind) for kind in VALUES.values())
            filled = {name: columns.get(name, null) for name, null in zip(VALUES, absent, strict=True)}
            self._part, self._table = part, pa.table(filled).cast(pa.schema([*VALUES.items()]))
        return self._table.slice(start, rows)

    def source(self, part: int, names: Sequence[str]) -> pa.Table:
        """Return source columns of all rows of a part."""
        return self._reader.read_source(part, names)


def _overlaps(then: list[Segment], path: str, now: list[Segment]) -> Iterator[CommonRows]:
    """Yield the rows that segments of both sides cover. Both lists are in the order of the file."""
    i = j = 0
    while i < len(then) and j < len(now):
        a, b = then[i], now[j]
        first, last = max(a.first, b.first), min(a.first + a.rows, b.first + b.rows)
        if first < last:
            yield CommonRows((a.part, b.part), (first - a.first, first - b.first), last - first, path, first)
        if a.first + a.rows <= b.first + b.rows:
            i += 1
        else:
            j += 1
