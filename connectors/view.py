"""A source with some rows left out and columns renamed, whatever its format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import ConnectorError, CorruptError, LateColumns, Listing, Source, SourceShard, narrowed
from connectors.column_names import check_names
from connectors.files import no_row
from connectors.filters import Predicate
from connectors.schema import pick


@dataclass(frozen=True)
class ViewShard(SourceShard):
    """Rows of ``whole`` that the filter lets through."""

    whole: SourceShard
    schema: pa.Schema


@dataclass(frozen=True)
class View:
    """A source seen through ``rename`` (old name -> new name), then ``filter`` (in new names).

    An old name may be that of a field inside a struct column, ``metadata.language``: the field becomes a
    column of its own, and the struct stays. Row ids are dense over the rows that are left; the filter's
    columns are read once to count them.
    """

    source: Source
    path: str
    rename: Mapping[str, str]
    filter: Predicate | None

    @property
    def skip_corrupt(self) -> bool:
        """Return whether the underlying source leaves out files that cannot be read."""
        return self.source.skip_corrupt

    def list(self) -> Listing:
        """List the underlying source with the renamed schema, without shards that the filter empties.

        Raises ConnectorError where the filter names an unknown column or leaves no row.
        """
        found = self.source.list()
        schema = self._schema(found.schema)
        if self.filter is None:
            return Listing(schema, found.shards, found.identities, found.skipped)
        self.filter.expression(schema)  # an unknown column is named before anything is read
        counted = (self._counted(shard, schema) for shard in found.shards)
        shards = [shard for shard in counted if shard.n_rows]
        if not shards:
            raise no_row(self.path, found.skipped, filtered=True)
        kept = {shard.path: found.identities[shard.path] for shard in shards}
        return Listing(schema, tuple(shards), kept, found.skipped)

    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the named columns of the rows that are left."""
        if not isinstance(shard, ViewShard):
            table = self._read(shard, columns, schema)
            if self.filter is not None:
                raise CorruptError(f"{shard.path} could not be read when it was listed. Plan and run again.")
            return table
        predicate = _given(self.filter)
        table = self._read(shard.whole, [*dict.fromkeys([*columns, *predicate.columns])], schema)
        kept = table.filter(predicate.mask(table))
        if kept.num_rows != shard.n_rows:
            raise ConnectorError(f"{shard.path} has changed since it was listed. Plan and run again.")
        return kept.select([*columns])

    def locate(self, shard: SourceShard, row: int) -> str:
        """Name a row of the view by its place in the file of the underlying source."""
        if not isinstance(shard, ViewShard):
            return self.source.locate(shard, row)
        return self.source.locate(shard.whole, self._positions(shard)[row])

    def file_rows(self, shard: SourceShard, rows: Sequence[int]) -> Sequence[int]:
        """Return the 0-based positions in their file of rows of the view."""
        if not isinstance(shard, ViewShard):
            return self.source.file_rows(shard, rows)
        positions = self._positions(shard)
        return self.source.file_rows(shard.whole, [positions[row] for row in rows])

    def unread(self, shard: SourceShard, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns of a shard that the listed schema lacks, under the names of the source."""
        if not isinstance(self.source, LateColumns):
            return ()
        whole = shard.whole if isinstance(shard, ViewShard) else shard
        return self.source.unread(whole, _stored(self.rename, schema))

    def narrowed(self, shard: SourceShard, n_rows: int) -> SourceShard:
        """Return a shard of the first rows; the whole shard where the filter leaves none of those."""
        if not isinstance(shard, ViewShard):
            return narrowed(self.source, shard, n_rows)
        if n_rows >= shard.n_rows:
            return shard
        found = self._counted(narrowed(self.source, shard.whole, n_rows), shard.schema)
        return found if found.n_rows else shard

    def _counted(self, shard: SourceShard, schema: pa.Schema) -> SourceShard:
        predicate = _given(self.filter)
        try:
            mask = predicate.mask(self._read(shard, predicate.columns, schema))
        except CorruptError:
            if not self.skip_corrupt:
                raise
            return shard  # it keeps its place, and its rows are dropped
        same = {field.name: getattr(shard, field.name) for field in fields(SourceShard)}
        return ViewShard(**same | {"n_rows": pc.sum(mask).as_py() or 0}, whole=shard, schema=schema)

    def _positions(self, shard: ViewShard) -> Sequence[int]:
        """Return the positions in the whole shard of the rows that are left."""
        predicate = _given(self.filter)
        mask = predicate.mask(self._read(shard.whole, predicate.columns, shard.schema))
        return [int(place) for place in np.flatnonzero(mask.to_numpy())]

    def _read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Return the columns by their new names."""
        inner = _stored(self.rename, schema)
        origin = _origin(self.rename, inner)
        places = [origin.get(name, (name,)) for name in columns]
        pick(schema, columns, shard.path)
        table = self.source.read(shard, [*dict.fromkeys(place[0] for place in places)], inner)
        found = [_field(table[place[0]], place[1:]) for place in places]
        return pa.table(found, names=[*columns]) if found else table

    def _schema(self, stored: pa.Schema) -> pa.Schema:
        """Return the source's schema after renaming. Raises ConnectorError for a column that is not there."""
        origin = _origin(self.rename, stored)
        for place in origin.values():
            if len(place) > 1 and (name := ".".join(place)) in stored.names:
                raise ConnectorError(
                    f"source.rename: {self.path} has a column {name!r}, and the struct {place[0]!r} has a "
                    f"field of that name, so that {name!r} may be either. Name one of them otherwise where "
                    f"the data are written."
                )
        new = {place[0]: name for name, place in origin.items() if len(place) == 1}
        pick(stored, [*new], "source.rename: the source")
        fields = [field.with_name(new.get(field.name, field.name)) for field in stored]
        for name, place in origin.items():
            if len(place) > 1:
                fields.append(pa.field(name, _inside(stored.field(place[0]).type, place[1:])))
        check_names(f"source.rename: {self.path}", [field.name for field in fields])
        return pa.schema(fields)


def pushed(
    predicate: Predicate | None, rename: Mapping[str, str], *, texts: bool = True, mapped: str = ""
) -> Predicate | None:
    """Return the part of a filter that a source can evaluate itself, under its own names of columns.

    Conditions on the column ``mapped`` are left out. Without ``texts`` those on texts are, because the stored
    texts are not yet those that the filter compares.
    """
    if predicate is None:
        return None
    old = {new: name for name, new in rename.items()}
    names = {name: old.get(name, name) for name in predicate.columns}
    names.pop(mapped, None)
    if not texts:
        names = {name: found for name, found in names.items() if _asks_numbers(predicate, name)}
    return predicate.renamed({new: name for new, name in names.items() if "." not in name})


def _asks_numbers(predicate: Predicate, name: str) -> bool:
    """Return whether a filter compares a column with numbers alone."""
    values = [value for clauses in predicate.conjunctions for column, _, value in clauses if column == name]
    flat = [one for value in values for one in (value if isinstance(value, tuple) else (value,))]
    return all(isinstance(one, int | float) for one in flat)


def _origin(rename: Mapping[str, str], stored: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Map each new name to its stored column, followed by the path inside it if it was a struct's field."""
    found = {}
    for old, new in rename.items():
        head, *rest = old.split(".")
        nested = rest and head in stored.names and _inside(stored.field(head).type, rest) is not None
        found[new] = (head, *rest) if nested else (old,)
    return found


def _stored(rename: Mapping[str, str], schema: pa.Schema) -> pa.Schema:
    """Return the columns of a renamed schema by their stored names."""
    old = {new: name for name, new in rename.items()}
    plain = [field.with_name(old.get(field.name, field.name)) for field in schema]
    heads = pa.schema([field for field in plain if "." not in field.name])
    nested = {".".join(place) for place in _origin(rename, heads).values() if len(place) > 1}
    return pa.schema([field for field in plain if field.name not in nested])


def _inside(kind: pa.DataType, path: Sequence[str]) -> pa.DataType | None:
    """Return the type of a field inside a struct type, or None where there is no such field."""
    for name in path:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return None
        kind = kind.field(name).type
    return kind


def _field(column: pa.ChunkedArray, path: Sequence[str]) -> pa.ChunkedArray:
    return pc.struct_field(column, [*path]) if path else column


def _given(predicate: Predicate | None) -> Predicate:
    if predicate is None:
        raise ConnectorError("These shards were listed with a source.filter. Plan and run again.")
    return predicate
