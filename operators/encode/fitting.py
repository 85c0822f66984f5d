"""Fitting ``encode`` over shards: a pass for summaries, and a second one for columns that need exact counts.

The driver merges what the shards return, in their order: sketches of bounded size, and counts of categories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.base import ROW_ID, Context, Executor, OperatorError, ShardReader
from operators.encode.categories import (
    MAX_TARGET_CLASSES,
    CategoryEncoding,
    Levels,
    TextReading,
    choose_levels,
    rare_method,
)
from operators.encode.datetimes import fit_datetime
from operators.encode.encoding import TableEncoding
from operators.encode.kinds import ColumnUse, Kind, KindOptions, decide_kind
from operators.encode.level_counts import INFREQUENT, NEW, ColumnCounts, TableCounts, write_vocabulary
from operators.encode.numeric import fit_number
from operators.encode.params import EncodeParams
from operators.encode.sketches import MAX_VALUES, Counts
from operators.encode.summary import ColumnSummary, TextRules, summarise
from operators.encode.tags import TagsEncoding, choose_tags
from operators.encode.targets import N_FOLDS, PURPOSE, TargetTable, count_targets
from operators.encode.vectors import TextEncoding, VectorEncoding, text_width
from operators.encode.words import Encoding
from operators.hashing import folds_of
from operators.ingest.labels import class_indices, count_labels
from operators.memory import release_memory


def text_rules(params: EncodeParams) -> TextRules:
    """Return how texts are compared, and which columns are counted as text."""
    named = params.columns.items()
    return TextRules(
        strip=params.categorical.strip,
        fold_case=params.categorical.fold_case,
        missing=params.missing_values,
        as_text=frozenset(name for name, own in named if own.kind == Kind.CATEGORICAL),
        formats={name: own.format for name, own in named if own.format},
    )


def kind_options(params: EncodeParams, name: str) -> KindOptions:
    """Return what the recipe says of the kind of a column."""
    own = params.columns.get(name)
    if own is None:
        return KindOptions(explicit=params.explicit, text_model=has_text_model(params))
    kind = Kind.DATETIME if own.kind is None and own.format else own.kind
    return KindOptions(kind, params.explicit, has_text_model(params), own.format or "")


def has_text_model(params: EncodeParams) -> bool:
    """Return whether the recipe names a network for text whose packages are installed here."""
    from operators.embed.params import NEEDS

    model = params.text.model
    return model is not None and all(find_spec(package) for package in NEEDS.get(model, ()))


@dataclass
class Fitted:
    """Findings of the passes over the shards.

    Attributes
    ----------
    summaries
        Summary of every column, over all shards.
    uses
        How each column is used.
    labels
        Rows of each label; empty without a label.
    classes
        Labels in the order of their class index; empty if they are too many for class shares.

    """

    summaries: dict[str, ColumnSummary] = field(default_factory=dict)
    uses: dict[str, ColumnUse] = field(default_factory=dict)
    labels: Counter[Any] = field(default_factory=Counter)
    classes: list[Any] = field(default_factory=list)


def fit_table(
    params: EncodeParams, context: Context, executor: Executor
) -> tuple[TableEncoding, TableCounts]:
    """Fit the encodings of all columns; leaves the categories of every column in the state folder.

    Returns
    -------
    The encodings, and counts of missing values and categories.

    Raises
    ------
    OperatorError
        A column changes its type between shards, cannot be what the recipe says, or no column is usable.

    """
    found = first_pass(params, context, executor)
    encodings: dict[str, Encoding] = {}
    plans: dict[str, CategoryPlan] = {}
    for name, use in found.uses.items():
        if use.kind == Kind.CATEGORICAL:
            plans[name] = _plan_category(params, found.summaries[name], len(found.classes))
        elif use.used:
            encodings[name] = _simple(params, found.summaries[name], use, executor)
    counted = _second_pass(params, found, plans, context, executor)
    for name, plan in plans.items():
        encodings[name] = _category(params, found.summaries[name], plan, counted.get(name), found)
    ordered = tuple(encodings[name] for name in found.uses if name in encodings)
    about = {
        "seed": context.seed,
        "rows": next((summary.rows for summary in found.summaries.values()), 0),
        "uses": {name: use.to_json() for name, use in found.uses.items()},
        "summaries": {name: summary.to_json() for name, summary in found.summaries.items()},
    }
    fitted = TableEncoding(ordered, about)
    if not fitted.outputs:
        raise OperatorError(_nothing_left(found))
    return fitted, _counts_of(fitted, found, context)


def _counts_of(fitted: TableEncoding, found: Fitted, context: Context) -> TableCounts:
    """Count missing values and categories from the summaries, and keep the categories that are all known."""
    counts: TableCounts = {}
    for index, encoding in enumerate(fitted.columns):
        summary = found.summaries[encoding.source]
        counts[encoding.source] = ColumnCounts(summary.rows, summary.missing)
        sketch = summary.values
        if not isinstance(encoding, CategoryEncoding) or sketch is None:
            continue
        if sketch.is_exact:
            write_vocabulary(context.state, index, sketch.values)
        places = pc.index_in(sketch.values, value_set=pa.array(list(encoding.frequent), pa.large_string()))
        rows = np.zeros(len(encoding.frequent) + 1, np.int64)
        np.add.at(rows, places.fill_null(len(encoding.frequent)).to_numpy(), sketch.counts)
        rows[-1] = summary.present - rows[:-1].sum()
        levels = {f"= {name}": int(n) for name, n in zip(encoding.frequent, rows, strict=False) if name}
        levels |= {INFREQUENT: int(rows[-1]), NEW: 0}
        counts[encoding.source] = ColumnCounts(summary.rows, summary.missing, levels)
    return counts


def first_pass(params: EncodeParams, context: Context, executor: Executor) -> Fitted:
    """Summarise all shards and decide the kind of every column."""
    names = params.features or ()
    found = Fitted()
    task = partial(_summaries, context.shards, names, params.label, text_rules(params))
    for summaries, labels in executor.map(task, range(len(context.shards.shards))):
        for name, summary in summaries.items():
            seen = found.summaries.get(name)
            found.summaries[name] = summary if seen is None else seen.merge(summary)
        if len(found.labels) <= MAX_TARGET_CLASSES:
            found.labels.update(labels)
    if len(found.labels) <= MAX_TARGET_CLASSES:
        found.classes = sorted(found.labels) if params.classes is None else list(params.classes)
    for name, summary in found.summaries.items():
        found.uses[name] = decide_kind(summary, kind_options(params, name))
    return found


def _summaries(
    reader: ShardReader, names: Sequence[str], label: str | None, rules: TextRules, shard: int
) -> tuple[dict[str, ColumnSummary], dict[Any, int]]:
    """Summarise one shard. Runs on a worker."""
    wanted = list(dict.fromkeys([*names, *([label] if label else [])]))
    table = reader.read_source(shard, wanted)
    release_memory()
    try:
        found = summarise(table, rules, names)
    except OperatorError as error:
        raise OperatorError(f"{reader.shards[shard].path}: {error}") from None
    return found, count_labels(table[label]) if label else {}


def _simple(params: EncodeParams, summary: ColumnSummary, use: ColumnUse, executor: Executor) -> Encoding:
    """Fit a column of any kind but categorical."""
    name, numeric = summary.name, params.numeric_of(summary.name)
    if use.kind in (Kind.NUMERIC, Kind.BOOLEAN):
        return fit_number(
            summary,
            str(use.kind),
            scaling=numeric.scaling,
            missing=numeric.missing,
            min_missing_share=params.min_missing_share,
            missing_texts=params.missing_values,
        )
    if use.kind == Kind.DATETIME:
        return fit_datetime(
            summary,
            parts=params.parts_of(name),
            format=str(use.parameters.get("parse", "")),
            fails=numeric.missing == "fail",
            min_missing_share=params.min_missing_share,
            missing_texts=params.missing_values,
        )
    if use.kind == Kind.VECTOR:
        return VectorEncoding(name, summary.width or 0)
    return _tags(params, summary) if use.kind == Kind.TAGS else _text(params, name, executor)


def _tags(params: EncodeParams, summary: ColumnSummary) -> TagsEncoding:
    """Fit a column of lists of texts, whose entries are all counted."""
    own, sketch = params.categorical_of(summary.name), summary.values
    if sketch is None:
        raise OperatorError(f"operators.encode: {summary.name!r} has no lists")
    frequent, bucket = choose_tags(
        sketch.values,
        sketch.counts,
        summary.rows,
        min_share=own.min_share,
        max_columns=own.max_columns,
    )
    least = params.min_missing_share
    indicator = summary.missing > 0 and least <= summary.missing_share <= 1 - least
    reading = reading_of(params)
    return TagsEncoding(
        summary.name, reading.strip, reading.fold_case, reading.missing, frequent, bucket, indicator
    )


def _text(params: EncodeParams, name: str, executor: Executor) -> TextEncoding:
    """Open the network for a column of free text on a worker, and keep the length of its vectors."""
    text = params.text
    options = {
        "model": text.model,
        "column": name,
        "batch_size": text.batch_size,
        "max_tokens": text.max_tokens,
        "precision": text.precision,
    }
    (width,) = executor.map(text_width, [options], resources=params.resources)
    return TextEncoding(name, width, options)


@dataclass(frozen=True)
class CategoryPlan:
    """Work that a categorical column still needs after the first pass.

    Attributes
    ----------
    values
        Categories (v,), ascending, with a null as the last for the missing value if it occurs.
    counts
        Rows of each; lower bounds where the first pass could not keep all categories.
    exact
        Whether they are exact.
    with_targets
        Whether class shares are counted.

    """

    values: pa.Array
    counts: Counts
    exact: bool
    with_targets: bool

    @property
    def needs_pass(self) -> bool:
        """Whether the rows have to be read again."""
        return self.with_targets or not self.exact


def _plan_category(params: EncodeParams, summary: ColumnSummary, n_classes: int) -> CategoryPlan:
    sketch = summary.values
    if sketch is None:
        raise OperatorError(f"operators.encode: {summary.name!r} has no categories")
    values, counts = sketch.values, sketch.counts
    if summary.missing:
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])
        counts = np.append(counts, summary.missing)
    levels = _levels(params, summary, values, counts)
    rare = rare_method(params.categorical_of(summary.name).rare, levels, summary.rows, n_classes)
    uses_targets = rare == "target" and bool(params.label) and levels.infrequent_rows > 0
    return CategoryPlan(values, counts, sketch.is_exact, uses_targets)


def _levels(params: EncodeParams, summary: ColumnSummary, values: pa.Array, counts: Counts) -> Levels:
    """Divide the categories; only those that are frequent become Python objects."""
    own = params.categorical_of(summary.name)
    share = max(own.min_share, 1.0 / MAX_VALUES)
    some = np.flatnonzero(counts >= share * summary.rows)
    return choose_levels(
        values.take(pa.array(some)).to_pylist(),
        counts[some],
        summary.rows,
        min_share=own.min_share,
        max_columns=own.max_columns,
    )


Counted = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Rows of each category by fold and class (v, N_FOLDS, C + 1), and of all categories (N_FOLDS, C + 1); the
last class stands for rows without a label."""


def _second_pass(
    params: EncodeParams,
    found: Fitted,
    plans: Mapping[str, CategoryPlan],
    context: Context,
    executor: Executor,
) -> dict[str, Counted]:
    """Count the categories of some columns by fold and class."""
    wanted = {name: plan.values for name, plan in plans.items() if plan.needs_pass}
    if not wanted:
        return {}
    cells = N_FOLDS * (len(found.classes) + 1)
    counts = {name: np.zeros(len(values) * cells, np.int64) for name, values in wanted.items()}
    totals = {name: np.zeros((N_FOLDS, len(found.classes) + 1), np.int64) for name in wanted}
    readings = {name: reading_of(params) for name in wanted}
    task = partial(_counts, context.shards, wanted, readings, params.label, found.classes, context.seed)
    for shard in executor.map(task, range(len(context.shards.shards))):
        for name, (sparse, total) in shard.items():
            np.add.at(counts[name], sparse[:, 0], sparse[:, 1])
            totals[name] += total
    return {name: (counts[name].reshape(-1, *totals[name].shape), totals[name]) for name in wanted}


def _counts(
    reader: ShardReader,
    wanted: Mapping[str, pa.Array],
    readings: Mapping[str, TextReading],
    label: str | None,
    classes: Sequence[Any],
    seed: int,
    shard: int,
) -> dict[str, Counted]:
    """Count the categories of one shard. Runs on a worker; the counts are sparse."""
    names = list(dict.fromkeys([*wanted, *([label] if label else [])]))
    table = reader.read_source(shard, names)
    n, n_classes = table.num_rows, len(classes)
    first = reader.shards[shard].first_row
    ids = table[ROW_ID].to_numpy() if ROW_ID in table.column_names else np.arange(first, first + n)
    y = class_indices(table[label], list(classes))[0] if label and classes else np.full(n, -1, np.int32)
    y = np.where(y < 0, n_classes, y).astype(np.int32)
    folds = folds_of(ids, N_FOLDS, seed, PURPOSE)
    found = {}
    for name, values in wanted.items():
        texts, rows = readings[name].levels(table[name])
        found[name] = count_targets(texts, rows, y, folds, values, n_classes + 1)
    return found


def reading_of(params: EncodeParams) -> TextReading:
    """Return how the texts of categorical columns are compared."""
    own = params.categorical
    return TextReading(own.strip, own.fold_case, params.missing_values)


def _category(
    params: EncodeParams, summary: ColumnSummary, plan: CategoryPlan, counted: Counted | None, found: Fitted
) -> CategoryEncoding:
    """Fit a categorical column, with exact counts."""
    own, name = params.categorical_of(summary.name), summary.name
    values, counts = plan.values, plan.counts
    by_class = totals = None
    if counted is not None:
        by_class, totals = counted
        # With fewer rows than this a category may be lost by the first pass, as the order of merging decides.
        least = 1 if plan.exact else summary.rows // MAX_VALUES + 1
        counts = by_class.sum(axis=(1, 2))
        kept = np.flatnonzero(counts >= least)
        values, counts, by_class = values.take(pa.array(kept)), counts[kept], by_class[kept]
    levels = _levels(params, summary, values, counts)
    target, hash_columns = None, 0
    if plan.with_targets and by_class is not None and totals is not None:
        names = [str(label) for label in found.classes]
        shown = tuple(names[1:] if len(names) == 2 else names)
        target = TargetTable(values, by_class[:, :, :-1], totals[:, :-1], shown, own.smoothing)
    elif levels.infrequent_rows and rare_method(own.rare, levels, summary.rows, len(found.classes)) == "hash":
        hash_columns = own.hash_columns
    return CategoryEncoding(
        name,
        reading_of(params),
        levels.frequent,
        bucket=levels.bucket and not hash_columns,
        binary=levels.binary and not hash_columns and target is None,
        hash_columns=hash_columns,
        target=target,
    )


def _nothing_left(found: Fitted) -> str:
    unused = "; ".join(f"{name}: {use.note}" for name, use in found.uses.items() if not use.used)
    return (
        "operators.encode: no column gives a feature. "
        + (f"{unused}. " if unused else "")
        + "Name usable columns under source.features, or tell their kinds under operators.encode.columns."
    )
