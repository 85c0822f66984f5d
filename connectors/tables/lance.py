"""Lance datasets as a source: shards are fragments, or runs of rows of a large one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs
from pydantic import Field

from connectors.base import (
    Connector,
    ConnectorError,
    FileSource,
    Listing,
    SourceOptions,
    SourceShard,
    SourceSpec,
)
from connectors.files import no_row, resolve
from connectors.links import check_links
from connectors.policy import current_policy
from connectors.tables.common import (
    check_stated_size,
    fingerprint,
    gather,
    library,
    location,
    plain,
    reading_table,
)

ROWS = 256
"""Rows that the library expands at once; fewer where each may be as long as the whole shard."""
ADDRESS, LOW_BITS = "_rowaddr", 2**32 - 1
"""Column of rows' addresses, and the bits in which each says the place in its fragment."""
MAX_MANIFEST_BYTES = 64 * 2**20
"""Of a manifest; the library makes objects of it, which take more."""


class LanceOptions(SourceOptions):
    """Options of ``lance``: the version to read."""

    version: int | None = Field(default=None, ge=1, description="Version to read; default: the newest")
    tag: str | None = Field(default=None, min_length=1, description="Tag of the version to read, instead")


class Lance(Connector[LanceOptions]):
    """Opens sources of the format ``lance``."""

    name = "lance"
    summary = "Lance datasets (pip install 'rowsieve[lance]'); a shard is a fragment or a part of one"
    markers = ("_versions",)
    Options = LanceOptions

    def open(self, spec: SourceSpec, options: LanceOptions) -> LanceSource:
        """Return a source over one version of the dataset, found here. Raises ConnectorError."""
        if options.version and options.tag:
            raise ConnectorError("source.options: version and tag are both set. Remove one of the two.")
        uri = location(spec.path, spec.root)
        check_dataset_links(uri)
        with reading_table(spec.path, "Lance", ValueError):
            check_manifests(uri)
            newest = library("lance", "lance").dataset(uri, version=options.tag or options.version)
            version = int(newest.version)
        return LanceSource(spec, uri, version)


@lru_cache(maxsize=4)
def _opened(uri: str, version: int) -> Any:
    """Open a version, which never changes, once for each process."""
    check_dataset_links(uri)
    check_manifests(uri)
    return library("lance", "lance").dataset(uri, version=version)


@dataclass(frozen=True)
class LanceSource(FileSource):
    """One version of a Lance dataset. Rows that it marks as deleted are not read."""

    uri: str
    version: int

    def list(self) -> Listing:
        """Read the version's manifest, and with a filter count the rows that pass."""
        with reading_table(self.spec.path, "Lance", ValueError):
            dataset = _opened(self.uri, self.version)
            schema = plain(self.spec.path, dataset.schema)
            check_fragments(self.spec.path, dataset)
            fragments = {self._name(found): found for found in dataset.get_fragments()}
            shards = [shard for name, found in fragments.items() for shard in self._cut(name, found)]
            numbers = _numbers(dataset.lance_schema.fields())
            identities = {name: _identity(found, numbers) for name, found in fragments.items()}
        if not shards:
            raise no_row(self.spec.path, {}, filtered=False)
        identities[f"{self.spec.path}@v{self.version}"] = f"lance version {self.version}"
        return Listing(schema, tuple(shards), identities)

    def _name(self, fragment: Any) -> str:
        return f"{self.spec.path}#fragment-{fragment.fragment_id}"

    def _cut(self, name: str, fragment: Any) -> Iterator[SourceShard]:
        rows = int(fragment.count_rows())
        size = sum(map(self._size, fragment.metadata.files))
        pieces = max(1, -(-size // self.spec.shard_bytes))
        cuts = [rows * piece // pieces for piece in range(pieces + 1)]
        for start, stop in pairwise(cuts):
            if stop > start:
                yield SourceShard(name, start, stop, stop - start, start, size // pieces)

    def _size(self, file: Any) -> int:
        """Return the bytes of a data file, which manifests state since a later version of the format."""
        if self.spec.policy.max_bytes is None and file.file_size_bytes:
            return int(file.file_size_bytes)
        filesystem, where = resolve(self.uri, policy=self.spec.policy)
        actual = int(filesystem.get_file_info(f"{where.rstrip('/')}/data/{file.path}").size or 0)
        if file.file_size_bytes:
            check_stated_size(str(file.path), int(file.file_size_bytes), actual)
        return actual

    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the named columns of one shard."""
        with reading_table(shard.path, "Lance", ValueError):
            fragment = self._fragment(shard)
            batches = fragment.to_batches(
                columns=[*columns],
                offset=shard.start,
                limit=shard.stop - shard.start,
                batch_size=max(1, min(ROWS, self.spec.max_bytes // max(1, shard.n_bytes))),
                batch_readahead=1,
            )
            return gather(self.spec, shard, batches, columns, schema)

    def locate(self, shard: SourceShard, row: int) -> str:
        """Name row ``row`` (0-based within the shard) by its place in the fragment, 0-based: "row 16"."""
        return f"row {self.file_rows(shard, [row])[0]}"

    def file_rows(self, shard: SourceShard, rows: Sequence[int]) -> Sequence[int]:
        """Return the 0-based positions in their fragment of rows of a shard; deleted rows count there."""
        with reading_table(shard.path, "Lance", ValueError):
            fragment = self._fragment(shard)
            if not fragment.num_deletions:
                return [shard.start + row for row in rows]
            found = fragment.scanner(
                columns=[], offset=shard.start, limit=shard.stop - shard.start, with_row_address=True
            ).to_table()
        places = found[ADDRESS].to_numpy() & LOW_BITS
        return [int(places[row]) for row in rows]

    def _fragment(self, shard: SourceShard) -> Any:
        return _opened(self.uri, self.version).get_fragment(int(shard.path.rpartition("-")[2]))


def check_dataset_links(uri: str) -> None:
    """Raise ConnectorError where a link in the folder of a local dataset leads out of it."""
    local = "://" not in uri or uri.startswith("file://")
    if local and not current_policy().outside_links and os.path.isdir(folder := resolve(uri)[1]):
        check_links(folder, hidden=True)


def check_manifests(uri: str) -> None:
    """Raise ConnectorError for a manifest of any version that is too large to be held in memory.

    Stores that Lance alone can open, such as Azure's without adlfs, are not asked.
    """
    current_policy().check_uri(uri)
    try:
        filesystem, folder = resolve(uri)
    except ConnectorError:
        return
    place = fs.FileSelector(f"{folder.rstrip('/')}/_versions", allow_not_found=True)
    for found in filesystem.get_file_info(place):
        if (found.size or 0) > MAX_MANIFEST_BYTES:
            raise ConnectorError(
                f"source.path: {found.path}, a manifest of a Lance dataset, has {found.size:,} bytes, and "
                f"{MAX_MANIFEST_BYTES:,} are read: it would be held in memory. Compact the dataset."
            )


def check_fragments(path: str, dataset: Any) -> None:
    """Raise ConnectorError unless every data file of the manifest lies in the dataset's own folder."""
    for fragment in dataset.get_fragments():
        for file in fragment.metadata.files:
            names = str(file.path).replace("\\", "/").split("/")
            if file.base_id is not None or ".." in names or names[0] == "" or ":" in names[0]:
                raise ConnectorError(
                    f"source.path: the manifest of {path} names a data file outside of it, {file.path!r}. It "
                    f"may be forged to read other files. Write the dataset again as a deep copy."
                )


def _numbers(fields: Sequence[Any]) -> list[Any]:
    """Return the name and number of each column, with those of the columns in it."""
    return [[field.name(), field.id(), _numbers(field.children())] for field in fields]


def _identity(fragment: Any, numbers: Sequence[Any]) -> str:
    """Return the digest of a fragment's data files, its file of deleted rows, and the columns' numbers.

    Columns are renamed without a change of any fragment, also such that two exchange their names.
    """
    return fingerprint([fragment.metadata.to_json(), numbers])
