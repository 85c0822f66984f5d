"""Checks of a Delta table's log before a library follows it: a log may be forged to open other files.

The library reads data files only when it is asked to, and their names are checked then. Deletion vectors and
the parts of a checkpoint it opens by itself, by absolute paths too. So the log is read here first, for these
two alone. The library reads each file of a log whole, so the sizes of files are checked before that. Source:
the Delta protocol, "Deletion Vector Descriptor Schema" and "V2 Checkpoint Table Feature".
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as fs

from connectors.base import ConnectorError
from connectors.files import resolve
from connectors.links import check_links
from connectors.parquet_footer import open_parquet
from connectors.policy import current_policy
from connectors.tables.delta_levels import check_levels
from connectors.tables.delta_vectors import ENCODED_UUID, Vector, bare_path, check_widths

LOG = "_delta_log"
VECTOR = {"storageType", "pathOrInlineDv"}
FOOTERS_AT_ONCE = 8
MAX_FILE_BYTES = 256 * 2**20
"""Bytes of a file of a log that is no Parquet file: a commit, or what names the last checkpoint."""
SPARE_ROWS, BYTES_PER_ROW = 10_000, 8
"""Rows that any checkpoint may have, and fewest bytes for each one beyond: the names of files alone, which
end in 16 random bytes, take more. A row takes a kilobyte of memory, however small the file is."""
_VERSION = re.compile(r"\d{20}")
_AMBIGUOUS = re.compile(r"[\x00-\x1f\\]")
"""Characters that readers of URLs leave out, or take for a slash."""


def check_log(uri: str, key: str = "source.path") -> None:
    """Raise ConnectorError for a log that is not to be opened.

    Of checkpoints, footers and statistics are read.

    That is a log that is larger than the policy allows for a source, a log with a file beyond
    ``MAX_FILE_BYTES``, or with a checkpoint of more rows than its size can hold, or with JSON of too many
    levels, and a local log with a link that leads out of the table, or with a pipe or device.
    """
    filesystem, where = resolve(uri)
    _check_log_links(uri, where)
    total, files = 0, _files(filesystem, where)
    for info in files:
        size = info.size or 0
        total += size
        if size > MAX_FILE_BYTES and not info.path.endswith(".parquet"):
            raise ConnectorError(
                f"{key}: {info.path}, a file of the table's log, has {size:,} bytes, and {MAX_FILE_BYTES:,} "
                f"are read: it would be read whole. If the table is yours, make a checkpoint and have the "
                f"log cleaned, or write the table anew in smaller commits."
            )
    current_policy().check_size(total)
    checkpoints = [info for info in files if info.path.endswith(".parquet")]
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        for info, rows in zip(checkpoints, pool.map(partial(_n_rows, filesystem), checkpoints), strict=True):
            if rows > SPARE_ROWS + (info.size or 0) // BYTES_PER_ROW:
                raise ConnectorError(
                    f"{key}: {info.path}, a checkpoint of the table's log, states {rows:,} rows in "
                    f"{info.size:,} bytes, which no list of files can have: in memory they would take "
                    f"gigabytes. Write the checkpoint anew."
                )
        list(pool.map(partial(check_levels, filesystem), files))


def _n_rows(filesystem: fs.FileSystem, info: fs.FileInfo) -> int:
    """Return the rows that a Parquet file states; 0 for another file, which the library refuses by itself."""
    try:
        with filesystem.open_input_file(info.path) as file:
            return int(open_parquet(file, info.path).metadata.num_rows)
    except (pa.ArrowException, OSError):
        return 0


def _files(filesystem: fs.FileSystem, where: str) -> list[fs.FileInfo]:
    """Return the files of a table's log by their paths; none where there is no log."""
    folder = fs.FileSelector(f"{where.rstrip('/')}/{LOG}", recursive=True, allow_not_found=True)
    infos = [info for info in filesystem.get_file_info(folder) if info.type == fs.FileType.File]
    return sorted(infos, key=lambda info: info.path)


def _check_log_links(uri: str, folder: str) -> None:
    """Raise ConnectorError where a link in the log of a local table leads out of the table."""
    if current_policy().outside_links or not _is_local(uri):
        return
    if os.path.isdir(os.path.join(folder, LOG)):
        check_links(folder, below=LOG, hidden=True)


def check_vectors(uri: str, version: int) -> None:
    """Raise ConnectorError where the log of a version names files outside of the table.

    These are deletion vectors and parts of checkpoints.

    Parameters
    ----------
    uri : the table's folder or URI.
    version : commits after it are not read.
    """
    filesystem, where = resolve(uri)
    vectors: set[Vector] = set()
    for info in _files(filesystem, where):
        if not _is_read(info.base_name, version):
            continue
        try:
            for found in _descriptors(filesystem, info.path):
                _check(uri, where, found)
                vectors |= {Vector.of(found)} if found.get("pathOrInlineDv") is not None else set()
        except ConnectorError:
            raise
        except (ValueError, OSError, RecursionError, AttributeError, TypeError) as error:
            raise ConnectorError(
                f"source.path: {info.path} is not a log of a Delta table: {type(error).__name__} while its "
                f"deletion vectors were looked for. Write the table anew."
            ) from error
    if _is_local(uri) and not current_policy().outside_links:
        check_links(where, hidden=True)  # files of deletion vectors lie anywhere in the table
    check_widths(filesystem, where, vectors)


def _is_local(uri: str) -> bool:
    return "://" not in uri or uri.startswith("file://")


def _is_read(name: str, version: int) -> bool:
    """Return whether a file of the log may count for a version; parts of checkpoints do not name one."""
    numbered = _VERSION.match(name)
    return name.endswith((".json", ".parquet")) and (numbered is None or int(numbered[0]) <= version)


def _descriptors(filesystem: fs.FileSystem, path: str) -> Iterator[dict[str, Any]]:
    """Yield every deletion vector and every part of a checkpoint that a file of the log names."""
    if path.endswith(".parquet"):
        yield from _of_checkpoint(filesystem, path)
        return
    found: list[dict[str, Any]] = []

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Keep what is looked for. Readers disagree which one counts where a key is there twice."""
        value = dict(pairs)
        if len(value) < len(pairs):
            raise ValueError("a key is there twice")
        found.extend([value] if value.keys() & VECTOR else [value.get("sidecar") or {}])
        return value

    with filesystem.open_input_stream(path) as stream:
        for line in io.TextIOWrapper(stream, "utf-8", newline="\n"):
            if line.strip():
                json.loads(line, object_pairs_hook=keep)
            yield from found
            found.clear()


def _of_checkpoint(filesystem: fs.FileSystem, path: str) -> Iterator[dict[str, Any]]:
    with filesystem.open_input_file(path) as file:
        parquet = open_parquet(file, path)
        actions = {"add": "add.deletionVector", "sidecar": "sidecar.path"}
        wanted = [part for name, part in actions.items() if name in parquet.schema_arrow.names]
        rows = (row for batch in parquet.iter_batches(columns=wanted) for row in batch.to_pylist())
        for row in rows:
            yield (row.get("add") or {}).get("deletionVector") or {}
            yield row.get("sidecar") or {}


def _check(uri: str, where: str, found: dict[str, Any]) -> None:
    """Raise ConnectorError unless a deletion vector, or a part of a checkpoint, lies in the table."""
    name = found.get("pathOrInlineDv")
    if name is not None and found.get("storageType", "u") != "i":
        absolute = found.get("storageType") == "p"
        inside = (
            _is_below(where, str(name)) if absolute else _is_plain(str(name)[:-ENCODED_UUID], folder=True)
        )
        if not inside:
            raise _outside(uri, "deletion vector", str(name))
    if "path" in found and not _is_plain(str(found["path"]), folder=False):
        raise _outside(uri, "part of a checkpoint", str(found["path"]))


def _is_below(where: str, name: str) -> bool:
    """Return whether an absolute path or URI lies in the table's folder, whose bare path is ``where``."""
    bare = bare_path(name)
    root = where.rstrip("/") + "/"
    plain = not _AMBIGUOUS.search(name) and bare.startswith(root)
    return plain and not {"", ".", ".."} & {*bare.removeprefix(root).split("/")}


def _is_plain(name: str, *, folder: bool) -> bool:
    """Return whether a relative name stays where it is: one name, or with ``folder`` none or several."""
    parts = unquote(name).split("/")
    if folder:
        parts = parts[:-1] if parts[-1] == "" else parts
    elif len(parts) > 1:
        return False
    return not _AMBIGUOUS.search(name) and not any(part in ("", ".", "..") or ":" in part for part in parts)


def _outside(uri: str, what: str, name: str) -> ConnectorError:
    return ConnectorError(
        f"source.path: the log of {uri} names the {what} {name!r}, which is not below the table. A log may "
        f"be forged to read other files. Copy the data into the table; make a shallow clone a deep one."
    )
