"""Fitting the categorical columns of ``encode``: frequent categories, and class shares of the others.

The first pass over the shards counts the categories of a column, exactly up to ``MAX_VALUES`` of them. A
second pass counts those that the first one could not, and the classes and folds of each category. Where all
columns together would give too many features (:mod:`operators.encode.shared_features`), a third one counts
the classes of columns whose categories beyond the limit get class shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.base import ROW_ID, Context, Executor, OperatorError, ShardReader
from operators.encode.categories import CategoryEncoding, Levels, TextReading, choose_levels, rare_method
from operators.encode.params import EncodeParams
from operators.encode.shared_features import shared_limits
from operators.encode.sketches import MAX_VALUES, Counts
from operators.encode.summary import ColumnSummary
from operators.encode.targets import N_FOLDS, PURPOSE, TargetTable, count_targets
from operators.hashing import folds_of
from operators.ingest.labels import class_indices

ClassCounts = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Rows of each category by fold and class (v, N_FOLDS, C + 1), and of all categories (N_FOLDS, C + 1); the
last class stands for rows without a label."""


@dataclass(frozen=True)
class CategoryPlan:
    """The categories of a column after the first pass, and the work that is left.

    Attributes
    ----------
    values : categories (v,), ascending, with a null as the last for the missing value if it occurs.
    counts : rows of each; lower bounds where the first pass could not keep all categories.
    exact : whether they are exact.
    with_targets : whether class shares are counted.
    """

    values: pa.Array
    counts: Counts
    exact: bool
    with_targets: bool

    @property
    def needs_pass(self) -> bool:
        """Return whether the rows have to be read again."""
        return self.with_targets or not self.exact


@dataclass(frozen=True)
class CategoryFit:
    """The fitted categorical columns.

    Attributes
    ----------
    encodings : of each column.
    limited : features of the columns that share ``MAX_FEATURES`` and get fewer than alone, and those that
        each would have alone.
    """

    encodings: Mapping[str, CategoryEncoding]
    limited: Mapping[str, tuple[int, int]]


def fit_categories(
    params: EncodeParams,
    summaries: Mapping[str, ColumnSummary],
    classes: Sequence[Any],
    context: Context,
    executor: Executor,
) -> CategoryFit:
    """Fit all categorical columns.

    Parameters
    ----------
    params : parameters of the operator.
    summaries : summaries of the columns, in their order.
    classes : labels in the order of their class index.
    """
    plans = {name: plan_category(params, summary, len(classes)) for name, summary in summaries.items()}
    counted = count_categories(params, plans, classes, context, executor)
    features = {
        name: _feature_rows(params, summary, plans[name], counted.get(name))
        for name, summary in summaries.items()
        if params.categorical_of(name).max_columns is None
    }
    limits = shared_limits(features)
    for name, limit in limits.items():
        plans[name] = _limited(params, summaries[name], plans[name], counted.get(name), len(classes), limit)
    more = {name: plans[name] for name in limits if name not in counted}
    counted |= count_categories(params, more, classes, context, executor)
    encodings = {
        name: fit_category(params, summary, plans[name], counted.get(name), classes, limits.get(name))
        for name, summary in summaries.items()
    }
    return CategoryFit(encodings, {name: (limit, len(features[name])) for name, limit in limits.items()})


def count_features(params: EncodeParams, summaries: Mapping[str, ColumnSummary]) -> int:
    """Return how many 0/1 features the categorical columns give together, without class shares and hashes.

    Parameters
    ----------
    params : parameters of the operator.
    summaries : summaries of the columns, in their order.
    """
    features = {
        name: _feature_rows(params, summary, plan_category(params, summary, 0), None)
        for name, summary in summaries.items()
    }
    shared = {name: one for name, one in features.items() if params.categorical_of(name).max_columns is None}
    limits = shared_limits(shared)
    return sum(limits.get(name, len(one)) for name, one in features.items())


def _feature_rows(
    params: EncodeParams, summary: ColumnSummary, plan: CategoryPlan, counted: ClassCounts | None
) -> Counts:
    """Return the rows of the features that a column has alone; that of infrequent categories has all rows,
    since no limit takes it away."""
    values, counts, _ = _exact_counts(summary, plan, counted)
    levels = _levels(params, summary, values, counts)
    places = pc.index_in(pa.array(list(levels.frequent), values.type), value_set=values)
    rows = counts[places.to_numpy(zero_copy_only=False)]
    return np.append(rows, summary.rows) if levels.bucket else rows


def _limited(
    params: EncodeParams,
    summary: ColumnSummary,
    plan: CategoryPlan,
    counted: ClassCounts | None,
    n_classes: int,
    limit: int,
) -> CategoryPlan:
    """Return the plan of a column with fewer features, of which more rows may need class shares."""
    values, counts, _ = _exact_counts(summary, plan, counted)
    levels = _levels(params, summary, values, counts, limit)
    return replace(plan, with_targets=plan.with_targets or _uses_targets(params, summary, levels, n_classes))


def plan_category(params: EncodeParams, summary: ColumnSummary, n_classes: int) -> CategoryPlan:
    """Return the categories of a column, and whether they have to be counted in a second pass."""
    sketch = summary.values
    if sketch is None:
        raise OperatorError(f"operators.encode: {summary.name!r} has no categories")
    values, counts = sketch.values, sketch.counts
    if summary.missing:
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])
        counts = np.append(counts, summary.missing)
    levels = _levels(params, summary, values, counts)
    uses_targets = _uses_targets(params, summary, levels, n_classes)
    return CategoryPlan(values, counts, sketch.is_exact, uses_targets)


def _uses_targets(params: EncodeParams, summary: ColumnSummary, levels: Levels, n_classes: int) -> bool:
    """Return whether class shares represent the infrequent categories."""
    rare = rare_method(params.categorical_of(summary.name).rare, levels, summary.rows, n_classes)
    return rare == "target" and bool(params.label) and levels.infrequent_rows > 0


def _levels(
    params: EncodeParams, summary: ColumnSummary, values: pa.Array, counts: Counts, limit: int | None = None
) -> Levels:
    """Divide the categories into frequent and infrequent ones.

    Only categories that may be frequent are converted to Python objects. ``limit`` is the most features of a
    column for which the recipe gives no number; None for the default.
    """
    own = params.categorical_of(summary.name)
    share = max(own.min_share, 1.0 / MAX_VALUES)
    some = np.flatnonzero(counts >= share * summary.rows)
    return choose_levels(
        values.take(pa.array(some)).to_pylist(),
        counts[some],
        summary.rows,
        min_share=own.min_share,
        max_columns=own.max_columns or limit,
    )


def count_categories(
    params: EncodeParams,
    plans: Mapping[str, CategoryPlan],
    classes: Sequence[Any],
    context: Context,
    executor: Executor,
) -> dict[str, ClassCounts]:
    """Count the categories by fold and class for the columns whose plan needs a second pass over the rows."""
    wanted = {name: plan.values for name, plan in plans.items() if plan.needs_pass}
    if not wanted:
        return {}
    cells = N_FOLDS * (len(classes) + 1)
    counts = {name: np.zeros(len(values) * cells, np.int64) for name, values in wanted.items()}
    totals = {name: np.zeros((N_FOLDS, len(classes) + 1), np.int64) for name in wanted}
    readings = {name: text_reading(params) for name in wanted}
    task = partial(_count_shard, context.shards, wanted, readings, params.label, classes, context.seed)
    for shard in executor.map(task, range(len(context.shards.shards))):
        for name, (sparse, total) in shard.items():
            np.add.at(counts[name], sparse[:, 0], sparse[:, 1])
            totals[name] += total
    return {name: (counts[name].reshape(-1, *totals[name].shape), totals[name]) for name in wanted}


def _count_shard(
    reader: ShardReader,
    wanted: Mapping[str, pa.Array],
    readings: Mapping[str, TextReading],
    label: str | None,
    classes: Sequence[Any],
    seed: int,
    shard: int,
) -> dict[str, ClassCounts]:
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


def text_reading(params: EncodeParams) -> TextReading:
    """Return how the texts of categorical columns are compared."""
    own = params.categorical
    return TextReading(own.strip, own.fold_case, params.missing_values)


def fit_category(
    params: EncodeParams,
    summary: ColumnSummary,
    plan: CategoryPlan,
    counted: ClassCounts | None,
    classes: Sequence[Any],
    limit: int | None = None,
) -> CategoryEncoding:
    """Fit a categorical column.

    Parameters
    ----------
    params : parameters of the operator.
    summary : summary of the column.
    plan : its categories after the first pass.
    counted : exact counts of the second pass; None where the plan needs none.
    classes : labels in the order of their class index.
    limit : most features of a column for which the recipe gives no number; None for the default.
    """
    own, name = params.categorical_of(summary.name), summary.name
    values, counts, by_class = _exact_counts(summary, plan, counted)
    levels = _levels(params, summary, values, counts, limit)
    target, hash_columns = None, 0
    if plan.with_targets and by_class is not None and counted is not None:
        totals = counted[1]
        names = [str(label) for label in classes]
        shown = tuple(names[1:] if len(names) == 2 else names)
        target = TargetTable(values, by_class[:, :, :-1], totals[:, :-1], shown, own.smoothing)
    elif levels.infrequent_rows and rare_method(own.rare, levels, summary.rows, len(classes)) == "hash":
        hash_columns = own.hash_columns
    return CategoryEncoding(
        name,
        text_reading(params),
        levels.frequent,
        bucket=levels.bucket and not hash_columns,
        binary=levels.binary and not hash_columns and target is None,
        hash_columns=hash_columns,
        target=target,
    )


def _exact_counts(
    summary: ColumnSummary, plan: CategoryPlan, counted: ClassCounts | None
) -> tuple[pa.Array, Counts, npt.NDArray[np.int64] | None]:
    """Return the categories, the rows of each, and those by fold and class if a pass has counted them."""
    if counted is None:
        return plan.values, plan.counts, None
    by_class = counted[0]
    # With fewer rows than this a category may be lost by the first pass, as the order of merging decides.
    least = 1 if plan.exact else summary.rows // MAX_VALUES + 1
    counts = by_class.sum(axis=(1, 2))
    kept = np.flatnonzero(counts >= least)
    return plan.values.take(pa.array(kept)), counts[kept], by_class[kept]
