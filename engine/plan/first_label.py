"""The label of a first recipe: the columns that could be it, and the keys of ``source`` that it needs."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from connectors.foundation.messages import first_of, nearest
from engine.core.errors import InputError
from engine.plan.source_keys import Choice, InspectedSource, inspect_source
from operators.base import OperatorError
from operators.counts import count
from operators.encode.column_forms import Form
from operators.encode.summary import ColumnSummary
from operators.ingest.label_checks import LabelCounts, check_labels, has_spaces, merging_map
from operators.ingest.labels import count_labels
from operators.yaml_text import inline_yaml

MAX_CANDIDATES, MAX_NUMBERS = 50, 20
"""Distinct values up to which a column of texts, or one of whole numbers, could be a label."""
MAX_NAMES = 50
"""Names of columns that an error lists."""
MAX_UNLABELLED_SHARE = 0.5
"""A column with at least this share of missing values is not offered as a label."""


@dataclass(frozen=True)
class Candidate:
    """A column that could be the label, with its values and their rows."""

    name: str
    counts: LabelCounts


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


def label_keys(source: InspectedSource, label: str) -> dict[str, Choice]:
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
        keys |= labelled_only(label, counts.missing, ", among those that were looked at")
    return keys


def labelled_only(label: str, missing: int, among: str = "") -> dict[str, Choice]:
    """Return the key ``filter`` that leaves out rows without a label, of which there are ``missing``."""
    why = f"{count(missing, 'row')} without a label{among}"
    return {"filter": Choice([[label, "!=", None]], why)}


def check_column(source: InspectedSource, label: str) -> None:
    """Raise InputError unless the source has the column and its type is one of labels."""
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


def _counts(column: pa.ChunkedArray, name: str, is_whole: bool) -> LabelCounts:
    try:
        counts = count_labels(column)
    except OperatorError as error:
        raise InputError(str(error)) from None
    return LabelCounts(name, counts, len(column) - sum(counts.values()), is_whole)
