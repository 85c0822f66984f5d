"""Bounded samples of a source, from which kinds of columns and counts of labels are shown before a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from connectors.base import ConnectorError, CorruptError, Listing, Source, SourceShard, narrowed
from connectors.cleaned import Cleaned
from connectors.parquet_source import ParquetSource
from connectors.view import View
from connectors.wrapper import Wrapper
from engine.core.errors import InputError
from operators.base import OperatorError
from operators.encode.column_forms import Form, form_of
from operators.ingest.label_checks import LabelCounts
from operators.ingest.labels import count_labels

ROWS, SHARDS = 50_000, 8
"""Maximum number of rows of a sample, and of shards that they come from."""
MAX_SHARDS = 64
"""Maximum number of shards if the source has no more rows than a sample."""
DRAWN_BYTES = 512 * 2**20
"""Bytes of the shards that are read whole, so that rows are drawn from all of a shard; of others the first
rows are taken. One shard is always read whole."""
WIDE_ROWS = 64
"""Rows of which vectors, images and other wide values are read."""
COUNTED_BYTES = 128 * 2**20
"""Bytes to read up to which the labels of all rows are counted."""
COUNTED_ROWS = 20_000_000
"""Rows up to which they are."""


@dataclass(frozen=True)
class SourceSample:
    """Rows drawn from some shards.

    Attributes
    ----------
    rows
        Columns of numbers, texts and times, in the order of the source.
    wide
        Vectors, images and other columns of the first few rows.
    n_shards
        Shards that the rows come from.
    is_whole
        Whether these are all rows of the source.

    """

    rows: pa.Table
    wide: pa.Table
    n_shards: int
    is_whole: bool


def draw_sample(source: Source, listing: Listing, n_rows: int = ROWS, n_shards: int = SHARDS) -> SourceSample:
    """Draw rows of up to ``n_shards`` shards, which are spread evenly over the source.

    The rows are spread over each shard, so that a source that is sorted, by its label for instance, is seen
    from end to end. Of shards beyond ``DRAWN_BYTES`` together, some are read whole, and the others' first
    rows alone.

    Raises
    ------
    InputError
        A shard cannot be read.

    """
    n_all = sum(shard.n_rows for shard in listing.shards)
    shards = _spread(listing, MAX_SHARDS if n_all <= n_rows else n_shards)
    scalar, wide = _by_width(listing.schema)
    each = n_rows if n_all <= n_rows else max(1, n_rows // len(shards))
    try:
        whole = _read_whole(shards)
        parts = [
            _drawn(source, listing, shard, scalar, each)
            if place in whole
            else _head(source, listing, shard, scalar, each)
            for place, shard in enumerate(shards)
        ]
        few = _head(source, listing, shards[0], wide, WIDE_ROWS)
    except ConnectorError as error:
        raise InputError(str(error)) from None
    rows = pa.concat_tables(parts)
    return SourceSample(rows, few, len(shards), rows.num_rows == n_all)


def sample_note(sample: SourceSample, listing: Listing) -> str:
    """Return how many rows were looked at, as a phrase; empty if all were."""
    if sample.is_whole:
        return ""
    n_all, n_shards = sum(shard.n_rows for shard in listing.shards), len(listing.shards)
    where = f", from {sample.n_shards} of {n_shards} shards" if n_shards > 1 else ""
    return f"a sample, {sample.rows.num_rows:,} of {n_all:,} rows{where}"


def count_label(source: Source, listing: Listing, label: str, sample: SourceSample) -> LabelCounts:
    """Count the values of the label in all rows of a source that is small enough, else in the sample.

    Raises
    ------
    InputError
        The column's type cannot name classes, or a shard cannot be read.

    """
    whole = _is_small(source, listing)
    counts: dict[object, int] = {}
    rows = 0
    try:
        columns = (
            [_column(source, listing, shard, label) for shard in listing.shards]
            if whole and not sample.is_whole
            else [sample.rows[label] if label in sample.rows.column_names else sample.wide[label]]
        )
        for column in columns:
            rows += len(column)
            for value, n in count_labels(column).items():
                counts[value] = counts.get(value, 0) + n
    except (ConnectorError, OperatorError) as error:
        raise InputError(str(error)) from None
    return LabelCounts(label, counts, rows - sum(counts.values()), whole or sample.is_whole)


def unmatched_labels(source: Source) -> tuple[list[object], list[object]]:
    """Return the keys of ``source.label_map`` that no row has, and the labels that rows have instead.

    Returns nothing where there is no map, or the source is too large to read all labels.

    Raises
    ------
    InputError
        A shard cannot be read.

    """
    while isinstance(source, View):
        source = source.source
    if not isinstance(source, Cleaned) or not source.label_map:
        return [], []
    try:
        listing = source.list()
        if not _is_small(source, listing):
            return [], []
        columns = [source.raw_labels(shard, listing.schema) for shard in listing.shards]
    except CorruptError:
        return [], []
    except ConnectorError as error:
        raise InputError(str(error)) from None
    seen = {value.as_py() for column in columns for value in column.unique()} - {None}
    known = seen | {str(value).lower() if isinstance(value, bool) else str(value) for value in seen}
    return [key for key in source.label_map if key not in known], sorted(seen, key=str)


def _is_small(source: Source, listing: Listing) -> bool:
    """Return whether one column of all rows is read within a second or so: of Parquet, the others are not."""
    while isinstance(source, Wrapper | View):
        source = source.source
    n_bytes = sum(shard.n_bytes for shard in listing.shards)
    n_rows = sum(shard.n_rows for shard in listing.shards)
    columns = len(listing.schema) if isinstance(source, ParquetSource) else 1
    return n_bytes / columns <= COUNTED_BYTES and n_rows <= COUNTED_ROWS


def _column(source: Source, listing: Listing, shard: SourceShard, name: str) -> pa.ChunkedArray:
    try:
        return source.read(shard, [name], listing.schema)[name]
    except CorruptError:
        if not source.skip_corrupt:
            raise
        return pa.chunked_array([], listing.schema.field(name).type)


def _read_whole(shards: Sequence[SourceShard]) -> set[int]:
    """Return the places of the shards that are read whole, spread evenly, up to ``DRAWN_BYTES``."""
    largest = max((shard.n_bytes for shard in shards), default=0)
    n_whole = min(len(shards), max(1, DRAWN_BYTES // max(largest, 1)))
    return {round(place) for place in np.linspace(0, len(shards) - 1, n_whole)}


def _drawn(
    source: Source, listing: Listing, shard: SourceShard, columns: Sequence[str], n_rows: int
) -> pa.Table:
    """Return one row of each of ``n_rows`` stretches of a shard that are equally long, drawn by chance."""
    if shard.n_rows <= n_rows:
        return _head(source, listing, shard, columns, n_rows)
    found = _read(source, listing, shard, columns)
    if found.num_rows <= n_rows:
        return found
    begin = np.arange(n_rows + 1) * found.num_rows // n_rows
    rng = np.random.default_rng([shard.file_row, found.num_rows])
    return found.take(rng.integers(begin[:-1], begin[1:]))


def _head(
    source: Source, listing: Listing, shard: SourceShard, columns: Sequence[str], n_rows: int
) -> pa.Table:
    try:
        part = narrowed(source, shard, n_rows)
    except CorruptError:
        if not source.skip_corrupt:
            raise
        part = shard
    return _read(source, listing, part, columns).slice(0, n_rows)


def _read(source: Source, listing: Listing, shard: SourceShard, columns: Sequence[str]) -> pa.Table:
    """Return columns of a shard; no row of one that cannot be read and may be skipped."""
    try:
        return source.read(shard, columns, listing.schema).select([*columns])
    except CorruptError:
        if not source.skip_corrupt:
            raise
        return pa.schema([listing.schema.field(name) for name in columns]).empty_table()


def _spread(listing: Listing, n_shards: int) -> list[SourceShard]:
    places = np.linspace(0, len(listing.shards) - 1, min(n_shards, len(listing.shards)))
    return [listing.shards[round(place)] for place in places]


def _by_width(schema: pa.Schema) -> tuple[list[str], list[str]]:
    wide = {field.name for field in schema if form_of(field.type) in (Form.VECTOR, Form.IMAGE, Form.OTHER)}
    return [name for name in schema.names if name not in wide], [n for n in schema.names if n in wide]
