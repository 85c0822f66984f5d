"""Which shards of a listing a published version has already, and in what order all of them go."""

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
    """A listing beside a version's shards."""

    order: tuple[int, ...]
    """Places in the listing: first the shards that the version has, as they stand there, then new ones."""
    old: tuple[int, ...]
    """The version's shard for each of the first ones."""
    gone: int
    """Shards of the version that are no longer there."""
    changed: tuple[str, ...]
    """Files that the version has with other bytes."""

    @property
    def new(self) -> int:
        """Shards that the version has not."""
        return len(self.order) - len(self.old)


def match(listing: Listing, manifest: Mapping[str, Any]) -> Matching:
    """Compare by identity and range of bytes: where a file lies, and what it is called, plays no part."""
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
