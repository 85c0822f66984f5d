"""WebDataset tars as a source: files that share a name up to its first dot are one sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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
from connectors.listing import check_rows, each_file
from connectors.paths import find_names, identify, reading, resolve
from connectors.samples import KEY, Sample, column_of, split_samples, type_of
from connectors.schema import pick
from connectors.tars import BLOCK, members, unpack

Shards = list["SampleShard"]


class WebDataset(Connector[SourceOptions]):
    """The format by name."""

    name = "webdataset"
    summary = "WebDataset tars; a row a sample, columns __key__ and one for each ending; no pickles"
    extensions = (".tar",)

    def open(self, spec: SourceSpec, options: SourceOptions) -> WebDatasetSource:
        """See :class:`connectors.base.Connector`."""
        return WebDatasetSource(spec)


@dataclass(frozen=True)
class SampleShard(SourceShard):
    """A byte range of a tar; ``fields`` are the endings in it."""

    fields: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class WebDatasetSource(FileSource):
    """Tars of samples. A shard is a byte range of a tar, up to ``spec.shard_bytes``, that ends with a sample.

    Columns by ending: text for txt, text, transcript; whole numbers for cls, cls2, index, inx, id; values for
    json; flat vectors for npy; bytes for all others. Pickles are refused. What a sample has not is null.
    """

    def list(self) -> Listing:
        """Read the headers of every tar; see :class:`connectors.base.Source`."""
        found, skipped = each_file(self.spec, find_names(self.spec, WebDataset), self._look)
        shards = [shard for held in found.values() for shard in held]
        check_rows(self.spec, shards, skipped)
        names = sorted({name for shard in shards for name in shard.fields})
        firsts = {name: next(shard for shard in shards if name in shard.fields) for name in names}
        fields = [pa.field(name, self._infer(shard, name)) for name, shard in firsts.items()]
        schema = pa.schema([(KEY, pa.string()), *fields])
        return Listing(schema, tuple(shards), identify(self.spec, [*found]), skipped)

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

    def _look(self, path: str) -> Shards:
        filesystem, where = resolve(path, self.spec.root)
        with reading(path), filesystem.open_input_stream(where, buffer_size=2**20) as file:
            samples = split_samples(path, members(path, file))
        with reading(path), filesystem.open_input_file(where) as file:
            size = file.size()
        if size == 0:
            raise CorruptError(f"{path} is empty (0 bytes). Remove it or write it again.")
        if samples and size < samples[-1].stop + BLOCK:
            raise CorruptError(f"{path} has no end mark: it was cut off while written or copied.")
        return _cut(path, samples, self.spec.shard_bytes)

    def _infer(self, shard: SourceShard, name: str) -> pa.DataType:
        return type_of(shard.path, name, lambda: self._samples(shard))

    def _samples(self, shard: SourceShard) -> Sequence[Sample]:
        n_bytes = shard.stop - shard.start
        if n_bytes > self.spec.max_bytes:
            raise ConnectorError(
                f"{shard.path}, bytes {shard.start} to {shard.stop}: one sample is larger than "
                f"source.max_shard_bytes ({self.spec.max_bytes}). Raise that if it is what it should be."
            )
        filesystem, where = resolve(shard.path, self.spec.root)
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
            shards.append(SampleShard(path, sample.start, sample.stop, 1, index, size, names))
    return shards
