"""Rows that two versions have in common: rows at the same position in files with the same bytes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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
    by_path: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for part, shard in enumerate(source["shards"]):
        by_path[shard["path"]].append((int(shard.get("range", (0, 0))[0]), int(shard["rows"]), part))
    copies: Counter[str] = Counter()
    found: dict[Key, tuple[str, list[Segment]]] = {}
    for path in sorted(by_path):
        identity, first, segments = str(source["files"].get(path)), 0, []
        for _, rows, part in sorted(by_path[path]):
            segments.append(Segment(first, rows, part))
            first += rows
        found[identity, copies[identity]] = (path, segments)
        copies[identity] += 1
    return found


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
