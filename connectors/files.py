"""Finds, identifies and opens the files that a path, folder or glob names, on any filesystem."""

from __future__ import annotations

import hashlib
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs

from connectors.base import Connector, ConnectorError, CorruptError, SourceSpec
from connectors.folder_listing import FolderListing, check_distinct
from connectors.foundation.messages import closest
from connectors.foundation.remedies import CORRECT_PATH, NAME_FILES
from connectors.guarded_client import guarded_client
from connectors.links import check_inside
from connectors.locations import (
    OBJECT_STORES,
    Glob,
    extension,
    is_fsspec,
    is_quoted,
    relative,
    split_glob,
    split_query,
)
from connectors.policy import SourcePolicy, current_policy

T = TypeVar("T")
MAX_CONCURRENT = 8
"""Files of an object store that are inspected concurrently, since most of the time is waiting."""
DENIED = re.compile(r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE|(?<![\w./-])40[13](?![\w/-]|\.\w)")
"""Words and HTTP codes by which a store refuses a request; digits of a name are none."""
EMPTY_PART = "Empty path component"
"""Part of the error of stores that pyarrow reads, for a name with two slashes in a row."""
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".7z")


@dataclass(frozen=True)
class File:
    """A listed file."""

    name: str
    """Name in the form in which the user wrote the path."""
    size: int | None
    """Bytes; None where a server does not say."""
    mtime_ns: int | None
    """Time of the last change; None where a server does not say."""
    linked: bool = False
    """Whether a symbolic link below the listed folder leads to it, on a local file system."""
    changed_ns: int | None = None
    """Time of the last change of a local file's inode, which copies do not keep; None for others."""


@dataclass(frozen=True)
class FoundFiles:
    """The files that a path names, sorted by name."""

    files: tuple[File, ...]
    named: bool
    """Whether the user named them, singly or by a pattern, so that they may have any ending."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the files, sorted."""
        return tuple(file.name for file in self.files)


def resolve(path: str, root: str = "", policy: SourcePolicy | None = None) -> tuple[fs.FileSystem, str]:
    """Return the filesystem and the path on it; relative local paths start at ``root`` or the cwd.

    Raises ConnectorError for a URI that ``policy``, by default the one of this process, does not allow.
    """
    (policy or current_policy()).check_uri(path)
    if "://" not in path:
        return fs.LocalFileSystem(), os.path.abspath(os.path.join(root, os.path.expanduser(path)))
    open_uri = _by_fsspec if is_fsspec(path) else fs.FileSystem.from_uri
    try:
        filesystem, where = open_uri(path)
    except (pa.ArrowInvalid, OSError, ValueError, ImportError) as error:
        raise ConnectorError(
            f"Cannot open {path}: {error}. Correct the URI or its access settings."
        ) from error
    return filesystem, where


def local_folder(path: str) -> Path | None:
    """Return the absolute folder of a local file, or None; relative paths start at the working directory."""
    with suppress(ConnectorError):  # a place that may not be opened, or whose URI names no file
        if "://" not in path or path.startswith("file://"):
            return Path(resolve(path)[1]).parent
    return None


def _by_fsspec(path: str) -> tuple[fs.FileSystem, str]:
    """Return a file system by fsspec: https, sftp, memory, hf, ...; some ask for a package of their own."""
    from fsspec.core import url_to_fs

    settings = {"get_client": guarded_client} if path.startswith(("http://", "https://")) else {}
    found, where = url_to_fs(path, **settings)
    return fs.PyFileSystem(fs.FSSpecHandler(found)), str(where)


def identity(path: str) -> str:
    """Return a text that changes when a file's bytes do: sha256 of a local file, else size and etag or time.

    Copying or touching a local file does not change its identity.
    """
    filesystem, where = resolve(path)
    with reading(path):
        if isinstance(filesystem, fs.LocalFileSystem):
            with Path(where).open("rb") as file:
                return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
        info, tag = filesystem.get_file_info(where), _tag(filesystem, where)
    return f"size:{info.size},etag:{tag}" if tag else f"size:{info.size},mtime_ns:{info.mtime_ns}"


def _tag(filesystem: fs.FileSystem, where: str) -> str:
    """Return the ETag or generation of an object, or an empty text where the store has neither."""
    if isinstance(filesystem, fs.PyFileSystem):
        info = filesystem.handler.fs.info(where)
        found = next((info[key] for key in ("ETag", "etag", "generation") if info.get(key)), "")
    else:
        with filesystem.open_input_stream(where, buffer_size=0) as file:
            metadata = {str(key).lower(): value for key, value in (file.metadata() or {}).items()}
        found = metadata.get("etag", b"").decode()
    return str(found).strip('"')


def identify(spec: SourceSpec, paths: Sequence[str]) -> dict[str, str]:
    """Map each path to its :func:`identity`; ``spec.identities`` may answer for local files."""
    absolute = {path: path if "://" in path else resolve(path, spec.root)[1] for path in paths}
    local = [name for path, name in absolute.items() if "://" not in path]
    known = spec.identities(local) if spec.identities else {}
    missing = [name for name in dict.fromkeys(absolute.values()) if not known.get(name)]
    known |= dict(zip(missing, each(spec, missing, identity), strict=True))
    return {path: known[name] for path, name in absolute.items()}


def each(spec: SourceSpec, paths: Sequence[str], do: Callable[[str], T]) -> Iterator[T]:
    """Yield the results of ``do`` for every path, in order. Remote paths are processed concurrently.

    Raises the error of the first path for which ``do`` raises one.
    """
    if "://" not in spec.path or spec.path.startswith("file://"):
        yield from map(do, paths)
        return
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        waiting: deque[Future[T]] = deque()
        for path in paths:  # few more than run are submitted: results may be large, and an error ends all
            waiting.append(pool.submit(do, path))
            if len(waiting) > 2 * MAX_CONCURRENT:
                yield waiting.popleft().result()
        yield from (future.result() for future in waiting)


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn the operating system's errors while reading ``path`` into a ConnectorError."""
    try:
        yield
    except FileNotFoundError as error:
        raise ConnectorError(f"{path} is gone: put it back, or plan again without it.") from error
    except PermissionError as error:
        raise ConnectorError(
            f"{path} cannot be read: permission denied. Make it readable for this user."
        ) from error
    except (OSError, ImportError) as error:
        raise ConnectorError(f"{path} cannot be read: {_reason(error)}") from error
    except Exception as error:
        unknown = type(error) is pa.ArrowException  # raised by a store's library, not by Arrow itself
        unknown |= EMPTY_PART in str(error)
        if isinstance(error, ConnectorError) or not (unknown or is_fsspec(path)):
            raise
        # Filesystems of fsspec raise errors of their own.
        raise ConnectorError(f"{path} cannot be read: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(". ") or type(error).__name__
    if EMPTY_PART in text:
        return f"pyarrow reads no names with two slashes in a row ({text}). Rename the object."
    by_system = isinstance(error, OSError) and error.errno is not None  # whose text has no codes of HTTP
    if not by_system and DENIED.search(text):
        return f"access denied ({text}). Check the keys, or the role, and that they may list and read."
    if any(word in text for word in ("NETWORK_CONNECTION", "Could not connect", "curlCode")):
        return f"no connection ({text}). Check the endpoint and the network."
    return f"{text}. Check the file and the path."


def find_files(spec: SourceSpec, kind: type[Connector[Any]]) -> tuple[File, ...]:
    """Return the files of one format that ``spec.path`` names, sorted.

    In a folder, files with one of the format's endings count. A file, or those that a glob matches, may have
    any ending if the user named the format. Raises ConnectorError if there is none, or if a symbolic link
    makes one file two of them.
    """
    found = list_files(spec.path, spec.root, spec.policy)
    any_ending = found.named and not spec.guessed
    fitting = [file for file in found.files if any_ending or extension(file.name, kind.extensions)]
    if not fitting:
        raise nothing_fits(spec.path, found.names, kind.name)
    if any(file.linked for file in fitting):
        check_distinct({file.name: resolve(file.name, spec.root, spec.policy)[1] for file in fitting})
    spec.policy.check_size(sum(file.size or 0 for file in fitting))  # web servers may not say
    return tuple(fitting)


def find_names(spec: SourceSpec, kind: type[Connector[Any]]) -> tuple[str, ...]:
    """Return the names of :func:`find_files`."""
    return tuple(file.name for file in find_files(spec, kind))


def list_files(path: str, root: str = "", policy: SourcePolicy | None = None) -> FoundFiles:
    """List the files that ``path`` names: a file, a folder (with its subfolders) or a glob.

    Names that start with ``.`` or ``_`` are left out of folders and globs. Raises ConnectorError if nothing
    has that name.
    """
    folder, pattern = split_glob(path)
    with reading(path):
        filesystem, where = resolve(folder if "://" in path else path, root, policy)
        info = filesystem.get_file_info(where)
        if not pattern and info.type == fs.FileType.NotFound:
            raise _missing(path, filesystem, where)
        if info.type == fs.FileType.File:
            return FoundFiles((_file(path, filesystem, where, info),), named=True)
        start = path if not pattern else folder
        found = sorted(_below(start, root, policy), key=lambda file: file.name)
        if not pattern:
            return FoundFiles(tuple(found), named=False)
        rule = Glob(pattern)
        matched = tuple(file for file in found if rule.matches(relative(file.name, folder)))
    if not matched:
        fix = "Correct the pattern; '**' also looks into subfolders"
        if info.type == fs.FileType.Directory:
            fix = "It is a folder whose name reads as a pattern: write [[] for each [, and /**/* at the end"
        raise ConnectorError(f"No file matches {path}. {fix}.")
    return FoundFiles(matched, named=True)


def stat_file(spec: SourceSpec, path: str) -> File:
    """Return the size and time of one file; both are None where a server does not say.

    Raises ConnectorError for a file that is not there.
    """
    filesystem, where = resolve(path, spec.root, spec.policy)
    with reading(path):
        info = filesystem.get_file_info(where)
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError(where)
        return _file(path, filesystem, where, info)


def _file(name: str, filesystem: fs.FileSystem, where: str, info: fs.FileInfo) -> File:
    if not isinstance(filesystem, fs.LocalFileSystem):
        return File(name, info.size, info.mtime_ns)
    found = os.stat(where)
    return File(name, info.size, found.st_mtime_ns, changed_ns=found.st_ctime_ns)


def stat_listed(spec: SourceSpec, path: str) -> File:
    """Return the size and time of one of the files that :func:`find_files` found.

    Raises ConnectorError for a file that is not there, or is now a link that leads out of its folder.
    """
    file = stat_file(spec, path)
    filesystem, where = resolve(path, spec.root, spec.policy)
    if isinstance(filesystem, fs.LocalFileSystem) and os.path.islink(where) and not spec.policy.outside_links:
        base = resolve(split_glob(spec.path)[0] or ".", spec.root, spec.policy)[1]
        if base != where:  # the user may name any file
            check_inside(base, where)
    return file


def exists(spec: SourceSpec, path: str) -> bool:
    """Return whether a file or folder of that name exists."""
    filesystem, where = resolve(path, spec.root, spec.policy)
    with reading(path):
        return bool(filesystem.get_file_info(where).type != fs.FileType.NotFound)


def marked(path: str, markers: Sequence[str], root: str = "") -> bool:
    """Return whether ``path`` is a folder that holds one of the names ``markers``."""
    if split_glob(path)[1]:
        return False
    with reading(path):
        filesystem, where = resolve(path, root)
        infos = filesystem.get_file_info([f"{where.rstrip('/')}/{marker}" for marker in markers])
    return any(info.type != fs.FileType.NotFound for info in infos)


def _below(folder: str, root: str, policy: SourcePolicy | None = None) -> Iterator[File]:
    """Return all files below a folder, named with the folder as the user wrote it."""
    filesystem, where = resolve(folder or ".", root, policy)
    if filesystem.get_file_info(where).type != fs.FileType.Directory:
        raise _missing(folder, filesystem, where)
    base, query = split_query(folder)
    base = f"{base.rstrip('/')}/" if base else ""
    if isinstance(filesystem, fs.LocalFileSystem):
        outside_links = (policy or current_policy()).outside_links
        for found in FolderListing(where, outside_links).files():
            shown = quote(found.name, safe="/=") if is_quoted(folder) else found.name
            name = f"{base}{shown}{query}"
            yield File(name, found.size, found.mtime_ns, found.linked, found.changed_ns)
        return
    for info in filesystem.get_file_info(fs.FileSelector(where, recursive=True)):
        name = info.path[len(where.rstrip("/")) :].removeprefix("/")
        if info.type != fs.FileType.File or any(part.startswith((".", "_")) for part in name.split("/")):
            continue
        shown = quote(name, safe="/=") if is_quoted(folder) else name
        yield File(f"{base}{shown}{query}", info.size, info.mtime_ns)


def nothing_fits(path: str, names: Sequence[str], format: str) -> ConnectorError:
    """Return the error of a path without a file of that format; it names some that are there."""
    held = ", ".join(sorted(names)[:5]) + (", ..." if len(names) > 5 else "") or "nothing"
    fix = f"{CORRECT_PATH}, or name the format with source.format"
    if any(name.lower().endswith(PACKED) for name in names):
        fix = "Of packed files only CSV and JSON lines are read (.gz, .bz2, .zst): unpack the others"
    return ConnectorError(f"{path} holds no {format} file; it holds: {held}. {fix}.")


def _missing(path: str, filesystem: fs.FileSystem, where: str) -> ConnectorError:
    """Name the first part of the path that does not exist and what there is instead."""
    folder, name = os.path.split(where.rstrip("/"))
    while folder not in ("", "/") and filesystem.get_file_info(folder).type == fs.FileType.NotFound:
        folder, name = os.path.split(folder)
    text = f"{path} does not exist"
    if is_fsspec(path):
        return ConnectorError(f"{text}, or cannot be reached. {CORRECT_PATH}.")
    if folder in ("", "/") and path.partition("://")[0] in OBJECT_STORES:
        return ConnectorError(
            f"{text}: there is no bucket {name!r}, or these keys do not see it. Correct path or keys."
        )
    if filesystem.get_file_info(folder or "/").type != fs.FileType.Directory:
        return ConnectorError(f"{text}. {CORRECT_PATH}.")
    infos = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    names = sorted(info.base_name for info in infos)
    if name in names:
        return ConnectorError(f"{path} is a pipe or a device, not a file. {CORRECT_PATH}.")
    close = closest(name, names)
    if close is not None:
        return ConnectorError(f"{text}: there is no {name!r} in its folder, but a {close!r}. {CORRECT_PATH}.")
    held = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "") or "nothing"
    return ConnectorError(f"{text}: there is no {name!r} in its folder, which holds: {held}. {CORRECT_PATH}.")


def each_file(
    spec: SourceSpec, paths: Sequence[str], inspect_file: Callable[[str], T]
) -> tuple[dict[str, T], dict[str, str]]:
    """Apply ``inspect_file`` to each file. Return its results and the reasons of skipped files, by path.

    Raises ConnectorError, and CorruptError unless files that cannot be read are to be left out.
    """
    found: dict[str, T] = {}
    skipped: dict[str, str] = {}
    for path, seen in zip(
        paths, each(spec, paths, partial(_inspect_or_fault, spec, inspect_file)), strict=True
    ):
        if isinstance(seen, CorruptError):
            skipped[path] = str(seen)
        else:
            found[path] = seen
    return found, skipped


def _inspect_or_fault(spec: SourceSpec, inspect_file: Callable[[str], T], path: str) -> T | CorruptError:
    try:
        return inspect_file(path)
    except CorruptError as error:
        if not spec.skip_corrupt:
            raise
        return error


def check_rows(spec: SourceSpec, shards: Sized, skipped: Mapping[str, str]) -> None:
    """Raise ConnectorError where no shard is left."""
    if not shards:
        raise no_row(spec.path, skipped, filtered=spec.filter is not None)


def no_row(path: str, skipped: Mapping[str, str], *, filtered: bool) -> ConnectorError:
    """Return the error of a source without rows; it shows why a file was skipped, if one was."""
    reason = f" {next(iter(skipped.values()))}" if skipped else ""
    if filtered:
        return ConnectorError(f"{path}: source.filter leaves no row. Widen it.{reason}")
    return ConnectorError(f"{path} holds no rows. {NAME_FILES} with rows.{reason}")
