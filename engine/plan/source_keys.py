"""The keys of ``source`` with which a dataset can be read, each with its reason, from its first rows.

``inspect_source`` opens a source, lists and samples it, and adds the keys that its bytes or an error require:
options of CSV, spaces, words for missing values, columns of text, structs. :mod:`engine.plan.first_recipe`
makes a recipe of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import ConnectorError, SourceSpec
from connectors.cells import NULLS
from connectors.csv_guess import guess_options
from connectors.csv_options import CsvOptions
from connectors.csv_source import CsvSource
from connectors.encoding_guess import guess_encoding
from connectors.errors import OddValue, redact_uris
from connectors.foundation.messages import shorten
from connectors.foundation.remedies import without_recipe
from connectors.registry import find_connector, open_source
from engine.core.errors import InputError
from engine.plan.sample import SourceSample, draw_sample
from engine.plan.source_columns import share_text, summarise_sample
from operators.base import OperatorError
from operators.encode.column_forms import Form, form_of
from operators.encode.summary import ColumnSummary
from operators.encode.texts import MISSING_TEXTS, NUMBER

MOSTLY = 0.5
"""Share of a column's texts with spaces around them from which ``source.strip`` is set."""
CELL_BYTES = 16 * 2**20
"""Bytes of CSV whose cells are looked at as text."""
LONE_MARKS = ("-", "--", "---", ".", "–", "—", "none", "NONE", "Null", "na", "n.a.", "N.A.")
"""Further texts that stand for a missing value where all others of a column are numbers."""
DOUBTFUL = ("None", "...", *LONE_MARKS)
"""Words for missing that may be a category."""
NUMERIC = re.compile("number|u?int|double|float|bool")
"""How the names of types begin in whose columns a word may stand for a missing value."""
AMONG = "read as null: it stands among numbers"
WORDS = (*(word for word in MISSING_TEXTS if word), *LONE_MARKS)
"""Texts that stand for a missing value where a file has them."""


@dataclass(frozen=True)
class Choice:
    """A value of the recipe's section ``source``, and why it has it."""

    value: Any
    why: str
    words: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Of the key ``missing``: the words that each column holds, with their shares of the rows."""


@dataclass(frozen=True)
class InspectedSource:
    """A source that was opened, listed and sampled with some keys of ``source``."""

    keys: dict[str, Choice]
    format: str
    sample: SourceSample
    summaries: dict[str, ColumnSummary]


def inspect_source(path: str, format: str, shards: int, label: str | None = None) -> InspectedSource:
    """Open a source with the settings that its first rows, and a known label, require. Raises InputError."""
    try:
        found = find_connector(path, format)
        keys: dict[str, Choice] = {} if format == "auto" else {"format": Choice(format, "as --format says")}
        spec = SourceSpec(path, guessed=format == "auto")
        if found.has_encoding:
            encoding, why = guess_encoding(spec, type(found))
            spec = replace(spec, encoding=encoding)
            keys |= {"encoding": Choice(encoding, why)} if why else {}
        if found.name != "csv":
            return _inspect_typed(path, format, found.name, keys, shards)
        guess = guess_options(spec, label)
        if guess.options:
            keys["options"] = Choice(guess.options, guess.why)
        return _inspect_text(spec, format, keys, guess.options, shards)
    except ConnectorError as error:
        raise InputError(without_recipe(str(error)).replace("source.format", "--format")) from None


def _inspect_text(
    spec: SourceSpec, format: str, keys: dict[str, Choice], options: dict[str, Any], shards: int
) -> InspectedSource:
    """Read CSV twice: first all cells as text, to find spaces and words for missing; then with types."""
    cells = CsvSource(spec, CsvOptions(**options)).cells(CELL_BYTES)
    keys = keys | _cell_keys(cells) | _code_keys(cells)
    return _inspect_typed(spec.path, format, "csv", keys, shards)


def _inspect_typed(
    path: str, format: str, name: str, keys: dict[str, Choice], shards: int
) -> InspectedSource:
    """Open, list and sample a source. Raises ConnectorError or InputError."""
    settings = {key: choice.value for key, choice in keys.items() if key != "format"}
    try:
        source = open_source(path, format, **settings)
        listing = source.list()
    except ConnectorError as error:
        known = list(_value(keys, "missing", ()))
        word = _word_for_missing(error.odd_value)
        if word and word not in known:
            words = keys["missing"].words if known else {}
            more = {"missing": Choice([*known, word], AMONG, words)}
        else:
            more = _text_columns(keys, error.odd_value) if name == "csv" else {}
        if not more:
            raise
        return _inspect_typed(path, format, name, keys | more, shards)
    structs = [field.name for field in listing.schema if _is_plain_struct(field.type)]
    if structs and "flatten" not in keys:
        flatten = Choice(
            structs, "their fields become columns, such as " + _first_field(listing.schema, structs)
        )
        return _inspect_typed(path, format, name, keys | {"flatten": flatten}, shards)
    sample = draw_sample(source, listing, n_shards=shards)
    try:
        return InspectedSource(keys, name, sample, summarise_sample(sample))
    except OperatorError as error:
        raise InputError(str(error)) from None


def _text_columns(keys: Mapping[str, Choice], odd: OddValue | None) -> dict[str, Choice]:
    """Return the key ``text_columns`` with the column of an error's value; empty for an error without one."""
    known = list(_value(keys, "text_columns", ()))
    if odd is None or odd.column in known:
        return {}
    before = keys["text_columns"].why + "; " if known else "read as text: "
    why = f"{before}{odd.column} holds {redact_uris(shorten(odd.value))} among other values"
    return {"text_columns": Choice([*known, odd.column], why)}


def _word_for_missing(odd: OddValue | None) -> str:
    """Return the word for a missing value among numbers that an error is about; empty for other errors."""
    if odd is None or not isinstance(odd.value, str) or not NUMERIC.match(odd.expected):
        return ""
    word = odd.value.strip()
    return word if word in WORDS else ""


def _cell_keys(cells: pa.Table) -> dict[str, Choice]:
    """Return the keys ``strip`` and ``missing`` that a table of cells asks for."""
    keys: dict[str, Choice] = {}
    spaced = {}
    missing: dict[str, int] = {}
    columns: dict[str, float] = {}
    seen: dict[str, dict[str, float]] = {}
    for name, column in zip(cells.column_names, cells.columns, strict=True):
        trimmed = pc.utf8_trim_whitespace(column)
        filled = pc.greater(pc.binary_length(trimmed), 0)
        n_filled = pc.sum(filled).as_py() or 0
        n_spaced = pc.sum(pc.and_(filled, pc.not_equal(trimmed, column))).as_py() or 0
        if n_filled and n_spaced >= MOSTLY * n_filled:
            spaced[name] = column
        counts = {word: n for word, n in _counted(trimmed) if word in WORDS}
        seen[name] = {word: counts[word] / len(column) for word in sorted(counts)}
        rest = pc.filter(trimmed, pc.and_not(filled, pc.is_in(trimmed, pa.array(WORDS, trimmed.type))))
        numeric = len(rest) > 0 and bool(pc.all(pc.match_substring_regex(rest, NUMBER)).as_py())
        taken = {word: n for word, n in counts.items() if numeric or word not in DOUBTFUL}
        taken = {word: n for word, n in taken.items() if not (numeric and word in NULLS)}
        missing |= {word: missing.get(word, 0) + n for word, n in taken.items()}
        if taken:
            columns[name] = sum(taken.values()) / len(column)
    if spaced:
        example = next(
            value for value in next(iter(spaced.values())).to_pylist() if value.strip() not in ("", value)
        )
        keys["strip"] = Choice(
            True, f"cells have spaces around them, such as {example!r} in {next(iter(spaced))}"
        )
    if missing:
        # A word that stands for a missing value in one column is read so in all of them.
        words = {name: {word: n for word, n in one.items() if word in missing} for name, one in seen.items()}
        keys["missing"] = Choice(sorted(missing, key=lambda word: -missing[word]), _shares(columns), words)
    return keys


def _code_keys(cells: pa.Table) -> dict[str, Choice]:
    """Return the key ``text_columns`` for columns of digits with leading zeros, which a number would lose."""
    words = pa.array([*WORDS, ""])
    codes = {}
    for name, column in zip(cells.column_names, cells.columns, strict=True):
        trimmed = pc.utf8_trim_whitespace(column)
        values = pc.filter(trimmed, pc.invert(pc.is_in(trimmed, words)))
        padded = pc.filter(values, pc.match_substring_regex(values, "^0[0-9]+$"))
        if len(padded) and pc.all(pc.match_substring_regex(values, "^[0-9]+$")).as_py():
            codes[name] = padded[0].as_py()
    if not codes:
        return {}
    shown = ", ".join(f"{value!r} in {name}" for name, value in [*codes.items()][:3])
    why = f"read as text: numbers would lose the leading zeros of {shown}"
    return {"text_columns": Choice([*codes], why)}


def _counted(column: pa.ChunkedArray) -> Iterable[tuple[str, int]]:
    for entry in pc.value_counts(pc.filter(column, pc.is_in(column, pa.array(WORDS, column.type)))):
        yield entry["values"].as_py(), entry["counts"].as_py()


def _shares(columns: Mapping[str, float]) -> str:
    """Return the columns with most missing values, as a phrase."""
    ordered = sorted(columns.items(), key=lambda pair: -pair[1])
    shown = ", ".join(f"{name} {share_text(share)}" for name, share in ordered[:3])
    return "read as null: " + shown + (f" and {len(ordered) - 3} more columns" if len(ordered) > 3 else "")


def _value(keys: Mapping[str, Choice], name: str, default: Any) -> Any:
    return keys[name].value if name in keys else default


def _is_plain_struct(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind)) and form_of(kind) == Form.OTHER


def _first_field(schema: pa.Schema, structs: Sequence[str]) -> str:
    kind = schema.field(structs[0]).type
    return f"{structs[0]}.{kind.field(0).name}" if kind.num_fields else structs[0]
