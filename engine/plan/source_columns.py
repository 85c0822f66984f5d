"""Use of every column of the source: its kind and how it is used, or why it is not used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from connectors.foundation.messages import first_of
from engine.core.errors import InputError
from engine.core.json_files import read_key
from engine.plan.model import Plan
from engine.plan.sample import SourceSample
from engine.plan.sources import is_published
from engine.recipe.recipe import Recipe
from operators.base import FEATURES, Operator, OperatorError
from operators.embed.params import IMAGE_MODELS
from operators.encode.column_forms import Form, form_of
from operators.encode.column_use import ColumnUse, Kind, Unused, unsupported_type, unused
from operators.encode.datetimes import default_parts
from operators.encode.fitting import kind_options, text_rules
from operators.encode.kinds import decide_kind
from operators.encode.sketches import Histogram
from operators.encode.summary import ColumnSummary, TextRules, summarise
from operators.encoded_features import STATE
from operators.parts.adaptor import NAME as PARTS

ENCODE = "encode"
ROLES = {Unused.LABEL: "label", Unused.TRUTH: "truth", Unused.EXCLUDED: "excluded"}
"""Words for columns that the recipe itself keeps from being features."""

TIMES = "with times of day, of which the hour is a feature by default"
"""Said of dates with a time."""


@dataclass(frozen=True)
class SourceColumn:
    """One column of the source.

    Attributes
    ----------
    name, type
        Its name and Arrow type.
    use
        Its kind, or why it is not used.
    summary
        Figures of its values in the rows that were looked at; None if they were not.
    read_by
        Operators that read it although it is not a feature.

    """

    name: str
    type: str
    use: ColumnUse
    summary: ColumnSummary | None = None
    read_by: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """One word for how the column is used: a kind, ``label``, ``truth``, ``excluded`` or ``unused``."""
        if self.use.reason is None:
            return str(self.use.kind)
        return ROLES.get(self.use.reason, "unused")

    @property
    def about(self) -> str:
        """Reason for not using the column, or its use; else examples of its values and the share missing."""
        parts = [self.use.note] if self.use.note else []
        if self.use.reason is not None and self.kind == "unused" and not self.use.note.startswith(self._why):
            parts = [f"{self._why}: {self.use.note}"]
        if self.use.used and self.summary is not None:
            parts += describe_values(self.summary, free_text=self.use.kind == Kind.TEXT)
            parts += [TIMES] if self.use.kind == Kind.DATETIME and self._has_times(self.summary) else []
        parts += [f"read by operators.{name}" for name in self.read_by]
        return "; ".join(parts)

    def _has_times(self, summary: ColumnSummary) -> bool:
        """Return whether dates have a time of day."""
        points = summary.parsed.get(str(self.use.parameters.get("parse")), summary.histogram)
        return points is not None and "hour" in default_parts(points)

    @property
    def _why(self) -> str:
        return str(self.use.reason)

    def to_json(self) -> dict[str, Any]:
        """Return the column as JSON-able values."""
        found: dict[str, Any] = {"name": self.name, "type": self.type, **self.use.to_json()}
        if self.read_by:
            found["read_by"] = list(self.read_by)
        if self.summary is not None:
            keys = ("missing", "distinct", "examples")
            figures = self.summary.to_json()
            found |= {"rows_seen": self.summary.rows, **{key: figures[key] for key in keys}}
        return found


def describe_values(summary: ColumnSummary, *, free_text: bool = False) -> list[str]:
    """Return phrases about a column's values: their range or the most frequent, and the share missing."""
    found = []
    if free_text and summary.present:
        found.append(
            f"{summary.words / summary.present:.0f} words each, such as {_short(summary.examples(1)[0])!r}"
        )
    elif summary.values is not None and summary.present:
        about = "" if summary.is_exact else "about "
        top = [
            _short(text) + (f" {rows / summary.present:.0%}" if rows >= 0.01 * summary.present else "")
            for text, rows in summary.values.most_frequent(3)
        ]
        more = ", ..." if summary.distinct > len(top) else ""
        noun = "value" if summary.distinct == 1 else "values"
        found.append(f"{about}{summary.distinct:,} {noun}: {', '.join(top)}{more}")
    elif summary.form == Form.VECTOR:
        found.append(f"length {summary.width}")
    elif summary.histogram is not None and summary.histogram.rows:
        found.append(_span(summary, summary.histogram))
    if summary.missing:
        found.append(f"{share_text(summary.missing_share)} missing")
    return [*found, *faults(summary)]


def faults(summary: ColumnSummary) -> list[str]:
    """Return phrases about values that make their rows faulty: their number and the fault."""
    beyond = summary.unusable - summary.infinite
    counts = {
        "infinite": summary.infinite,
        "beyond the range of float32 (3.4e38)": beyond,
        "of another length": summary.other_widths,
    }
    return [f"{n:,} {what}: faults of their rows" for what, n in counts.items() if n]


def _span(summary: ColumnSummary, histogram: Histogram) -> str:
    """Return the least and the largest value."""
    if summary.form in (Form.TIME, Form.BOOLEAN):
        low, *_, high = summary.examples(2) * 2
    else:
        low, high = (_number(value) for value in histogram.quantiles((0.0, 1.0)).tolist())
    return low if low == high else f"{low} to {high}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e15 else f"{value:,.6g}"


def share_text(share: float) -> str:
    """Return a share as a percentage that is never rounded to 0 or 100."""
    return "less than 0.1 %" if share < 0.0005 else "over 99.9 %" if 1 > share > 0.9995 else f"{share:.1%}"


def account_for_columns(plan: Plan, sample: SourceSample) -> tuple[SourceColumn, ...]:
    """Decide about every column of a plan's source, in its order, from a sample of rows.

    Raises
    ------
    InputError
        The recipe names a column as a feature that cannot be used, or gives it a kind that does not fit.

    """
    chain = [planned.operator for planned in plan.operators]
    maker = next((o for o in chain if any(field.name == FEATURES for field in o.adds)), None)
    encode = maker if maker is not None and maker.name == ENCODE else None
    try:
        summaries = summarise_sample(sample, text_rules(encode.params) if encode is not None else None)
        uses = {
            name: _use(plan.recipe, plan.listing.schema, name, summary, maker, encode)
            for name, summary in summaries.items()
        }
    except OperatorError as error:
        raise InputError(str(error)) from None
    _check_used(uses, encode is not None)
    for name in plan.recipe.source.features or ():
        if not uses[name].used:
            raise InputError(
                f"source.features: {name!r} cannot be used, {uses[name].reason}: {uses[name].note}. "
                "Remove it from source.features."
            )
    readers = _readers(chain, plan.listing.schema.names, maker)
    return tuple(
        SourceColumn(
            field.name, str(field.type), uses[field.name], summaries[field.name], readers[field.name]
        )
        for field in plan.listing.schema
    )


def recorded_columns(plan: Plan) -> list[dict[str, Any]]:
    """Return the use of every source column of a plan whose operators are fitted, as JSON-able values.

    What ``encode`` makes of a column is read from its state, which has seen all rows.
    """
    chain = [planned.operator for planned in plan.operators]
    maker = next((o for o in chain if any(field.name == FEATURES for field in o.adds)), None)
    fitted: dict[str, dict[str, Any]] = {}
    if maker is not None and maker.name == ENCODE:
        state = plan.store.state(plan.fingerprint_of(ENCODE)) / STATE
        fitted = read_key(state, "uses", dict)
    found, readers = [], _readers(chain, plan.listing.schema.names, maker)
    for field in plan.listing.schema:
        decided = use_by_recipe(plan.recipe, field.name)
        use = fitted.get(field.name) if decided is None else decided.to_json()
        if use is None:
            use = _unfitted(maker, field).to_json()
        record = {"name": field.name, "type": str(field.type), **use}
        read_by = list(readers[field.name])
        found.append({**record, **({"read_by": read_by} if read_by else {})})
    return found


def _unfitted(maker: Operator[Any] | None, field: pa.Field) -> ColumnUse:
    """Return the use of a column that ``encode`` has no record of."""
    if maker is None or maker.name == "ingest":
        return _as_it_is(field.type)
    if maker.name == ENCODE:
        return unused(Unused.TYPE, unsupported_type(field.name, field.type))
    return _made(maker, field.name, form_of(field.type))


def _check_used(uses: Mapping[str, ColumnUse], encoded: bool) -> None:
    """Raise InputError if no column gives features."""
    if not encoded or any(use.used for use in uses.values()):
        return
    why = [
        f"{name!r} ({use.reason}: {use.note})"
        for name, use in uses.items()
        if use.reason not in (Unused.LABEL, Unused.TRUTH)
    ]
    raise InputError(
        f"No column of the source can be used as a feature: {first_of(why, 5, '; ')}. Name other "
        "columns under source.features, or a kind for one of these under operators.encode.columns."
    )


def summarise_sample(sample: SourceSample, rules: TextRules | None = None) -> dict[str, ColumnSummary]:
    """Summarise every column of a sample. Raises OperatorError."""
    return summarise(sample.rows, rules) | summarise(sample.wide, rules)


def _readers(
    chain: list[Operator[Any]], names: Sequence[str], maker: Operator[Any] | None
) -> dict[str, tuple[str, ...]]:
    """Return for each column the operators that read it, other than the maker of the features."""
    others = [o for o in chain if o is not maker and o.name != "ingest"]
    read = {o.name: {*o.source_columns, *o.text_columns, *o.oracle_columns} for o in others}
    draws = next((o for o in others if o.name == PARTS), None)
    if draws is not None:  # it only hashes the label and the features
        read[PARTS] -= {draws.params.label, *draws.params.features}
    return {name: tuple(reader for reader, held in read.items() if name in held) for name in names}


def _use(
    recipe: Recipe,
    schema: pa.Schema,
    name: str,
    summary: ColumnSummary,
    maker: Operator[Any] | None,
    encode: Operator[Any] | None,
) -> ColumnUse:
    use = use_by_recipe(recipe, name)
    if use is not None:
        return use
    if encode is not None:
        return decide_kind(summary, kind_options(encode.params, name))
    if maker is not None and maker.name != "ingest":
        return _made(maker, name, summary.form)
    return _as_it_is(schema.field(name).type)


def use_by_recipe(recipe: Recipe, name: str) -> ColumnUse | None:
    """Return the use of a column that the section ``source`` or ``truth`` decides; else None."""
    source, truth = recipe.source, recipe.truth
    if name == source.label:
        return unused(Unused.LABEL, "")
    if name in truth.columns:
        key = "group" if name == truth.group else "outlier"
        return unused(Unused.TRUTH, f"truth.{key}, for scores only")
    if name in source.exclude:
        return unused(Unused.EXCLUDED, "by source.exclude")
    if not is_published(recipe, name):
        return unused(Unused.EXCLUDED, "source.columns names others: it is neither used nor published")
    if source.features is not None and name not in source.features:
        return unused(Unused.EXCLUDED, "source.features names others")
    if source.features is None and name.startswith("_"):
        return unused(
            Unused.EXCLUDED, "its name begins with _, as ids of other tools do; source.features can name it"
        )
    return None


def _made(maker: Operator[Any], name: str, form: Form) -> ColumnUse:
    """Return the use of a column where another operator than ``encode`` makes the features."""
    if name not in maker.source_columns:
        columns = ", ".join(maker.source_columns)
        return unused(Unused.EXCLUDED, f"operators.{maker.name} makes the features from {columns} only")
    images = form == Form.IMAGE or getattr(maker.params, "model", "") in IMAGE_MODELS
    kind = Kind.IMAGE if images else Kind.TEXT
    return ColumnUse(kind, note=f"through operators.{maker.name}")


def _as_it_is(kind: pa.DataType) -> ColumnUse:
    """Return the use of a column whose values are the features as they are, without ``encode``."""
    form = form_of(kind)
    if form in (Form.NUMBER, Form.INTEGER):
        return ColumnUse(Kind.NUMERIC)
    if form in (Form.BOOLEAN, Form.VECTOR):
        return ColumnUse(Kind.BOOLEAN if form == Form.BOOLEAN else Kind.VECTOR)
    return unused(Unused.TYPE, f"the type {kind} is not a number; the operator `encode` uses it")


def _short(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:23]}…"
