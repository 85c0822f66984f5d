"""Checks after each read of a shard that its file has not changed since it was listed.

A run reads every file several times: to learn from its rows, to compute their columns, and to publish them. A
file that is replaced in between would give a version that mixes two contents. Sources of files list their
shards by :func:`listing_of`, which attaches a :class:`connectors.base.FileStamp`, and decorate ``read`` with
:func:`of_unchanged_file`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache, wraps
from typing import TypeVar

import pyarrow as pa

from connectors.base import ConnectorError, FileSource, FileStamp, Listing, SourceShard, SourceSpec
from connectors.files import File, check_rows, identify, identity, resolve, stat_file
from connectors.schema import merged

SourceT = TypeVar("SourceT", bound=FileSource)
Read = Callable[[SourceT, SourceShard, Sequence[str], pa.Schema], pa.Table]
MAX_REMEMBERED = 2**10
"""Files of which a process remembers the content hash, by size and times."""


def listing_of(
    spec: SourceSpec,
    files: Iterable[File],
    schema: pa.Schema,
    found: Mapping[str, Sequence[SourceShard]],
    skipped: dict[str, str],
) -> Listing:
    """Return a listing whose shards have the stamps of their files.

    Parameters
    ----------
    files : the files as they were before anything was read from them, so that no later change is missed.
    found : path of each file to its shards.
    skipped : see :class:`connectors.base.Listing`.

    Raises
    ------
    ConnectorError
        A local file has changed since it was found.

    """
    identities = identify(spec, [*found])
    stamps = {
        file.name: FileStamp(file.size, file.mtime_ns, identities[file.name], file.changed_ns)
        for file in files
        if file.name in found
    }
    for path, stamp in stamps.items():
        if "://" not in path and not _is_same(stamp, file := stat_file(spec, path)):
            raise _changed(path, stamp, file)
    shards = tuple(replace(shard, stamp=stamps[path]) for path, held in found.items() for shard in held)
    return Listing(schema, shards, identities, skipped)


def merged_listing(
    spec: SourceSpec,
    files: Iterable[File],
    found: Mapping[str, tuple[pa.Schema, Sequence[SourceShard]]],
    skipped: dict[str, str],
) -> Listing:
    """Return the listing of files that each have a schema of their own; see :func:`listing_of`.

    Raises ConnectorError, also where no shard is left.
    """
    shards = {path: held for path, (_, held) in found.items()}
    check_rows(spec, [shard for held in shards.values() for shard in held], skipped)
    schema = merged({path: schema for path, (schema, _) in found.items()})
    return listing_of(spec, files, schema, shards, skipped)


def of_unchanged_file(read: Read[SourceT]) -> Read[SourceT]:
    """Make ``read`` of a source raise ConnectorError where the shard's file has changed since it was
    listed.
    """

    @wraps(read)
    def checked(source: SourceT, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        try:
            table = read(source, shard, columns, schema)
        except Exception:
            check_unchanged(source.spec, shard)  # a file that was replaced is not a corrupt one
            raise
        check_unchanged(source.spec, shard)
        return table

    return checked


def check_unchanged(spec: SourceSpec, shard: SourceShard) -> None:
    """Raise ConnectorError where a shard's file has changed since it was listed, or is gone.

    Objects of a store are compared by their identity, which has their etag. Local files are compared by size
    and times; where these differ, the identity decides, so that a file may be touched or copied over. A shard
    without a stamp is not checked.
    """
    stamp = shard.stamp
    if stamp is None:
        return
    if "://" in shard.path:
        if identity(shard.path) != stamp.identity:
            raise _changed(shard.path, stamp, stat_file(spec, shard.path))
        return
    file = stat_file(spec, shard.path)
    if not _is_same(stamp, file) and local_identity(spec, file) != stamp.identity:
        raise _changed(shard.path, stamp, file)


def _is_same(stamp: FileStamp, file: File) -> bool:
    """Return whether a local file has the size and times with which it was listed.

    The time of the inode tells a file that was replaced by one of the same size and modification time. Its
    number is not compared: on some network file systems each host has another.
    """
    now = file.size, file.mtime_ns, file.changed_ns
    return now == (stamp.size, stamp.mtime_ns, stamp.changed_ns)


def _changed(path: str, stamp: FileStamp, file: File) -> ConnectorError:
    return ConnectorError(
        f"{path} has changed since it was listed: it had {_shown(stamp.size, stamp.mtime_ns)}, and has "
        f"{_shown(file.size, file.mtime_ns)} now. Run again, which reads its new content; nothing may write "
        f"to the files of a source during a run."
    )


def local_identity(spec: SourceSpec, file: File) -> str:
    """Return the identity of a local file, whose content is read unless this process remembers it."""
    where = resolve(file.name, spec.root, spec.policy)[1]
    return _remembered_identity(where, file.size, file.mtime_ns, file.changed_ns)


@lru_cache(MAX_REMEMBERED)
def _remembered_identity(where: str, size: int, mtime_ns: int, changed_ns: int) -> str:
    """Return the identity of a local file; size and times tell it from a later file of the same name."""
    return identity(where)


def _shown(size: int | None, mtime_ns: int | None) -> str:
    count = "an unknown number of bytes" if size is None else f"{size:,} bytes"
    if mtime_ns is None:
        return count
    written = datetime.fromtimestamp(mtime_ns / 1e9, UTC)
    return f"{count} of {written.isoformat(sep=' ', timespec='milliseconds').removesuffix('+00:00')} UTC"
