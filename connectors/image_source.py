"""Folders of image files as a source: one row a file, its class the folder's name."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from connectors.base import (
    Connector,
    ConnectorError,
    FileSource,
    Listing,
    SourceOptions,
    SourceShard,
    SourceSpec,
)
from connectors.file_stamps import local_identity
from connectors.files import File, check_rows, each, find_files, identify, reading, resolve, stat_listed
from connectors.locations import below, beside, folder_of, is_quoted, path_of
from connectors.schema import cast_table, pick

Shards = list[SourceShard]
SCHEMA = pa.schema([("image", pa.binary()), ("path", pa.string()), ("label", pa.string())])


class Images(Connector[SourceOptions]):
    """Opens sources of the format ``images``."""

    name = "images"
    summary = "Folders of image files; columns image (bytes), path, label (the folder's name)"
    extensions = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")

    def open(self, spec: SourceSpec, options: SourceOptions) -> ImageSource:
        """Return a source that reads image files with the settings of ``spec``."""
        return ImageSource(spec)


@dataclass(frozen=True)
class FolderShard(SourceShard):
    """Neighbouring files of one folder.

    The plan knows the names, so that reading a shard looks at its own files, not at the whole folder.

    Attributes
    ----------
    state : a hash of their names, sizes and times.
    identity : a hash of their names and contents; empty for objects of a store.
    packed_names : their names within the folder, compressed, since the plan of a million files holds them.
    """

    state: str
    identity: str
    packed_names: bytes

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the files in the form of the folder's name."""
        bases = zlib.decompress(self.packed_names).decode().split("\0")
        return tuple(beside(self.path, base) for base in bases)


@dataclass(frozen=True)
class ImageSource(FileSource):
    """Reads image files without decoding them, so a file that is not an image is a row too.

    A shard is a run of one folder's files, up to ``spec.shard_bytes``. Its path is the folder.
    """

    def list(self) -> Listing:
        """List the files and hash their content; see :class:`connectors.base.Source`."""
        files = find_files(self.spec, Images)
        shards: Shards = []
        identities = {}
        for folder, held in groupby(sorted(files, key=_place), lambda file: folder_of(file.name)):
            inside = [*held]
            known = self._identities(inside)
            shards += [_shard(folder, inside, cut, known) for cut in _cuts(inside, self.spec.shard_bytes)]
            identities[folder] = "files:" + self._rows_of(inside, known)
        check_rows(self.spec, shards, {})
        return Listing(SCHEMA, tuple(shards), identities, {})

    def _rows_of(self, files: Sequence[File], identities: Mapping[str, str]) -> str:
        """Return a hash of everything that the rows of a folder are made of, its class and paths too."""
        rows = [(_shown(self.spec, file.name), identities[file.name]) for file in files]
        return _hash([("label", _class(files[0].name) or ""), *rows])

    def _identities(self, files: Sequence[File]) -> dict[str, str]:
        """Identify local files by content, others by size and time, since asking for each etag takes
        hours.
        """
        if "://" in files[0].name:
            return {file.name: f"size:{file.size},mtime_ns:{file.mtime_ns}" for file in files}
        return identify(self.spec, [file.name for file in files])

    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the files of one shard; none is opened unless ``image`` is asked for."""
        wanted = pick(schema, columns, shard.path)
        files = self._files(shard)
        found: dict[str, Sequence[Any]] = {"path": [_shown(self.spec, file.name) for file in files]}
        found["label"] = [_class(file.name) for file in files]
        if "image" in columns:
            self._check_size(shard, files)
            sizes = {file.name: _size(file) for file in files}
            found["image"] = [*each(self.spec, [*sizes], lambda name: self._bytes(name, sizes[name]))]
            if _state(self._files(shard)) != _state(files):
                raise _changed(shard)
        table = pa.table({name: pa.array(values, SCHEMA.field(name).type) for name, values in found.items()})
        return cast_table(table.select([*columns]), wanted, shard.rows_text)

    def locate(self, shard: SourceShard, row: int) -> str:
        """Name a row by its file: "file 0017.png"."""
        return f"file {_base(_folder_shard(shard).names[row])}"

    def _files(self, shard: SourceShard) -> Sequence[File]:
        """Return the files of a shard. Raises ConnectorError where one has changed since it was listed."""
        listed = _folder_shard(shard)
        files = [*each(self.spec, listed.names, partial(stat_listed, self.spec))]
        if not self._are_unchanged(files, listed):
            raise _changed(shard)
        return files

    def _check_size(self, shard: SourceShard, files: Sequence[File]) -> None:
        total = sum(map(_size, files))
        if total > self.spec.max_bytes:
            raise ConnectorError(
                f"{shard.path}, files {shard.start} to {shard.stop - 1}: they take {total} bytes, and "
                f"source.max_shard_bytes allows {self.spec.max_bytes}. Raise that or lower shard_bytes."
            )

    def _are_unchanged(self, files: Sequence[File], shard: FolderShard) -> bool:
        """Return whether files have the sizes and times with which they were listed, or else the content.

        Local files may thus be touched or copied over. No file is opened as long as none was.
        """
        if _state(files) == shard.state:
            return True
        if not shard.identity or any(file.size is None for file in files):  # a pipe has no size
            return False
        return (
            _hash_of(files, {file.name: local_identity(self.spec, file) for file in files}) == shard.identity
        )

    def _bytes(self, name: str, size: int) -> bytes:
        filesystem, where = resolve(name, self.spec.root, self.spec.policy)
        with reading(name), filesystem.open_input_file(where) as handle:
            return bytes(handle.read_at(size, 0)) if size else b""


def _folder_shard(shard: SourceShard) -> FolderShard:
    """Return a shard as one of this format. Raises ConnectorError for another, as of an older plan."""
    if not isinstance(shard, FolderShard):
        raise _changed(shard)
    return shard


def _changed(shard: SourceShard) -> ConnectorError:
    return ConnectorError(f"{shard.path}: its files have changed since they were listed. Plan and run again.")


def _cuts(files: Sequence[File], shard_bytes: int) -> Iterator[slice]:
    """Yield the runs of a folder's files that are a shard each."""
    start = held = 0
    for index, file in enumerate(files):
        if index > start and held + _size(file) > shard_bytes:
            yield slice(start, index)
            start, held = index, 0
        held += _size(file)
    yield slice(start, len(files))


def _shard(folder: str, files: Sequence[File], cut: slice, identities: Mapping[str, str]) -> FolderShard:
    inside = files[cut]
    identity = "" if "://" in folder else _hash_of(inside, identities)
    n_bytes = sum(map(_size, inside))
    names = zlib.compress("\0".join(path_of(file.name).rpartition("/")[2] for file in inside).encode())
    return FolderShard(
        path=folder,
        start=cut.start,
        stop=cut.stop,
        n_rows=len(inside),
        file_row=cut.start,
        n_bytes=n_bytes,
        state=_state(inside),
        identity=identity,
        packed_names=names,
    )


def _size(file: File) -> int:
    if file.size is None:
        raise ConnectorError(
            f"{file.name}: the server does not say how long it is. Copy it to a local folder."
        )
    return file.size


def _state(files: Sequence[File]) -> str:
    """Return a hash of the names, sizes and times of files."""
    return _hash([(_base(file.name), f"{file.size} {_time(file)} {file.changed_ns}") for file in files])


def _time(file: File) -> int | None:
    """Return the time of a file; None where a server does not say.

    That of an object is in seconds: some stores list fractions of them, and leave these out where one object
    is asked for.
    """
    is_local = "://" not in file.name or file.name.startswith("file://")
    return file.mtime_ns if is_local or file.mtime_ns is None else file.mtime_ns // 10**9


def _hash_of(files: Sequence[File], identities: Mapping[str, str]) -> str:
    """Return a hash of the names and identities of files."""
    return _hash([(_base(file.name), identities[file.name]) for file in files])


def _hash(pairs: Sequence[tuple[str, str]]) -> str:
    return hashlib.sha256("\0".join(part for pair in pairs for part in pair).encode()).hexdigest()


def _place(file: File) -> tuple[str, str]:
    return folder_of(file.name), file.name


def _base(name: str) -> str:
    base = path_of(name).rpartition("/")[2]
    return unquote(base) if is_quoted(name) else base


def _class(name: str) -> str | None:
    return _base(folder_of(name)) or None


def _shown(spec: SourceSpec, name: str) -> str:
    """Return the path within the folder that the user named."""
    return below(spec.path, name) or _base(name)
