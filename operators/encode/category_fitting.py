"""Fitting the categorical columns of ``encode``: frequent categories, and class shares of the others.

The first pass over the shards counts the categories of a column, exactly up to ``MAX_VALUES`` of them. A
second pass counts those that the first one could not, and the classes and folds of each category.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.base import ROW_ID, Context, Executor, OperatorError, ShardReader
from operators.encode.categories import CategoryEncoding, Levels, TextReading, choose_levels, rare_method
from operators.encode.params import EncodeParams
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
    rare = rare_method(params.categorical_of(summary.name).rare, levels, summary.rows, n_classes)
    uses_targets = rare == "target" and bool(params.label) and levels.infrequent_rows > 0
    return CategoryPlan(values, counts, sketch.is_exact, uses_targets)


def _levels(params: EncodeParams, summary: ColumnSummary, values: pa.Array, counts: Counts) -> Levels:
    """Divide the categories into frequent and infrequent ones.

    Only categories that may be frequent are converted to Python objects.
    """
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
) -> CategoryEncoding:
    """Fit a categorical column.

    Parameters
    ----------
    params : parameters of the operator.
    summary : summary of the column.
    plan : its categories after the first pass.
    counted : exact counts of the second pass; None where the plan needs none.
    classes : labels in the order of their class index.
    """
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
