"""Comparison of a listing with the shards of a published version, by content and byte range."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from connectors.base import Listing
from engine.core.redaction import redact

Key = tuple[str, int, int, int]


@dataclass(frozen=True)
class Matching:
    """Shards of a listing compared with those of a version: the same, new, and missing ones."""

    order: tuple[int, ...]
    """Indices into the listing: first the shards that the version has, in its order, then the new ones."""
    old: tuple[int, ...]
    """For each shard at the beginning of ``order``, the index of the same shard in the version."""
    gone: int
    """The number of the version's shards that the listing lacks."""
    changed: tuple[str, ...]
    """Files that the version has with another content."""

    @property
    def new(self) -> int:
        """The number of shards that the version lacks."""
        return len(self.order) - len(self.old)


def match_shards(listing: Listing, manifest: Mapping[str, Any]) -> Matching:
    """Compare a listing with a manifest by content identity and byte range; names of files do not matter."""
    source = manifest["source"]
    places: dict[Key, deque[int]] = defaultdict(deque)
    for index, shard in enumerate(listing.shards):
        identity = listing.identities[shard.path]
        places[(identity, shard.start, shard.stop, shard.n_rows)].append(index)
    old: list[int] = []
    first: list[int] = []
    for index, known in enumerate(source["shards"]):
        start, stop = known.get("range", (0, 0))
        key = (str(source["files"].get(known["path"])), int(start), int(stop), int(known["rows"]))
        if places[key]:
            first.append(places[key].popleft())
            old.append(index)
    taken = set(first)
    rest = [index for index in range(len(listing.shards)) if index not in taken]
    gone = len(source["shards"]) - len(old)
    return Matching((*first, *rest), tuple(old), gone, _changed(listing, source["files"]))


def _changed(listing: Listing, files: Mapping[str, str]) -> tuple[str, ...]:
    known = {path: files.get(redact(path)) for path in listing.identities}
    return tuple(
        sorted(p for p, found in listing.identities.items() if known[p] is not None and known[p] != found)
    )
