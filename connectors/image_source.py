"""Folders of image files as a source: one row a file, its class the folder's name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from connectors.files import File, check_rows, find_files, identify, reading, resolve
from connectors.locations import below, folder_of, is_quoted, path_of
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
    """Neighbouring files of one folder; ``content`` is a hash of their names, sizes and times."""

    content: str


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
            shards += _cut(folder, inside, self.spec.shard_bytes)
            identities[folder] = self._identity(inside)
        check_rows(self.spec, shards, {})
        return Listing(SCHEMA, tuple(shards), identities, {})

    def _identity(self, files: Sequence[File]) -> str:
        """Identify local files by content, others by size and time, since asking for each etag takes
        hours.
        """
        if "://" in files[0].name:
            known = {file.name: f"size:{file.size},mtime_ns:{file.mtime_ns}" for file in files}
        else:
            known = identify(self.spec, [file.name for file in files])
        return "files:" + _hash([(_base(name), found) for name, found in known.items()])

    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the files of one shard; none is opened unless ``image`` is asked for."""
        wanted = pick(schema, columns, shard.path)
        files = self._files(shard)
        found: dict[str, Sequence[Any]] = {"path": [_shown(self.spec, file.name) for file in files]}
        found["label"] = [_class(file.name) for file in files]
        if "image" in columns:
            found["image"] = [self._bytes(file) for file in files]
            self._files(shard)  # raises if they have changed meanwhile
        table = pa.table({name: pa.array(values, SCHEMA.field(name).type) for name, values in found.items()})
        return cast_table(table.select([*columns]), wanted, shard.rows_text)

    def locate(self, shard: SourceShard, row: int) -> str:
        """Name a row by its file: "file 0017.png"."""
        return f"file {_base(self._files(shard)[row].name)}"

    def _files(self, shard: SourceShard) -> Sequence[File]:
        files = find_files(self.spec, Images, shard.path)[shard.start : shard.stop]
        if not isinstance(shard, FolderShard) or _content(files) != shard.content:
            raise ConnectorError(
                f"{shard.path}: its files have changed since they were listed. Plan and run again."
            )
        total = sum(file.size for file in files)
        if total > self.spec.max_bytes:
            raise ConnectorError(
                f"{shard.path}, files {shard.start} to {shard.stop - 1}: they take {total} bytes, and "
                f"source.max_shard_bytes allows {self.spec.max_bytes}. Raise that or lower shard_bytes."
            )
        return files

    def _bytes(self, file: File) -> bytes:
        filesystem, where = resolve(file.name, self.spec.root, self.spec.policy)
        with reading(file.name), filesystem.open_input_file(where) as handle:
            return bytes(handle.read_at(file.size, 0)) if file.size else b""


def _cut(folder: str, files: Sequence[File], shard_bytes: int) -> Iterator[SourceShard]:
    start = held = 0
    for index, file in enumerate(files):
        if index > start and held + file.size > shard_bytes:
            yield _shard(folder, files, start, index, held)
            start, held = index, 0
        held += file.size
    yield _shard(folder, files, start, len(files), held)


def _shard(folder: str, files: Sequence[File], start: int, stop: int, n_bytes: int) -> FolderShard:
    return FolderShard(folder, start, stop, stop - start, start, n_bytes, _content(files[start:stop]))


def _content(files: Sequence[File]) -> str:
    return _hash([(_base(file.name), f"{file.size} {file.mtime_ns}") for file in files])


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
