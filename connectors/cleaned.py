"""A source whose texts are stripped, whose words for "missing" are null, and whose labels are mapped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import ConnectorError, SourceShard
from connectors.cells import clean_texts, is_text
from connectors.foundation.immutable import FrozenDict
from connectors.foundation.messages import nearest
from connectors.schema import pick
from connectors.wrapper import Wrapper

Value = str | int | bool | None


@dataclass(frozen=True)
class Cleaned(Wrapper):
    """A source with cleaned text columns and mapped labels.

    ``strip`` and ``missing`` apply to every text column; dictionaries of texts are then read as text.
    ``label_map`` maps cleaned values of the column ``label`` to others. A value that it does not name is
    kept, and one that it maps to None is missing.
    """

    path: str
    missing: tuple[str, ...] = ()
    strip: bool = False
    label: str = ""
    label_map: Mapping[str | int | bool, Value] = field(default_factory=FrozenDict)

    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the named columns of one shard, cleaned."""
        pick(schema, columns, shard.path)
        table = self.source.read(shard, columns, self._stored(schema))
        for index, name in enumerate(columns):
            column = table.column(index)
            if self._cleans and is_text(column.type):
                column = clean_texts(column, self.missing, self.strip)
            if self.label_map and name == self.label:
                column = self._mapped(column)
            table = table.set_column(index, name, column)
        return table

    def raw_labels(self, shard: SourceShard, schema: pa.Schema) -> pa.ChunkedArray:
        """Read the labels of one shard before ``label_map`` is applied."""
        return replace(self, label_map={}).read(shard, [self.label], self._stored(schema))[self.label]

    @property
    def _cleans(self) -> bool:
        return self.strip or bool(self.missing)

    def _shown(self, stored: pa.Schema) -> pa.Schema:
        fields = [pa.field(f.name, _as_text(f.type)) if self._cleans else f for f in stored]
        if not self.label_map:
            return pa.schema(fields)
        if self.label not in stored.names:
            raise ConnectorError(
                f"source.label: {self.path} has no column {self.label!r}.{nearest(self.label, stored.names)}"
            )
        place = stored.get_field_index(self.label)
        self._check_keys(stored.field(place).type)
        fields[place] = pa.field(self.label, self._value_type)
        return pa.schema(fields)

    def _stored(self, shown: pa.Schema) -> pa.Schema:
        if not self.label_map or self.label not in shown.names:
            return shown
        place = shown.get_field_index(self.label)
        return shown.set(place, pa.field(self.label, self._key_type))

    @property
    def _key_type(self) -> pa.DataType:
        """Type as which labels are read."""
        return _type_of([*self.label_map])

    @property
    def _value_type(self) -> pa.DataType:
        """Type of mapped labels: text if a value of the map, or a label that it does not map, is text."""
        given = [value for value in self.label_map.values() if value is not None]
        kinds = {_type_of(given), self._key_type} if given else {self._key_type}
        return kinds.pop() if len(kinds) == 1 else pa.string()

    def _mapped(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        kind, keys = self._value_type, [*self.label_map]
        values = [None if value is None else _written(value, kind) for value in self.label_map.values()]
        if pa.types.is_string(self._key_type):
            keys = [_written(key, self._key_type) for key in keys]
        found = pc.index_in(column, value_set=pa.array(keys, self._key_type))
        given = pa.array(values, kind).take(found.combine_chunks())
        return pc.if_else(pc.is_valid(found), given, column.cast(kind))

    def _check_keys(self, kind: pa.DataType) -> None:
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        keys = self._key_type
        fits = pa.types.is_string(keys) or (
            pa.types.is_boolean(kind) if pa.types.is_boolean(keys) else pa.types.is_integer(kind)
        )
        if not fits:
            example = next(iter(self.label_map))
            raise ConnectorError(
                f"source.label_map: the label {self.label!r} of {self.path} has type {kind}, and the key "
                f"{example!r} is not a value of it. Write the keys in quotes."
            )


def _as_text(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) and is_text(kind.value_type) else kind


def _type_of(values: Sequence[Value]) -> pa.DataType:
    """Return boolean or integer where all values are that, else text."""
    if all(isinstance(value, bool) for value in values):
        return pa.bool_()
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return pa.int64()
    return pa.string()


def _written(value: str | int | bool, kind: pa.DataType) -> str | int | bool:
    """Return a value as one of type ``kind``; Arrow writes booleans in lower case."""
    if not pa.types.is_string(kind) or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)
