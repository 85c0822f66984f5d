"""A source whose struct fields are columns: field ``language`` of ``metadata`` is ``metadata.language``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import ConnectorError, SourceShard
from connectors.column_names import check_names
from connectors.foundation.messages import nearest
from connectors.schema import pick
from connectors.wrapper import Wrapper


@dataclass(frozen=True)
class Flattened(Wrapper):
    """A source in which every field inside the named struct columns is a column, at any depth.

    The columns stand where their struct stood. A field of a missing struct is missing.
    """

    path: str
    structs: tuple[str, ...]

    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the named columns of one shard; of a struct, all fields are read."""
        pick(schema, columns, shard.path)
        places = [self._place(name) for name in columns]
        stored = self.source.read(shard, [*dict.fromkeys(place[0] for place in places)], self._stored(schema))
        found = [
            pc.struct_field(stored[place[0]], [*place[1:]]) if len(place) > 1 else stored[place[0]]
            for place in places
        ]
        return pa.table(found, names=[*columns]) if found else stored

    def _shown(self, stored: pa.Schema) -> pa.Schema:
        for name in self.structs:
            self._check(name, stored)
        for name in stored.names:
            struct = next((struct for struct in self.structs if name.startswith(f"{struct}.")), None)
            if struct is not None:
                raise ConnectorError(
                    f"source.flatten: {self.path}: the column {name!r} is named as a field of {struct!r} "
                    f"would be. Give it another name by source.rename."
                )
        fields = [
            found
            for field in stored
            for found in (_leaves(field, field.name) if field.name in self.structs else [field])
        ]
        check_names(f"source.flatten: {self.path}", [field.name for field in fields])
        return pa.schema(fields)

    def _stored(self, shown: pa.Schema) -> pa.Schema:
        fields: dict[str, pa.Field] = {}
        inside: dict[str, list[tuple[tuple[str, ...], pa.DataType]]] = {}
        for field in shown:
            head, *rest = self._place(field.name)
            if rest:
                inside.setdefault(head, []).append((tuple(rest), field.type))
                fields[head] = pa.field(head, pa.null())
            else:
                fields[head] = field
        return pa.schema([pa.field(n, _struct(inside[n])) if n in inside else f for n, f in fields.items()])

    def _place(self, name: str) -> tuple[str, ...]:
        """Return the stored column of a shown one, and the path inside it."""
        for struct in self.structs:
            if name.startswith(f"{struct}."):
                return (struct, *name[len(struct) + 1 :].split("."))
        return (name,)

    def _check(self, name: str, stored: pa.Schema) -> None:
        if name not in stored.names:
            raise ConnectorError(
                f"source.flatten: {self.path} has no column {name!r}.{nearest(name, stored.names)}"
            )
        kind = stored.field(name).type
        if not pa.types.is_struct(kind):
            raise ConnectorError(
                f"source.flatten: column {name!r} of {self.path} has type {kind}, which has no fields. "
                f"Take it out of source.flatten."
            )
        dotted = next((path for path in _names(kind) if "." in path), "")
        if dotted:
            raise ConnectorError(
                f"source.flatten: the field {dotted!r} inside column {name!r} of {self.path} has a point in "
                f"its name, which is ambiguous. Name the fields in source.rename instead."
            )


def _names(kind: pa.DataType) -> Iterator[str]:
    for field in kind:
        yield field.name
        if pa.types.is_struct(field.type):
            yield from _names(field.type)


def _leaves(field: pa.Field, name: str) -> Iterator[pa.Field]:
    if not pa.types.is_struct(field.type):
        yield pa.field(name, field.type)
        return
    for inner in field.type:
        yield from _leaves(inner, f"{name}.{inner.name}")


def _struct(leaves: list[tuple[tuple[str, ...], pa.DataType]]) -> pa.DataType:
    """Return the struct type whose fields lie at these paths, in this order."""
    inside: dict[str, list[tuple[tuple[str, ...], pa.DataType]]] = {}
    for path, kind in leaves:
        inside.setdefault(path[0], []).append((path[1:], kind))
    fields = [
        pa.field(name, found[0][1] if not found[0][0] else _struct(found)) for name, found in inside.items()
    ]
    return pa.struct(fields)
