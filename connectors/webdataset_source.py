"""WebDataset tars as a source: one row per sample, one column per file extension."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.base import (
    Connector,
    ConnectorError,
    CorruptError,
    FileSource,
    Listing,
    SourceOptions,
    SourceShard,
    SourceSpec,
)
from connectors.file_stamps import listing_of, of_unchanged_file
from connectors.files import check_rows, each_file, find_files, reading, resolve
from connectors.jsonl_source import infer_json, max_depth, parse_json, too_deep, unread_keys
from connectors.schema import pick
from connectors.tar_members import BLOCK, Member, NotAFileError, TarError, tar_members

Shards = list["SampleShard"]
KEY = "__key__"
"""Column with the key of a sample."""
TEXTS = ("txt", "text", "transcript")
NUMBERS = ("cls", "cls2", "index", "inx", "id")
"""Endings of texts and of whole numbers, as the library ``webdataset`` decodes them."""
PICKLES = ("pyd", "pkl", "pickle", "pth", "pt", "joblib")
"""Endings of pickles, which are refused."""
NUMERIC = "biuf"
"""Kinds of NumPy's types of numbers."""
MAX_ENDINGS = 256
"""Different endings in a tar. The type of one may take reading a shard, and each sample has all of them."""


class WebDataset(Connector[SourceOptions]):
    """Opens sources of the format ``webdataset``."""

    name = "webdataset"
    summary = "WebDataset tars; a row a sample, columns __key__ and one for each ending; no pickles"
    extensions = (".tar",)

    def open(self, spec: SourceSpec, options: SourceOptions) -> WebDatasetSource:
        """Return a source that reads WebDataset archives with the settings of ``spec``."""
        return WebDatasetSource(spec)


@dataclass(frozen=True)
class SampleShard(SourceShard):
    """A byte range of a tar; ``fields`` are the endings of the files in it."""

    fields: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class WebDatasetSource(FileSource):
    """Tars of samples. A shard is a byte range of a tar, up to ``spec.shard_bytes``, that ends with a sample.

    Columns by ending: text for txt, text, transcript; whole numbers for cls, cls2, index, inx, id; values for
    json; flat vectors for npy; bytes for all others. A missing field is null. Pickles are refused.
    """

    def list(self) -> Listing:
        """Read the headers of every tar; see :class:`connectors.base.Source`."""
        files = find_files(self.spec, WebDataset)
        found, skipped = each_file(self.spec, [file.name for file in files], self._inspect_file)
        shards = [shard for held in found.values() for shard in held]
        check_rows(self.spec, shards, skipped)
        names = sorted({name for shard in shards for name in shard.fields})
        fields = [pa.field(name, self._infer(shards, name)) for name in names]
        schema = pa.schema([(KEY, pa.string()), *fields])
        return listing_of(self.spec, files, schema, found, skipped)

    @of_unchanged_file
    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the named columns of one shard."""
        wanted = pick(schema, columns, shard.path)
        samples = self._samples(shard)
        if len(samples) != shard.n_rows:
            raise ConnectorError(f"{shard.path} has changed since it was listed. Plan and run again.")
        found = [column_of(shard.path, field, samples) for field in wanted]
        keys = pa.table({KEY: [sample.key for sample in samples]})
        return pa.table(found, schema=wanted) if found else keys.select([])

    def locate(self, shard: SourceShard, row: int) -> str:
        """Name a row by its key: "sample 0017"."""
        return f"sample {self._samples(shard)[row].key}"

    def unread(self, shard: SourceShard, schema: pa.Schema) -> tuple[str, ...]:
        """Return the keys inside the .json files of a shard that ``schema`` lacks; their values are lost.

        Raises ConnectorError.
        """
        names = [name for name in schema.names if _kind(name) == "json" and name != KEY]
        if not isinstance(shard, SampleShard) or shard.fields.isdisjoint(names):
            return ()
        samples = self._samples(shard)
        lines = {name: _json_lines(shard.path, name, samples) for name in names if name in shard.fields}
        return tuple(
            key for name, data in lines.items() for key in unread_keys(data, pa.schema([schema.field(name)]))
        )

    def _inspect_file(self, path: str) -> Shards:
        filesystem, where = resolve(path, self.spec.root, self.spec.policy)
        with reading(path), filesystem.open_input_stream(where, buffer_size=2**20) as file:
            samples = split_samples(path, members(path, file))
        with reading(path), filesystem.open_input_file(where) as file:
            size = file.size()
        if size == 0:
            raise CorruptError(f"{path} is empty (0 bytes). Remove it or write it again.")
        if samples and size < samples[-1].stop + BLOCK:
            raise CorruptError(
                f"{path} has no end mark: it was cut off while written or copied. Write or copy it again."
            )
        return _cut(path, samples, self.spec.shard_bytes)

    def _infer(self, shards: Sequence[SampleShard], name: str) -> pa.DataType:
        """Return the type of a field in the first shard that has it.

        If corrupt shards are left out, it is the first that can be read.
        """
        having = [shard for shard in shards if name in shard.fields]
        for shard in having if self.spec.skip_corrupt else ():
            with suppress(CorruptError):
                return self._type_in(shard, name)
        return self._type_in(having[0], name)

    def _type_in(self, shard: SourceShard, name: str) -> pa.DataType:
        return type_of(shard.path, name, lambda: self._samples(shard))

    def _samples(self, shard: SourceShard) -> Sequence[Sample]:
        n_bytes = shard.stop - shard.start
        if n_bytes > self.spec.max_bytes:
            raise ConnectorError(
                f"{shard.path}, bytes {shard.start} to {shard.stop}: one sample is larger than "
                f"source.max_shard_bytes ({self.spec.max_bytes}). Raise that if it is what it should be."
            )
        filesystem, where = resolve(shard.path, self.spec.root, self.spec.policy)
        with reading(shard.path), filesystem.open_input_file(where) as file:
            data = file.read_at(n_bytes, shard.start)
        return split_samples(shard.path, unpack(shard.path, data))


def _cut(path: str, samples: Sequence[Sample], shard_bytes: int) -> Shards:
    shards: Shards = []
    for index, sample in enumerate(samples):
        last = shards[-1] if shards else None
        names = frozenset(sample.fields)
        if last and sample.stop - last.start <= shard_bytes:
            size = sample.stop - last.start
            both, rows = last.fields | names, last.n_rows + 1
            shards[-1] = replace(last, stop=sample.stop, n_rows=rows, n_bytes=size, fields=both)
        else:
            size = sample.stop - sample.start
            shards.append(
                SampleShard(
                    path=path,
                    start=sample.start,
                    stop=sample.stop,
                    n_rows=1,
                    file_row=index,
                    n_bytes=size,
                    fields=names,
                )
            )
    return shards


@dataclass(frozen=True)
class Sample:
    """One row: its key, the tar's bytes it lies in, and its fields' content by ending."""

    key: str
    start: int
    stop: int
    fields: dict[str, bytes] = field(default_factory=dict)


def split_samples(path: str, members: Iterable[Member]) -> list[Sample]:
    """Group neighbouring members by key: the name up to the first dot after the last slash.

    Members without an ending and hidden ones are passed over. Raises ConnectorError for a pickle, for a field
    that a sample has twice, for one with the name of the key's column, and for more than ``MAX_ENDINGS``.
    """
    samples: list[Sample] = []
    endings: set[str] = set()
    for member in members:
        folder, base = os.path.split(member.name)
        stem, dot, ending = base.partition(".")
        if not stem or not dot or not ending:
            continue
        key, ending = os.path.join(folder, stem), ending.lower()
        if ending.rpartition(".")[2] in PICKLES:
            raise ConnectorError(
                f"{path}: {member.name} is pickled Python, and to read it is to run what its writer put in. "
                f"Write plain files instead (.json, .npy, .txt, images)."
            )
        if ending == KEY:
            raise CorruptError(
                f"{path}: the sample {key} has a file .{KEY}, which is the column of the samples' keys. "
                f"Give it another ending, or leave it out."
            )
        if not samples or samples[-1].key != key:
            samples.append(Sample(key, member.start, member.stop))
        last = samples[-1]
        if ending in last.fields:
            raise CorruptError(
                f"{path}: the sample {key} has two files .{ending}. Give each sample a key of its own."
            )
        endings.add(ending)
        if len(endings) > MAX_ENDINGS:
            raise CorruptError(
                f"{path}: its files have more than {MAX_ENDINGS} different endings, {ending[:40]!r} among "
                f"them, and each would be a column. An ending begins at the first dot of a name: leave dots "
                f"out of the keys."
            )
        last.fields[ending] = member.data
        samples[-1] = replace(last, stop=member.stop)
    return samples


def type_of(path: str, name: str, samples: Callable[[], Sequence[Sample]]) -> pa.DataType:
    """Return the type of a field by its ending; of json and npy by the samples of one shard. Raises
    CorruptError.
    """
    kind = _kind(name)
    if kind == "json":
        lines = _json_lines(path, name, samples())
        return _whole_column(path, name, lambda: infer_json(lines, f"{path}: .{name}")).field(name).type
    if kind == "npy":
        kinds = {_value(path, name, sample).dtype: None for sample in samples() if name in sample.fields}
        return pa.list_(_whole_column(path, name, lambda: pa.from_numpy_dtype(np.result_type(*kinds))))
    return pa.string() if kind in TEXTS else pa.int64() if kind in NUMBERS else pa.binary()


def column_of(path: str, wanted: pa.Field, samples: Sequence[Sample]) -> pa.Array | pa.ChunkedArray:
    """Return one field of all samples; null where a sample has none. Raises CorruptError naming the
    sample.
    """
    name = wanted.name
    if name == KEY:
        return pa.array([sample.key for sample in samples], wanted.type)
    if _kind(name) == "json":
        lines, place = _json_lines(path, name, samples), f"{path}: .{name}"
        return _whole_column(path, name, lambda: parse_json(lines, pa.schema([wanted]), place))[name]
    if _kind(name) == "npy":
        values = [_vector_of(path, wanted, sample) for sample in samples]
    else:
        values = [_value(path, name, sample) for sample in samples]
    return _whole_column(path, name, lambda: pa.array(values, wanted.type))


def _kind(name: str) -> str:
    return name.rpartition(".")[2]


def _whole_column(path: str, name: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except (pa.ArrowException, TypeError) as error:  # a date of NumPy in a list is a TypeError
        raise CorruptError(
            f"{path}: the values of .{name} are not of one type: {str(error).splitlines()[0].rstrip('. ')}. "
            f"Write them with one type in all samples."
        ) from error


def _json_lines(path: str, name: str, samples: Sequence[Sample]) -> bytes:
    """Return the field of every sample as one line with one object, which names the field."""
    values = ({name: _value(path, name, sample)} for sample in samples)
    return "".join(json.dumps(value) + "\n" for value in values).encode()


def _value(path: str, name: str, sample: Sample) -> Any:
    data, kind = sample.fields.get(name), _kind(name)
    if data is None:
        return None
    try:
        if kind == "npy":
            return _vector(data)
        if kind == "json":
            if too_deep(data, max_depth()) is not None:
                raise ValueError(f"lists and objects are nested more than {max_depth()} deep")
            return json.loads(data)
        if kind in NUMBERS:
            return _whole_number(data)
        return data.decode() if kind in TEXTS else data
    except (ValueError, EOFError) as error:
        plain = "UTF-8 text" if kind in TEXTS else f"a plain .{kind} file"
        what = "a whole number of 64 bits" if kind in NUMBERS else plain
        raise CorruptError(
            f"{path}, sample {sample.key}: .{name} is not {what}: {error}. Correct it, or leave it out."
        ) from error


def _vector_of(path: str, wanted: pa.Field, sample: Sample) -> npt.NDArray[Any] | None:
    """Return the vector of a sample in the type of its column; a list's own conversion cuts numbers to it.

    Raises CorruptError for a number that the type does not hold.
    """
    found, kind = _value(path, wanted.name, sample), wanted.type.value_type
    if found is None or found.dtype.kind not in NUMERIC or not pa.types.is_primitive(kind):
        return found  # type: ignore[no-any-return]
    values = found.astype(found.dtype.newbyteorder("="))
    reason = "a number is too large"
    try:
        if pa.types.is_boolean(kind) and found.dtype.kind != "b":
            raise pa.ArrowInvalid("it holds numbers")
        cast = pa.array(values).cast(kind).to_numpy(zero_copy_only=False)
        is_held = bool((np.isfinite(cast) == np.isfinite(values)).all())
    except pa.ArrowException as error:
        is_held, reason = False, str(error).splitlines()[0].rstrip(". ")
    if not is_held:
        raise CorruptError(
            f"{path}, sample {sample.key}: the vector .{wanted.name} of {found.dtype} does not fit {kind}, "
            f"the type of the samples before: {reason}. Write the vectors with one type in all samples."
        )
    return cast  # type: ignore[no-any-return]


def _whole_number(data: bytes) -> int:
    found = int(data)
    if not -(2**63) <= found < 2**63:
        raise ValueError(f"it has {len(data.strip())} characters")
    return found


def _vector(data: bytes) -> npt.NDArray[Any]:
    try:
        found: npt.NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False).ravel()
    except Exception as error:  # a broken header may raise anything, MemoryError for a huge shape too
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if found.size and not found.itemsize:
        raise ValueError(f"it states {found.size} values of no bytes")
    return found


def members(path: str, stream: Any) -> Iterator[Member]:
    """Return the files of a tar that is read from its beginning, without their content. Raises
    CorruptError.
    """
    yield from _walk(path, stream, with_data=False)


def unpack(path: str, data: bytes) -> Iterator[Member]:
    """Return the files in whole members of a tar, with their content. Raises CorruptError."""
    yield from _walk(path, io.BytesIO(data), with_data=True)


def _walk(path: str, file: Any, *, with_data: bool) -> Iterator[Member]:
    try:
        yield from tar_members(file, with_data=with_data)
    except NotAFileError as error:  # passed over, its samples would lack a field without a word
        raise CorruptError(
            f"{path}: {error} is a link or a device, and files alone are read. Write the tar with the "
            f"files themselves (GNU tar: --dereference --hard-dereference)."
        ) from None
    except TarError as error:
        raise CorruptError(
            f"{path} is not a whole tar: {error}. It may be compressed, or was cut off while written or "
            f"copied: write or copy it again, uncompressed."
        ) from error
