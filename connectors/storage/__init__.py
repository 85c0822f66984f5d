"""Storage of a run's output: a folder of a filesystem, or a prefix of an object store.

A place is a ``pathlib.Path`` or an :class:`ObjectPath`, which has the same few methods. What differs between
the two has a function here, such as :func:`write_whole` and :func:`read_columns`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from connectors.base import MAX_SHARD, ConnectorError
from connectors.parquet_footer import open_parquet
from connectors.pickled_types import check_types
from connectors.storage.beneath import (
    folder_beneath,
    link_beneath,
    new_file_beneath,
    old_file_beneath,
    remove_tree_beneath,
    unlink_beneath,
)
from connectors.storage.clients import split_uri
from connectors.storage.object_path import ObjectPath, Tag
from connectors.written_out import doubtful_sizes, leaves_of

__all__ = [
    "MAX_REQUESTS",
    "ObjectPath",
    "Place",
    "Tag",
    "exist_many",
    "find_column",
    "link",
    "make_folder",
    "place_of",
    "read_columns",
    "read_many",
    "read_part_schema",
    "read_whole",
    "remove_file",
    "remove_tree",
    "write_whole",
]

Place = Path | ObjectPath
MAX_REQUESTS = 16
"""Most requests at the same time for several small objects."""
MAX_SMALL_BYTES = 256 * 2**20
"""Bytes of a file that is read whole, such as a manifest."""
MIN_ROWS_FOR_THREADS = 50_000
"""Fewest rows of a part whose columns are decoded by several threads."""


def place_of(text: str | Place) -> Place:
    """Return the place that a text names: an absolute local path, or a URI of an object store.

    Known URIs are ``s3://``, ``gs://``, ``az://`` and ``abfs(s)://``. Nothing is opened. Raises
    ConnectorError for any other URI.
    """
    if isinstance(text, ObjectPath):
        return text
    if "://" not in str(text):
        return Path(os.path.expanduser(text)).absolute()
    root, key = split_uri(str(text))
    return ObjectPath(root, key) if root else Path(key).absolute()


def write_whole(place: Place, data: bytes, *, durable: bool = True, root: Place | None = None) -> None:
    """Write so that a reader sees the old bytes or all of the new ones, never a part.

    A file is written under a temporary name in its folder, flushed to disk and renamed; an object is one PUT.

    Parameters
    ----------
    durable : flush it to disk; a crash of the machine may lose a file that is not.
    root : a folder above it, beneath which no link is followed; default: the file's own folder.

    Raises
    ------
    OSError
        It cannot be written.
    ConnectorError
        A folder beneath ``root`` is a link.
    """
    if isinstance(place, ObjectPath):
        place.write_bytes(data)
        return
    within = root if isinstance(root, Path) else place.parent
    with new_file_beneath(within, place, durable=durable) as handle:
        handle.write(data)


def link(source: Place, target: Place, *, root: Place) -> None:
    """Link ``target`` to the file ``source``, or copy it where links are unsupported; in a store, copy it.

    No symbolic link beneath ``root``, a folder above both, is followed: one raises ConnectorError.
    """
    if isinstance(source, ObjectPath) and isinstance(target, ObjectPath) and source.root == target.root:
        source.copy_to(target)
    elif isinstance(source, ObjectPath) or isinstance(target, ObjectPath):
        write_whole(target, source.read_bytes())
    else:
        link_beneath(root if isinstance(root, Path) else target.parent, source, target)


def read_whole(place: Place, *, root: Place, max_bytes: int | None = None) -> bytes:
    """Return the content of a file or an object. No link beneath ``root``, a folder above it, is followed.

    Raises ConnectorError for a link, for a pipe or the like, and for more than ``max_bytes``; and OSError.
    """
    if isinstance(place, ObjectPath):
        return place.read_bytes(max_bytes)
    if not isinstance(root, Path):
        return place.read_bytes()
    with old_file_beneath(root, place) as handle:
        found = handle.read() if max_bytes is None else handle.read(max_bytes + 1)
    if max_bytes is not None and len(found) > max_bytes:
        raise ConnectorError(f"{place} is larger than {max_bytes:,} bytes. Remove it.")
    return found


def make_folder(place: Place, *, root: Place | None = None) -> None:
    """Make a folder and those above it; an object store has none and needs none.

    No link beneath ``root``, a folder above it, is followed: one raises ConnectorError.
    """
    if isinstance(place, Path):
        with folder_beneath(root if isinstance(root, Path) else place, place, create=True):
            return


def remove_tree(place: Place, *, root: Place | None = None) -> None:
    """Remove a folder with all that is in it, or every object below a prefix; silent where there is none.

    No link beneath ``root``, a folder above it, is followed: one raises ConnectorError.
    """
    if isinstance(place, Path):
        remove_tree_beneath(root if isinstance(root, Path) else place.parent, place)
    else:
        place.remove_below()


def remove_file(place: Place, *, root: Place) -> None:
    """Remove a file or an object; silent where there is none. No link beneath ``root`` is followed.

    Raises ConnectorError where a folder beneath ``root`` is a link, and OSError.
    """
    if isinstance(place, Path) and isinstance(root, Path):
        unlink_beneath(root, place)
    else:
        place.unlink(missing_ok=True)


def read_many(places: Sequence[Place]) -> list[bytes | None]:
    """Return the content of several small files, objects at the same time; None for one that is not there.

    Raises ConnectorError for a link, a pipe, and for more than ``MAX_SMALL_BYTES`` bytes; and OSError.
    """
    if not any(isinstance(place, ObjectPath) for place in places):
        return [_read(place) for place in places]
    with ThreadPoolExecutor(MAX_REQUESTS) as pool:
        return list(pool.map(_read, places))


def exist_many(places: Sequence[Place]) -> list[bool]:
    """Return whether each of several places is there; objects are asked for at the same time."""
    if not any(isinstance(place, ObjectPath) for place in places):
        return [place.exists() for place in places]
    with ThreadPoolExecutor(MAX_REQUESTS) as pool:
        return list(pool.map(lambda place: place.exists(), places))


def read_columns(place: Place, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the columns of one Parquet file, all by default; of an object only their bytes are fetched."""
    with _opened(place) as file:
        check_part(place, file)
        names = file.schema_arrow.names if columns is None else list(columns)
        absent = [name for name in names if name not in file.schema_arrow.names]
        if absent:
            raise ConnectorError(
                f"{place}: has no column {absent[0]!r}. It was not written by a run of this recipe: remove "
                f"its version, and publish again."
            )
        return _bounded(place, file, list(dict.fromkeys(names))).select(names)


def read_part_schema(place: Place) -> pa.Schema:
    """Return the schema of one part. Raises ConnectorError for what is not a Parquet file of a run."""
    with _opened(place) as file:
        check_part(place, file)
        return file.schema_arrow


def check_part(place: Place, file: pq.ParquetFile) -> None:
    """Raise ConnectorError for a part that holds pickled objects, or states to be larger than a shard may be.

    Parts of an output are untrusted as sources are: others may write to it.
    """
    check_types(str(place), file.schema_arrow)
    groups = range(file.metadata.num_row_groups)
    stated = sum(file.metadata.row_group(group).total_byte_size for group in groups)
    if max(stated, file.metadata.num_rows) > MAX_SHARD:
        raise ConnectorError(
            f"{place}: its footer states {stated} bytes in {file.metadata.num_rows} rows, and {MAX_SHARD} "
            f"are the limit. It was not written by a run: remove its version, and publish again."
        )


def find_column(place: Place, name: str) -> pa.ChunkedArray | None:
    """Return one column of a Parquet file; None where there is no such file or it has no such column."""
    try:
        with _opened(place) as file:
            check_part(place, file)
            present = name in file.schema_arrow.names
            return _bounded(place, file, [name]).column(name) if present else None
    except FileNotFoundError:
        return None


def _bounded(place: Place, file: pq.ParquetFile, names: list[str]) -> pa.Table:
    """Read columns of a part, some rows at a time where texts may take more memory than a shard may.

    Raises ConnectorError where they do.
    """
    leaves = leaves_of(file.metadata, range(file.metadata.num_row_groups), names)
    largest = max(doubtful_sizes(leaves, MAX_SHARD).values(), default=0)
    if not largest:
        # On a small part starting threads takes longer than they save.
        threads = file.metadata.num_rows > MIN_ROWS_FOR_THREADS
        return file.read(names, use_threads=threads)
    held, pieces = 0, []
    for piece in file.iter_batches(max(1, MAX_SHARD // largest), columns=names):
        pieces.append(piece)
        held += piece.nbytes
        if held > MAX_SHARD:
            raise ConnectorError(
                f"{place}: its rows take {held} bytes or more in memory, and {MAX_SHARD} are the limit. It "
                f"was not written by a run: remove its version, and publish again."
            )
    return pa.Table.from_batches(pieces, pa.schema([file.schema_arrow.field(name) for name in names]))


@contextmanager
def _opened(place: Place) -> Iterator[pq.ParquetFile]:
    """Open a part. Raises ConnectorError for what is not a Parquet file of a run, also while it is read."""
    try:
        with _parquet(place) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the operating system or the store, and not of Parquet's reader
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise ConnectorError(
            f"{place} is damaged or forged: {reason}. Remove it, and run the recipe again."
        ) from error


@contextmanager
def _parquet(place: Place) -> Iterator[pq.ParquetFile]:
    if isinstance(place, Path):
        if place.exists() and not place.is_file():  # a pipe would be waited for
            raise ConnectorError(f"{place} is not a regular file. Remove it, and run the recipe again.")
        with open_parquet(place, place, memory_map=True) as file:
            yield file
    else:
        # Buffered ahead: neighbouring columns are fetched by one request.
        with place.open() as handle, open_parquet(handle, place, pre_buffer=True) as file:
            yield file


def _read(place: Place) -> bytes | None:
    try:
        return read_whole(place, root=place.parent, max_bytes=MAX_SMALL_BYTES)
    except FileNotFoundError:
        return None
