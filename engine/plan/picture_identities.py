"""Identities of the pictures that ``embed`` reads by paths, as part of the identities of a source's files.

A file that names pictures stays the same when these are replaced. Without their identities, a run would take
over the vectors, groups and weights of the old pictures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from connectors import Listing, Source
from connectors.base import CorruptError, SourceShard
from connectors.files import identity, local_folder
from engine.core.errors import InputError
from engine.core.output_layout import output_of
from engine.plan.sources import READ_SUFFIX
from engine.recipe.recipe import Recipe
from engine.storage.identity_cache import IdentityCache
from operators.base import Operator
from operators.embed.adaptor import Embed

SUFFIX = f"{READ_SUFFIX}pictures:"
"""Begins the part of an identity that depends on the pictures."""
LOOKED_AT = 100
"""Paths of a column's beginning that are looked for, where an encoder does not say whether it takes texts or
images."""


def with_picture_identities(
    recipe: Recipe, chain: Sequence[Operator[Any]], source: Source, listing: Listing
) -> Listing:
    """Return the listing with the content of the pictures that its files name in their identities.

    A listing whose files name none is returned as it is. Raises InputError where pictures are named by paths
    and the source is no local file, and ConnectorError.
    """
    embed = next((operator for operator in chain if isinstance(operator, Embed)), None)
    if embed is None or not embed.may_read_paths(listing.schema):
        return listing
    column = embed.column
    if embed.takes_texts is None and not _names_pictures(source, listing, column):
        return listing
    named: dict[str, list[Path | None]] = {}
    for shard in listing.shards:
        named.setdefault(shard.path, []).extend(_pictures(source, listing, shard, column))
    cache = IdentityCache(output_of(recipe.output.path) / "identities.json", identity)
    known = cache.identities(dict.fromkeys(str(p) for held in named.values() for p in held if p is not None))
    identities = dict(listing.identities)
    for path, pictures in named.items():
        found = hashlib.sha256()
        for picture in pictures:
            found.update((known[str(picture)] if picture is not None else "none").encode() + b"\n")
        identities[path] += SUFFIX + found.hexdigest()
    return replace(listing, identities=identities)


def _names_pictures(source: Source, listing: Listing, column: str) -> bool:
    """Return whether one of a column's first values is the path of a file."""
    first = listing.shards[0]
    if local_folder(first.path) is None:
        return False
    found = _pictures(source, listing, first, column)
    return any(picture is not None for _, picture in zip(range(LOOKED_AT), found, strict=False))


def _pictures(source: Source, listing: Listing, shard: SourceShard, column: str) -> Iterator[Path | None]:
    """Yield the file that each row of a shard names; None for a row without one that may be read."""
    folder = local_folder(shard.path)
    if folder is None:
        raise InputError(
            f"operators.embed.column: {column!r} is text, which names images by their paths, and these are "
            f"read from local folders alone, not beside {shard.path}. Store the bytes of the images in the "
            f"column, or copy source and images to a local folder."
        )
    try:
        values = source.read(shard, [column], listing.schema)[column]
    except CorruptError:
        if not source.skip_corrupt:
            raise
        return
    below = folder.resolve()
    for value in values.cast(pa.string()).to_pylist():
        yield None if value is None else _picture(below, value)


def _picture(folder: Path, name: str) -> Path | None:
    """Return the file of that name in the folder, with all links followed."""
    try:
        found = (folder / name).resolve()
        return found if found.is_relative_to(folder) and found.is_file() else None
    except (OSError, ValueError):  # a name that no file can have
        return None
