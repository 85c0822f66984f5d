"""Preview of a plan before it runs: the use of every source column, and faults of the label."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import ConnectorError
from connectors.csv_guess import doubtful_marks
from connectors.csv_source import CsvSource
from connectors.foundation.messages import nearest
from connectors.view import View
from connectors.wrapper import Wrapper
from engine.core.errors import InputError
from engine.plan.column_names import names_alike
from engine.plan.doubtful_values import (
    OF_SOURCE,
    codes_among_categories,
    codes_of_nines,
    doubtful_categories,
    numbers_as_text,
)
from engine.plan.estimate import TEXTS_PER_SECOND
from engine.plan.executor_choice import missing_rows
from engine.plan.likely_leaks import leak_text, likely_leaks, unsought_text
from engine.plan.model import Plan
from engine.plan.named_slices import unmatched_slices, unused_names
from engine.plan.sample import SourceSample, count_label, draw_sample, sample_note, unmatched_labels
from engine.plan.source_columns import ENCODE, SourceColumn, account_for_columns, faults, share_text
from engine.recipe.errors_of_file import errors_of_file
from operators.columns import is_number
from operators.cues.params import CuesParams
from operators.encode.amount_use import AMOUNT
from operators.encode.column_use import Kind, Unused, missing_network
from operators.ingest.label_checks import LabelCounts, LabelFinding, check_labels
from operators.leaks import Leak
from operators.yaml_text import inline_yaml

WORDS_PER_TOKEN = 0.75
"""Words that a word piece of the network stands for on average, in English."""
MIN_CUT_SHARE = 0.1
"""Share of the texts of a column from which it is said that they are read in part."""
MAX_TOKENS = 512
"""Word pieces that the network can read."""
CELL_BYTES = 2**20
"""Bytes of a CSV file whose cells are looked at for words that are read as null."""
UNBALANCED = ("uniform", "group_balanced")
"""Methods of ``weights`` that do not give every class the same sum."""


@dataclass(frozen=True, kw_only=True)
class Preview:
    """The columns and the label of a plan's source.

    Attributes
    ----------
    columns
        Every source column in the order of the source.
    label
        Rows of each value of the label.
    findings
        Faults and doubts about the label.
    note
        Which rows were looked at; empty if all were.
    leaks
        Columns in use that tell the label of these rows on their own.
    faults
        Columns in use with values that would end the run, names of ``cues`` that are no features, and a
        network for free text that is not installed, with the remedy.
    marks
        Columns of CSV whose numbers contradict the decimal point of the recipe.
    names
        Columns that are not left out and whose names look the same.
    numbers
        Columns of numbers that are read as text.
    values
        Columns in which "none" is read as missing, whose categories differ in case alone, or with a number
        such as 9999 that may stand for a missing value; and values and cuts named under ``cues`` that divide
        none of the rows that were looked at, where these are not all.
    cut
        Columns of free text whose rows are often longer than what the network reads of them.
    skipped
        Sentence that names the files that cannot be read and are left out.

    """

    columns: tuple[SourceColumn, ...]
    label: LabelCounts
    findings: tuple[LabelFinding, ...]
    note: str
    leaks: tuple[Leak, ...] = ()
    faults: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def n_texts(self) -> int:
        """Return the number of columns of free text that a network reads."""
        return sum(column.use.kind == Kind.TEXT for column in self.columns)

    @property
    def unread_texts(self) -> list[str]:
        """Return a sentence for each column of free text that no network reads, with the remedy."""
        unread = (column for column in self.columns if column.use.reason == Unused.TEXT)
        return [f"{column.name} is not used: {column.use.note}" for column in unread]

    @property
    def doubtful_uses(self) -> list[str]:
        """Return a sentence for each column whose use may be wrong, with the remedy."""
        doubtful = (column for column in self.columns if column.use.warning)
        return [f"column {column.name!r}: {column.use.warning}." for column in doubtful]

    def to_json(self) -> dict[str, Any]:
        """Return the preview as JSON-able values."""
        return {
            "columns": [column.to_json() for column in self.columns],
            "seen": self.note or "all rows",
            "label": {
                "name": self.label.name,
                "counts": [{"value": value, "rows": rows} for value, rows in self.label.sorted[:1000]],
                "distinct": len(self.label.counts),
                "missing": self.label.missing,
                "is_exact": self.label.is_exact,
            },
            "likely_leaks": [asdict(leak) for leak in self.leaks],
            "warnings": [{"kind": kind, "text": text} for kind, text in self.warnings()],
        }

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield the kind and the text of everything that is wrong or doubtful."""
        yield from ((finding.kind, finding.text) for finding in self.findings)
        yield from (("fault", text) for text in self.faults)
        yield from (("marks", text) for text in self.marks)
        yield from (("names", text) for text in self.names)
        yield from (("numbers", text) for text in self.numbers)
        yield from (("values", text) for text in self.values)
        yield from (("cut", text) for text in self.cut)
        yield from (("skipped", text) for text in self.skipped)
        yield from (("column", text) for text in self.doubtful_uses)
        yield from (("leak", leak_text(leak)) for leak in self.leaks)


def preview(plan: Plan) -> Preview:
    """Look at a sample of the rows of a plan's source, and at all labels where they are quickly read.

    Raises
    ------
    InputError
        A column cannot be used as the recipe says, or the source cannot be read.

    """
    with errors_of_file(plan.recipe):
        return _preview(plan)


def _preview(plan: Plan) -> Preview:
    source, recipe = plan.recipe.source, plan.recipe
    sample = draw_sample(plan.source, plan.listing)
    columns = account_for_columns(plan, sample)
    label = count_label(plan.source, plan.listing, source.label, sample)
    method = recipe.operators.get("weights", {}).get("method", "robust")
    findings = check_labels(
        label,
        classes=source.classes,
        tolerated=source.max_error_rate if source.on_error == "quarantine" else 0.0,
        balanced=method not in UNBALANCED,
    )
    findings += _unmapped(plan)
    cues = _cues_on_columns(plan)
    unmatched = tuple(unmatched_slices(cues, columns))
    unsought = unsought_text(label, sample)
    findings += [LabelFinding("unsought", unsought)] if unsought else []
    return Preview(
        columns=columns,
        label=label,
        findings=tuple(findings),
        note=sample_note(sample, plan.listing),
        leaks=likely_leaks(plan, sample),
        faults=(
            *_faulty(plan, columns),
            *unused_names(cues, columns),
            *(unmatched if sample.is_whole else ()),
            *_missing_network(plan, columns),
        ),
        marks=_marks(plan, columns),
        names=tuple(names_alike([one.name for one in columns if one.use.reason != Unused.EXCLUDED])),
        numbers=_numbers_as_text(plan, columns),
        values=(
            *_doubtful_categories(plan, columns, sample),
            *_codes_of_csv(plan, columns),
            *_codes_of_nines(plan, columns),
            *_no_truth(plan, sample),
            *(() if sample.is_whole else unmatched),
        ),
        cut=tuple(_cut_texts(plan, columns, sample)),
        skipped=plan.skipped_files,
    )


def pending_text_seconds(plan: Plan, found: Preview) -> float:
    """Estimate the CPU seconds that the network of ``encode`` still needs for the columns of free text.

    They are not part of the work by which the executor is chosen: only the values tell which columns these
    are.
    """
    rows = sum(missing_rows(plan, planned) for planned in plan.operators if planned.name == ENCODE)
    return found.n_texts * rows / TEXTS_PER_SECOND


def _cut_texts(plan: Plan, columns: Sequence[SourceColumn], sample: SourceSample) -> Iterator[str]:
    """Name the columns of free text of which many rows have more words than the network reads."""
    encode = next((one.operator for one in plan.operators if one.name == ENCODE), None)
    if encode is None:
        return
    most = encode.params.text.max_tokens
    for column in columns:
        if column.use.kind != Kind.TEXT:
            continue
        words = pc.count_substring_regex(sample.rows[column.name].cast(pa.large_string()), r"\S+")
        long = pc.greater(words, int(most * WORDS_PER_TOKEN))
        share = pc.mean(long).as_py() or 0.0
        if share >= MIN_CUT_SHARE:
            yield (
                f"column {column.name!r}: about {share:.0%} of the texts are read in part: the network sees "
                f"the first {most} word pieces, some {int(most * WORDS_PER_TOKEN)} words. To read more, set "
                f"operators.encode.text.max_tokens, at most {MAX_TOKENS}; the time grows with it."
            )


def _missing_network(plan: Plan, columns: Sequence[SourceColumn]) -> Iterator[str]:
    """Say that this machine lacks the network for the columns of free text."""
    texts = [column.name for column in columns if column.use.kind == Kind.TEXT]
    encode = next((one.operator for one in plan.operators if one.name == ENCODE), None)
    lack = missing_network(encode.params.text.model) if texts and encode is not None else ""
    if lack:
        yield f"column {texts[0]!r}: free text, for which a run on this machine would stop. {lack}."


def _marks(plan: Plan, columns: Sequence[SourceColumn]) -> tuple[str, ...]:
    """Name the columns of CSV whose numbers contradict ``source.options``."""
    source = _files_of(plan)
    if not isinstance(source, CsvSource):
        return ()
    try:
        amounts = [one.name for one in columns if one.use.parameters.get("parse") == AMOUNT]
        return tuple(doubtful_marks(source.spec, source.options, amounts))
    except ConnectorError as error:
        raise InputError(str(error)) from None


def _files_of(plan: Plan) -> Any:
    """Return the source that reads the files, without what changes its columns or leaves out rows."""
    source: Any = plan.source
    while isinstance(source, Wrapper | View):
        source = source.source
    return source


def _codes_of_nines(plan: Plan, columns: Sequence[SourceColumn]) -> Iterator[str]:
    """Name the columns with a number that may stand for a missing value."""
    is_csv = isinstance(_files_of(plan), CsvSource)
    return codes_of_nines(columns, plan.recipe.source.missing or (), is_csv=is_csv)


def _codes_of_csv(plan: Plan, columns: Sequence[SourceColumn]) -> Iterator[str]:
    """Name the columns of CSV of which a word in ``source.missing`` may be a code: they are read as null."""
    source = _files_of(plan)
    if not isinstance(source, CsvSource) or not source.spec.missing:
        return
    try:
        cells = source.cells(CELL_BYTES)
    except ConnectorError as error:
        raise InputError(str(error)) from None
    yield from codes_among_categories(
        columns, cells, source.spec.missing, plan.recipe.source.label, OF_SOURCE
    )


def _numbers_as_text(plan: Plan, columns: Sequence[SourceColumn]) -> tuple[str, ...]:
    """Name the columns of numbers that ``encode`` takes as text."""
    encode = next((one.operator for one in plan.operators if one.name == ENCODE), None)
    if encode is None:
        return ()
    return tuple(numbers_as_text(columns, plan.recipe.source.missing or (), encode.params.columns))


def _doubtful_categories(
    plan: Plan, columns: Sequence[SourceColumn], sample: SourceSample
) -> tuple[str, ...]:
    """Name the columns whose categories ``encode`` may take otherwise than they are meant."""
    encode = next((one.operator.params for one in plan.operators if one.name == ENCODE), None)
    if encode is None:
        return ()
    fold_case = encode.categorical.fold_case
    found = doubtful_categories(
        columns, sample.rows, encode.columns, encode.missing_values, fold_case=fold_case
    )
    codes = codes_among_categories(columns, sample.rows, encode.missing_values, plan.recipe.source.label)
    return (*found, *codes)


def _no_truth(plan: Plan, sample: SourceSample) -> Iterator[str]:
    """Say that a column of outliers holds numbers that are neither true nor false."""
    name = plan.recipe.truth.outlier
    if name is None or name not in sample.rows.column_names or not is_number(sample.rows[name].type):
        return
    values = sample.rows[name].cast(pa.float64(), safe=False).drop_null()
    known = pa.array([0.0, 1.0, math.nan])
    other = values.filter(pc.invert(pc.is_in(values, known)))
    if len(other):
        yield (
            f"truth.outlier: the column {name!r} holds numbers that are neither true nor false, such as "
            f"{other[0].as_py():g}; no score of outliers counts these rows, "
            f"{share_text(len(other) / len(values))} of all. Name a column of booleans, or of 0 and 1."
        )


def _faulty(plan: Plan, columns: Sequence[SourceColumn]) -> tuple[str, ...]:
    """Name the columns whose values would end the run, as their rows are not set aside or are too many."""
    source = plan.recipe.source
    tolerated = source.max_error_rate if source.on_error == "quarantine" else 0.0
    found = []
    for column in columns:
        summary = column.summary
        if not column.use.used or summary is None or not summary.rows:
            continue
        share = (summary.unusable + summary.other_widths) / summary.rows
        if share > tolerated:
            found.append(
                f"column {column.name!r}: {'; '.join(faults(summary))}, {share_text(share)} of the rows, and "
                f"the run would stop. Set them aside with source.on_error: quarantine and "
                f"source.max_error_rate: {min(1.0, round(share * 1.1 + 0.005, 2))}, or leave the column out "
                f"with source.exclude: {inline_yaml([column.name])}."
            )
    return tuple(found)


def _cues_on_columns(plan: Plan) -> CuesParams:
    """Return the parameters of ``cues`` whose names are those of source columns; without names else."""
    cues = next((one.operator.params for one in plan.operators if one.name == "cues"), None)
    encoded = any(one.name == ENCODE for one in plan.operators)
    return cues if encoded and isinstance(cues, CuesParams) else CuesParams()


def _unmapped(plan: Plan) -> list[LabelFinding]:
    """Name the keys of ``source.label_map`` that occur nowhere, with the nearest label."""
    keys, labels = unmatched_labels(plan.source)
    texts = [str(label) for label in labels]
    return [
        LabelFinding(
            "unmapped",
            f"source.label_map: no row has the label {key!r}."
            + (nearest(str(key), texts) or f" The labels are: {', '.join(texts[:20])}."),
        )
        for key in keys
    ]


def check_label(found: Preview) -> None:
    """Raise InputError for a label that cannot be used."""
    for finding in found.findings:
        if finding.fatal:
            raise InputError(finding.text)
