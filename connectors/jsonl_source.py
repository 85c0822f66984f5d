"""JSON lines as a source: one object per line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as pj
from pydantic import Field

from connectors.base import Connector, SourceOptions, SourceShard, SourceSpec
from connectors.cells import nulls_for_missing
from connectors.errors import OddValue
from connectors.files import each
from connectors.foundation.messages import shorten
from connectors.json_width import check_width
from connectors.packed_text import CODECS, compression
from connectors.policy import current_policy
from connectors.schema import map_type
from connectors.text_source import Diagnosis, TextSource, whole
from connectors.whole_numbers import check_exact_lines, inexact_in_lines, loss_of, number_of


class JsonlOptions(SourceOptions):
    """Options of a source in the format ``jsonl``."""

    head_bytes: int = Field(
        default=2**20,
        ge=2**10,
        description="Bytes at the start of each shard (of a compressed file: of the file) whose keys become "
        "columns; a key that is in none of these is left out, and named in a warning",
    )


class Jsonl(Connector[JsonlOptions]):
    """Opens sources of the format ``jsonl``."""

    name = "jsonl"
    summary = "JSON lines: one object a line, also compressed"
    extensions = tuple(name + end for name in (".jsonl", ".ndjson", ".json") for end in ("", *CODECS))

    has_encoding = True
    Options = JsonlOptions

    def open(self, spec: SourceSpec, options: JsonlOptions) -> JsonlSource:
        """Return a source that reads JSON lines with the settings of ``spec`` and ``options``."""
        return JsonlSource(spec, options)


@dataclass(frozen=True)
class JsonlSource(TextSource):
    """Reads JSON lines. Texts that look like dates stay texts; a missing key is null.

    Columns are those of the first shard, then those in the first rows of the other shards. Types are those of
    the first shard; the first rows of the others decide where it has no value, and make decimals of whole
    numbers.
    """

    options: JsonlOptions

    kind = Jsonl

    def unread(self, shard: SourceShard, schema: pa.Schema) -> tuple[str, ...]:
        """Return the keys of a shard that ``schema`` lacks; their values are lost. Raises ConnectorError."""
        return unread_keys(self._text(shard.path, shard.start, shard.stop), schema)

    def _widened(self, schema: pa.Schema, shards: Sequence[SourceShard]) -> pa.Schema:
        heads: dict[str, list[SourceShard]] = {}
        for shard in shards:
            if not (compression(shard.path) and shard.path in heads):
                heads.setdefault(shard.path, []).append(shard)
        for found in each(self.spec, [*heads], lambda path: [self._head(shard) for shard in heads[path]]):
            for head in found:
                schema = united(schema, head)
        return schema

    def _head(self, shard: SourceShard) -> pa.Schema:
        """Return the schema of a shard's first rows; empty if they do not parse.

        Reading the shard reports that fault.
        """
        stop = min(shard.stop, shard.start + self.options.head_bytes)
        if stop < shard.stop:
            encoding = self._encoding(shard.path)
            units = encoding.units(self._bytes(shard.path, shard.start, stop))
            stop = shard.start + (units.rfind(b"\n") + 1) * encoding.unit
        data = self._text(shard.path, shard.start, stop)
        try:
            if not data.strip():
                return pa.schema([])
            return _guessed(nulls_for_missing(data, self.spec), shard.path)
        except pa.ArrowInvalid:
            return pa.schema([])

    def _separator(self, path: str) -> str:
        return ""  # JSON escapes row ends inside strings

    def _body(self, path: str, first_path: str) -> int:
        return self._mark_length(path)

    def _infer(self, path: str, data: bytes) -> pa.Schema:
        return _guessed(nulls_for_missing(data, self.spec), path)

    def _resolved(self, schema: pa.Schema) -> pa.Schema:
        return _all_plain(schema)

    def _parse(self, path: str, data: bytes, schema: pa.Schema) -> pa.Table:
        return parse_json(nulls_for_missing(data, self.spec), schema, path)

    def _diagnose(self, path: str, row: bytes, schema: pa.Schema) -> Diagnosis:
        row = nulls_for_missing(row, self.spec)
        text = row.decode()
        if too_deep(row, max_depth()) is not None:
            return Diagnosis(
                f"lists and objects are nested more than {max_depth()} deep. Write the value as text."
            )
        try:
            found = json.loads(text, parse_int=number_of)
        except json.JSONDecodeError as error:
            if text.startswith("\ufeff"):
                return Diagnosis("a byte order mark begins the row, as where files are joined. Remove it.")
            return Diagnosis(
                f"not a JSON object: {error.msg} at character {error.colno}: {shorten(text.strip())}. "
                f"Write one object a line, nothing else (a JSON array can be turned with: jq -c '.[]')."
            )
        if not isinstance(found, dict):
            return Diagnosis(f"{shorten(found)} is not an object. Write one object a line.")
        fault = _diagnose_surrogate(found) or _diagnose_inexact(row, schema)
        return (
            fault
            or _diagnose_object(found, schema)
            or Diagnosis(
                f"the object does not parse: {shorten(text.strip())}. Look for a key that is there twice, or "
                f"a number beyond float64."
            )
        )


def infer_json(data: bytes, place: str = "JSON lines") -> pa.Schema:
    """Return the schema of JSON lines of ``place``.

    Raises ArrowInvalid if their types differ, and ConnectorError where their columns would take far more
    memory than the text.
    """
    return _all_plain(_guessed(data, place))


def parse_json(data: bytes, schema: pa.Schema, place: str = "JSON lines") -> pa.Table:
    """Parse JSON lines of ``place`` with exactly ``schema``.

    Raises ArrowInvalid if a line does not fit, and ConnectorError as :func:`infer_json` does.
    """
    check_depth(data)
    check_width(data, schema, place, _n_objects)
    file, block_size = whole(data)
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    table = pj.read_json(file, read_options=pj.ReadOptions(block_size=block_size), parse_options=options)
    check_exact_lines(data, table)
    return table


def max_depth() -> int:
    """Return how deep lists and objects may be nested: Arrow's recursion crashes at 200,000 levels."""
    return current_policy().json_depth


def check_depth(data: bytes) -> None:
    """Raise ArrowInvalid for JSON that would crash Arrow's parser, and with it the process.

    That is JSON nested deeper than :func:`max_depth`, and a row that is ``null`` instead of an object.
    """
    found = _null_row(data)
    if found is not None:
        raise pa.ArrowInvalid(f"a row is null, not an object, at byte {found}")
    place = too_deep(data, max_depth())
    if place is not None:
        raise pa.ArrowInvalid(f"nested more than {max_depth()} deep at byte {place}")


def too_deep(data: bytes, max_levels: int) -> int | None:
    """Return the offset of the first bracket that is nested deeper than ``max_levels``, else None.

    Brackets inside of strings do not count. Takes linear time and no recursion.
    """
    if data.count(b"[") + data.count(b"{") <= max_levels:
        return None
    values = np.frombuffer(data, np.uint8)
    quotes = _quotes(values)
    places = np.flatnonzero(np.isin(values, [ord(sign) for sign in "[]{}"]))
    places = places[np.searchsorted(quotes, places) % 2 == 0]
    opens = (values[places] == ord("[")) | (values[places] == ord("{"))
    sums = np.cumsum(np.where(opens, 1, -1))
    depths = sums - np.minimum(np.minimum.accumulate(sums), 0)  # unmatched closing brackets do not count
    deep = np.flatnonzero(depths > max_levels)
    return int(places[deep[0]]) if len(deep) else None


def _quotes(values: npt.NDArray[np.uint8]) -> npt.NDArray[np.intp]:
    """Return the offsets of the quotes that begin and end texts."""
    quotes = np.flatnonzero(values == ord('"'))
    slashes = np.flatnonzero(values == ord("\\"))
    if len(slashes) and len(quotes):  # a quote after an odd number of backslashes is escaped
        starts = slashes[np.concatenate(([True], np.diff(slashes) > 1))]
        before = (quotes > 0) & (values[quotes - 1] == ord("\\"))
        run = starts[np.maximum(np.searchsorted(starts, quotes) - 1, 0)]
        quotes = quotes[~(before & ((quotes - run) % 2 == 1))]
    return quotes


def _null_row(data: bytes) -> int | None:
    """Return the offset of the first row that is ``null``, else None. Takes linear time."""
    quotes: npt.NDArray[np.intp] | None = None
    for found in NULL_ROW.finditer(data):
        if quotes is None:
            quotes = _quotes(np.frombuffer(data, np.uint8))
        if np.searchsorted(quotes, found.end()) % 2 == 0:  # else it stands inside of a text
            return found.start()
    return None


def _n_objects(data: bytes) -> int:
    """Return the number of objects in JSON lines; braces inside of strings do not count."""
    values = np.frombuffer(data, np.uint8)
    places = np.flatnonzero(values == ord("{"))
    return int((np.searchsorted(_quotes(values), places) % 2 == 0).sum())


def _guessed(data: bytes, place: str) -> pa.Schema:
    check_depth(data)
    check_width(data, None, place, _n_objects)
    file, block_size = whole(data)
    table = pj.read_json(file, read_options=pj.ReadOptions(block_size=block_size))
    found = table.schema
    try:
        [*_names([*found])]
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"a key is not UTF-8: {error}") from None
    check_exact_lines(data, table)
    return found


def _all_plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, map_type(field.type, _as_text)) for field in schema])


def _diagnose_surrogate(found: dict[str, Any]) -> Diagnosis | None:
    """Name the first key with half of a pair of surrogates, which ``json.loads`` accepts and UTF-8 lacks."""
    for name, value in found.items():
        try:
            json.dumps({name: value}, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            escape = f"\\u{ord(error.object[error.start]):04x}"
            return Diagnosis(
                f"column {name!a}: {escape} is half of a pair of surrogates and stands for no character. "
                f"Write both halves or the character itself, or leave it out. Cut texts between characters."
            )
    return None


def _diagnose_inexact(row: bytes, schema: pa.Schema) -> Diagnosis | None:
    """Name the first whole number of a row that float64 cannot hold where this is its column's type."""
    file, block_size = whole(row)
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer")
    try:
        table = pj.read_json(file, pj.ReadOptions(block_size=block_size), options)
    except pa.ArrowInvalid:
        return None
    found = inexact_in_lines(row, table)
    if found is None:
        return None
    name, value = found
    return Diagnosis(
        f"column {name!r}: {loss_of(value)}. Write the values of the column as texts, in quotes, which keeps "
        f"every digit; or correct them.",
        OddValue(name, value, "float64"),
    )


def _diagnose_object(found: dict[str, Any], schema: pa.Schema) -> Diagnosis | None:
    for name, value in found.items():
        if name not in schema.names:
            continue
        field = schema.field(name)
        if _fits(value, field):
            continue
        fix = "Write the column with one type in all rows"
        if pa.types.is_integer(_innermost(field.type)):
            fix = "Write the column with one type in all rows (3.0, not 3, if others have decimals)"
        if isinstance(value, int) and value.bit_length() > 63:
            fix = "It is beyond int64: write the values of the column as texts, in quotes"
        return Diagnosis(
            f"column {name!r}: {shorten(value)} is not {field.type}, the type of the rows before. "
            f"{fix}, or null where it is missing (source.missing names texts that are read as null); a "
            f"larger source.options.head_bytes lets more rows of each file decide between whole numbers and "
            f"decimals.",
            OddValue(name, value, str(field.type)),
        )
    return None


def _fits(value: Any, field: pa.Field) -> bool:
    try:
        parse_json(json.dumps({field.name: value}).encode(), pa.schema([field]))
    except pa.ArrowInvalid:
        return False
    return True


def _innermost(kind: pa.DataType) -> pa.DataType:
    while pa.types.is_list(kind):
        kind = kind.value_type
    return kind


def _as_text(kind: pa.DataType) -> pa.DataType:
    """Return text for the types that Arrow inferred from dates and from columns without a value."""
    return pa.string() if pa.types.is_temporal(kind) or pa.types.is_null(kind) else kind


KEY = re.compile(rb'"([^"\\]*)"\s*:')
"""A key without escapes. A text value never matches, since quotes within it are escaped."""
NULL_ROW = re.compile(rb"(?<![:,\[ \t\r\n])[ \t\r\n]*null")
"""A ``null`` between rows, on which Arrow 25 crashes, or within a string."""
MAX_REPORTED_KEYS = 100
"""Keys that are named; data whose keys are values may have any number of them."""


def united(known: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Return ``known`` with the columns, also of structs and of structs in lists, that only ``other`` has.

    Nulls take the types of ``other``, and whole numbers become float64 where ``other`` has fractions.
    """
    return pa.schema(_united([*known], [*other]))


def _united(known: list[pa.Field], other: list[pa.Field]) -> list[pa.Field]:
    later = {field.name: field for field in other}
    found = [field.with_type(_wider(field.type, later.pop(field.name, field).type)) for field in known]
    return [*found, *later.values()]


def _wider(known: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_null(known):
        return other
    if pa.types.is_struct(known) and pa.types.is_struct(other):
        return pa.struct(_united([*known], [*other]))
    if pa.types.is_list(known) and pa.types.is_list(other):
        return pa.list_(_wider(known.value_type, other.value_type))
    return other if pa.types.is_integer(known) and pa.types.is_floating(other) else known


def unread_keys(data: bytes, schema: pa.Schema) -> tuple[str, ...]:
    """Return at most ``MAX_REPORTED_KEYS`` keys of JSON lines that no column of ``schema`` holds, sorted.

    The key "a.b" is b inside a. Only rows in which a pattern finds an unknown key are parsed.
    """
    if too_deep(data, max_depth()) is not None:
        return ()  # reading it reports the fault
    names = {name.encode() for name in _names([*schema])}
    if {*KEY.findall(data)} <= names:
        return ()
    found: set[str] = set()
    for row in data.splitlines():
        if not {*KEY.findall(row)} <= names:
            with suppress(ValueError):  # reading it reports the fault
                found.update(_unread(json.loads(row), [*schema]))
        if len(found) >= MAX_REPORTED_KEYS:
            break
    return tuple(sorted(found)[:MAX_REPORTED_KEYS])


def _names(fields: list[pa.Field]) -> Iterator[str]:
    for field in fields:
        yield field.name
        yield from _names([field.type.field(index) for index in range(field.type.num_fields)])


def _unread(value: Any, fields: list[pa.Field]) -> Iterator[str]:
    known = {field.name: field.type for field in fields}
    for key, inner in value.items() if isinstance(value, dict) else ():
        if key not in known:
            yield key
        else:
            yield from (f"{key}.{name}" for name in _inside(inner, known[key]))


def _inside(value: Any, kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(kind):
        yield from _unread(value, [*kind])
    elif pa.types.is_list(kind):
        for inner in value if isinstance(value, list) else ():
            yield from _inside(inner, kind.value_type)
