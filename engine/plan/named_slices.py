"""Names of ``cues`` in a recipe against the rows that a preview has looked at.

The plan checks names against the columns alone. A column may give no feature, a value may occur in no row,
and a cut may lie beyond all values: a run would stop there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from connectors.foundation.messages import closest, cut
from engine.plan.source_columns import SourceColumn
from operators.cues.named.references import columns_of
from operators.cues.params import CuesParams, CueWords, Reference, names_of
from operators.encode.column_use import Kind, Unused
from operators.encode.summary import NUMBER, ColumnSummary
from operators.encode.words import COMPARISON, OR_MISSING
from operators.yaml_text import inline_yaml

N_VALUES, MAX_VALUE = 5, 40
"""Values that are listed where none is similar, and the characters of one."""
VALUE = " = "


def unused_names(cues: CuesParams, columns: Sequence[SourceColumn]) -> Iterator[str]:
    """Name the columns that the recipe calls spurious or legitimate and of which no features are made."""
    unused = {column.name: column for column in columns if column.kind == "unused"}
    for key, name in _names(cues):
        if name in unused:
            remedy = f"tell its kind: operators.encode.columns: {inline_yaml({name: 'categorical'})}"
            if unused[name].use.reason == Unused.IDENTIFIER:  # whose note tells the kind that it can have
                remedy = "give the column this kind"
            yield (
                f"operators.cues.{key} names {name!r}, which is no feature ({unused[name].about}), so that "
                "nothing can be balanced against it, and the run would stop. Take the name away, or "
                f"{remedy}."
            )


def unmatched_slices(cues: CuesParams, columns: Sequence[SourceColumn]) -> Iterator[str]:
    """Name the values and cuts of columns that divide none of the rows that were looked at."""
    used = {column.name: column for column in columns if column.use.used}
    for key, name in _names(cues):
        for known, rest in columns_of(name, [column.name for column in columns]):
            summary = used[known].summary if known in used else None
            if not isinstance(rest, str) or summary is None:
                continue
            why = _why_none(rest.removeprefix(known), used[known], summary)
            if why:
                yield f"operators.cues.{key} names {name!r}, but {why}."


def _why_none(condition: str, column: SourceColumn, summary: ColumnSummary) -> str:
    """Return why a condition divides no rows; empty where it may."""
    compared = COMPARISON.fullmatch(condition.strip().removesuffix(OR_MISSING))
    if column.use.kind == Kind.CATEGORICAL and summary.values is not None:
        texts = [text for text, _ in summary.values.most_frequent(N_VALUES)]
        listed = f" Its values are: {', '.join(repr(cut(text, MAX_VALUE)) for text in texts)}"
        if compared is not None:
            return f"the values of {column.name!r} are texts, which no number is compared with.{listed}"
        value = condition.removeprefix(VALUE)
        known = pc.is_in(pa.scalar(value, summary.values.values.type), value_set=summary.values.values)
        if value == condition or known.as_py():
            return ""
        hint = closest(value, summary.values.values.to_pylist())
        hint = f" The nearest one is {hint!r}" if hint else listed
        return f"no row that was looked at has this value.{hint}"
    numbers = summary.histogram or summary.parsed.get(NUMBER)
    if column.use.kind != Kind.NUMERIC or numbers is None or not numbers.rows:
        return ""
    low, high = (float(bound) for bound in numbers.quantiles([0.0, 1.0]))
    if compared is None:
        if not condition.startswith(VALUE):
            return ""
        return (
            f"{column.name!r} has numbers, which are divided by a cut: {column.name} > {(low + high) / 2:g}"
        )
    bound = float(compared["cut"])
    if low <= bound <= high:
        return ""
    return f"this divides no rows that were looked at: its values go from {low:g} to {high:g}"


def _names(cues: CuesParams) -> Iterator[tuple[str, str]]:
    """Yield the key and each name of a feature; words are looked for in any column."""
    answers = {"spurious": cues.spurious, "legitimate": cues.legitimate}
    for key, references in answers.items():
        yield from ((key, name) for one in references for name in _column_names(one))


def _column_names(reference: Reference) -> tuple[str, ...]:
    return () if isinstance(reference, CueWords) else names_of(reference)
