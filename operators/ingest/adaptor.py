"""``ingest`` over shards: learn classes and widths, then turn each shard's columns into x and y."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.foundation.messages import shorten
from operators.arrays import Float32
from operators.base import (
    FEATURE_FAULT,
    FEATURES,
    LABEL,
    ROW_ID,
    VALID,
    VECTOR,
    Apply,
    CannotPredictError,
    Context,
    Cost,
    DatasetDelta,
    Executor,
    Fault,
    Operator,
    OperatorError,
    ReportContext,
    RowError,
    ShardReader,
)
from operators.bounded_json import read_json
from operators.columns import vectors_with_gaps
from operators.explanations import ExplainedRow, Fact, added_facts
from operators.ingest.kernel import (
    TEXTS,
    Codes,
    Reason,
    assemble_features,
    check_features,
    explain_value,
    feature_widths,
)
from operators.ingest.label_checks import LabelCounts, check_labels, mistyped_labels
from operators.ingest.labels import class_indices, count_labels
from operators.ingest.params import IngestParams
from operators.report import SMALL_CLASSES, Finding, ReportSection
from operators.yaml_text import inline_yaml

STATE = "classes.json"
MAX_CLASSES = 10_000
OTHER_TEXTS = (TEXTS[Reason.NUMBER], TEXTS[Reason.DATE])
"""Faults of texts in a column that `encode` reads as numbers or dates."""


class Ingest(Operator[IngestParams]):
    """Adds ``valid``, ``y`` (class index) and ``x`` (features); the last two are null where not valid.

    Where another operator adds ``x``, as ``embed`` does, its ``x_fault`` says which rows have none.
    """

    name = "ingest"
    version = 2
    cost = Cost(9.80, 4.90, 151)
    Params = IngestParams

    def in_chain(self, chain: Sequence[Operator[Any]]) -> Ingest:
        """Return the operator; where `encode` makes the features, it takes over their widths."""
        found = Ingest(self.params)
        found.uses = tuple(operator.name for operator in chain if operator.name == "encode")
        return found

    @property
    def requires(self) -> tuple[str, ...]:
        """Return no column, or the faults of the features where another operator adds these."""
        return () if self.params.features else (FEATURE_FAULT,)

    @property
    def source_columns(self) -> tuple[str, ...]:
        """Return the label and the features."""
        return (self.params.label, *(self.params.features or ()))

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """Return the added columns ``valid``, ``y`` and ``x``."""
        own = (pa.field(FEATURES, VECTOR),) if self.params.features else ()
        return (pa.field(VALID, pa.bool_()), pa.field(LABEL, pa.int32()), *own)

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Count the labels and measure the vectors; leaves ``classes.json``.

        Classes are the labels of all rows, counts those of the rows to learn from: a class may occur in
        held-out rows only, and has count 0 then.

        Raises
        ------
        OperatorError
            Fewer than two classes, or very many; a label that is a quantity or an identifier; a feature that
            is not a number; a vector column without vectors.
        """
        shards = range(len(context.shards.shards))
        counts: Counter[Any] = Counter()
        for found in executor.map(partial(_count, context, self.params.label), shards):
            counts.update(found)
            _check_few(self.params.label, len(counts))
        _refuse_quantity(LabelCounts(self.params.label, +counts, 0), self.params.classes)
        classes = self._classes(counts)
        widths = self._widths(context, executor) if self.params.features else _encoded_widths(context)
        state = {
            "classes": classes,
            "counts": [counts[value] for value in classes],
            "label": self.params.label,
            "n_features": sum(widths),
            "widths": widths,
        }
        (context.state / STATE).write_text(json.dumps(state), "utf-8")
        features = {"features": float(sum(widths))} if widths else {}
        return {"classes": float(len(classes)), **features}

    @property
    def can_predict(self) -> bool:
        """Return True: classes and widths are known."""
        return True

    def partial_fit(self, context: Context, delta: DatasetDelta, executor: Executor) -> dict[str, float]:
        """Count the labels of the new rows; of all rows where some are gone.

        Raises
        ------
        CannotPredictError
            A label is new, or had no row to learn from before and has one now.
        """
        state = read_json(delta.state / STATE)
        counts = Counter(dict(zip(state["classes"], state["counts"], strict=True)))
        listed, known = {*counts}, {value for value in counts if counts[value]}
        shards = range(len(context.shards.shards)) if delta.rows_removed else delta.new_shards
        counts = Counter() if delta.rows_removed else counts
        for found in executor.map(partial(_count, context, self.params.label), shards):
            if self.params.classes is not None:  # others are faults of their rows
                found = {value: n for value, n in found.items() if value in listed}
            new = [value for value, n in found.items() if value not in (known if n else listed)]
            if new:
                raise CannotPredictError(f"the label {shorten(min(new))} is new: no row had it before")
            counts.update(found)
        state["counts"] = [counts[value] for value in state["classes"]]
        (context.state / STATE).write_text(json.dumps(state), "utf-8")
        return dict(delta.metrics)

    def warnings(self, metrics: Mapping[str, float], state: Callable[[], Path]) -> tuple[str, ...]:
        """Name a class of so few rows that its label may be mistyped; none where the recipe lists classes."""
        if self.params.classes is not None:
            return ()
        said = mistyped_labels(_learnt_labels(self.params.label, read_json(state() / STATE)))
        return (said,) if said else ()

    def report_section(self, context: ReportContext) -> ReportSection | None:
        """Name faults of the label; draw maps of feature space unless another operator adds the features."""
        from operators.planes import vector_maps

        label = _learnt_labels(self.params.label, read_json(context.state / STATE))
        checked = check_labels(label, classes=self.params.classes, balanced=False) if label.counts else []
        names = self.params.features or ()
        maps = vector_maps(context, FEATURES, "Feature space", scaled=len(names) > 1) if names else []
        subjects = {"rare": SMALL_CLASSES}
        findings = [Finding(found.text, "warning", subjects.get(found.kind, "")) for found in checked]
        return (
            ReportSection("Feature space", findings=findings, point_maps=maps) if maps or findings else None
        )

    def open(self, context: Context) -> Apply:
        """Load classes and widths."""
        state = read_json(context.state / STATE)

        def apply(table: pa.Table) -> pa.Table:
            shard = _Shard(self.params, state, table)
            bad = shard.bad
            if bad.any() and self.params.on_error == "fail":
                fault = shard.fault(int(bad.argmax()))
                raise _row_error(fault, self.params.label, context.shards, table)
            columns = {VALID: pa.array(~bad), LABEL: pa.array(shard.y, mask=bad)}
            if self.params.features:
                columns[FEATURES] = vectors_with_gaps(shard.x[~bad], bad)
            return pa.table(columns, schema=pa.schema(list(self.adds)))

        return apply

    def explain(self, context: Context, row: ExplainedRow) -> list[Fact]:
        """Name the class; say whether the row was accepted."""
        accepted = bool(row.value(VALID))
        note = "" if accepted else "the row was set aside, so no other operator has seen it"
        facts = [Fact("accepted", accepted, note)]
        if accepted:
            facts.append(Fact("class", row.class_name(row.value(LABEL)), f"index {row.value(LABEL)}"))
        if accepted and self.params.features:
            facts += added_facts([pa.field(FEATURES, VECTOR)], row)
        return facts

    def faults(self, context: Context, table: pa.Table) -> list[Fault]:
        """Return the first reason of every rejected row of a whole shard."""
        state = read_json(context.state / STATE)
        shard = _Shard(self.params, state, table)
        return [shard.fault(int(row)) for row in np.flatnonzero(shard.bad)]

    def _classes(self, counts: Counter[Any]) -> list[Any]:
        label, declared = self.params.label, self.params.classes
        classes = sorted(counts) if declared is None else list(declared)
        if declared is not None and counts:
            class_indices(pa.chunked_array([pa.array(list(counts))]), classes)  # refuses other types
        present = [value for value in classes if counts[value]]
        if len(present) >= 2:
            return classes
        found = f"its only value is {shorten(present[0])}" if present else "it has no value"
        if declared is None and len(classes) > len(present):
            held = ", ".join(shorten(value) for value in classes if value not in present)
            found += f" among the rows to learn from; {held} occur in rows that source.holdout holds out only"
        if declared is not None:
            found = f"only {shorten(present[0])}" if present else "none"
            found += f" of source.classes {shorten(classes)} occurs in it"
        raise OperatorError(
            f"The label column {label!r} needs at least two classes, but {found}. Name another column as "
            f"source.label, or add rows of the other classes."
        )

    def _widths(self, context: Context, executor: Executor) -> list[int]:
        """Return the number of features of each column, from the first shards that have values."""
        features = self.params.features or ()
        known: list[int | None] = [None] * len(features)
        for shard in range(len(context.shards.shards)):
            (found,) = executor.map(partial(_shard_widths, context.shards, features), [shard])
            known = [old if old is not None else new for old, new in zip(known, found, strict=True)]
            if None not in known:
                return [width for width in known if width is not None]
        raise OperatorError(
            f"The feature column {features[known.index(None)]!r} holds no vector in any row. Drop it from "
            f"source.features."
        )


class _Shard:
    """A shard's rows as arrays, with the reasons of the bad ones."""

    def __init__(self, params: IngestParams, state: dict[str, Any], table: pa.Table) -> None:
        self._params, self._table = params, table
        self._widths = state["widths"] if params.features else []
        self.y, self._label_codes = class_indices(table[params.label], state["classes"])
        self.x: Float32
        self._codes: Codes
        self.x, self._codes = assemble_features(table, params.features or (), self._widths)
        self.bad: npt.NDArray[np.bool_] = (self.y < 0) | self._codes.any(axis=1)
        if not params.features:
            self.bad |= table[FEATURE_FAULT].is_valid().to_numpy()

    def fault(self, row: int) -> Fault:
        """Return the fault of a bad row: its label's, else that of its first bad feature."""
        features = self._params.features
        if self.y[row] < 0:
            name, code, width = self._params.label, self._label_codes[row], 1
        elif features is None:
            return Fault(row, **self._table[FEATURE_FAULT][row].as_py())
        else:
            index = int(np.flatnonzero(self._codes[row])[0])
            name, code, width = features[index], self._codes[row, index], self._widths[index]
        value, reason = explain_value(self._table[name], row, Reason(int(code)), width)
        return Fault(row, name, value, reason)


def _encoded_widths(context: Context) -> list[int]:
    """Return the lengths of the vectors among the features of `encode`, and 1 for each other feature."""
    if "encode" not in context.states:
        return []
    from operators.encoded_features import blocks

    return blocks(context.states["encode"])


def _row_error(fault: Fault, label: str, shards: ShardReader, table: pa.Table) -> RowError:
    row_id = table[ROW_ID][fault.row].as_py()
    first_rows = [shard.first_row for shard in shards.shards]
    shard = int(np.searchsorted(first_rows, row_id, side="right")) - 1
    message = (
        f"column {fault.column!r} {fault.error} (value: {fault.value}). Correct or remove the row, or set "
        f"source.on_error to quarantine."
    )
    if fault.column == label and table[label][fault.row].as_py() is None:
        message += f" To leave such rows out, set source.filter: {inline_yaml([[label, '!=', None]])}."
    if fault.error in OTHER_TEXTS:
        message += (
            f" To use all its values as categories, set operators.encode.columns: "
            f"{inline_yaml({fault.column: 'categorical'})}."
        )
    row = row_id - first_rows[shard]
    return RowError(message, shard=shard, row=row, column=fault.column, value=fault.value)


def _count(context: Context, label: str, shard: int) -> dict[Any, int]:
    """Return the rows to learn from of each label of a shard; 0 for a label of held-out rows only."""
    counts = count_labels(context.shards.read_source(shard, [label])[label])
    if context.all_shards is not None:
        everything = count_labels(context.all_shards.read_source(shard, [label])[label])
        counts = dict.fromkeys(everything, 0) | counts
    _check_few(label, len(counts))
    return counts


def _learnt_labels(label: str, state: Mapping[str, Any]) -> LabelCounts:
    """Return the rows to learn from of each class that has any, from the state."""
    counts = zip(state["classes"], state.get("counts", ()), strict=False)
    present = {value: rows for value, rows in counts if rows}
    return LabelCounts(label, present, 0, counted="rows to learn from")


def _check_few(label: str, n_classes: int) -> None:
    if n_classes > MAX_CLASSES:
        raise OperatorError(
            f"The label column {label!r} has more than {MAX_CLASSES} different values, so it names no "
            f"classes. Name another column as source.label."
        )


def _refuse_quantity(label: LabelCounts, classes: Sequence[Any] | None) -> None:
    """Raise OperatorError for what `validate` refuses too: a run need not have been validated."""
    for finding in check_labels(label, classes=classes, balanced=False):
        if finding.fatal and finding.kind == "quantity":
            raise OperatorError(finding.text)


def _shard_widths(reader: ShardReader, features: Sequence[str], shard: int) -> tuple[int | None, ...]:
    table = reader.read_source(shard, features)
    check_features(table, features)
    return feature_widths(table, features)
