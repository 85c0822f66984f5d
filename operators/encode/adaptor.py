"""``encode`` over shards: learn every column's encoding, then turn each shard's columns into features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from operators.base import (
    FEATURE_FAULT,
    FEATURES,
    REASON,
    ROW_ID,
    VECTOR,
    Apply,
    Context,
    DatasetDelta,
    Executor,
    Operator,
    ReportContext,
    Resources,
    copy_state,
)
from operators.columns import vectors_with_gaps
from operators.encode.params import EncodeParams
from operators.hashing import folds_of
from operators.report import ReportSection

NAME = "encode"


class Encode(Operator[EncodeParams]):
    """Adds ``x``, the features of ordinary columns, and ``x_fault`` where a row has a value without use.

    The engine adds it to every recipe whose features include a number, a boolean, a text or a date, unless
    another operator makes the features.
    """

    name = NAME
    version = 15
    Params = EncodeParams

    @property
    def requires(self) -> tuple[str, ...]:
        """Return no column: the operator reads the source."""
        return ()

    @property
    def source_columns(self) -> tuple[str, ...]:
        """Return the columns that may become features."""
        return self.params.features or ()

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """Return the added columns: the features, null if the row cannot be used, and the reason for that."""
        return pa.field(FEATURES, VECTOR), pa.field(FEATURE_FAULT, REASON)

    @property
    def resources(self) -> Resources:
        """Return the resources of one actor."""
        return self.params.resources

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Summarise the columns over all shards and fit their encodings; leaves ``encoding.json``.

        Returns
        -------
        ``features``, how many ``columns`` are used and ``unused``, and, if there are any, how many are
        ``limited`` by the features of all columns of categories.

        Raises
        ------
        OperatorError
            A column changes its type between shards, or cannot be what the recipe says; no column is usable.
        """
        from operators.encode.fitting import fit_table
        from operators.encode.level_counts import write_counts
        from operators.encode.shared_features import LIMITED

        fitted, counts = fit_table(self.params, context, executor)
        fitted.save(context.state)
        write_counts(context.state, counts, {})
        used = len(fitted.columns)
        return {
            "features": float(len(fitted.outputs)),
            "columns": float(used),
            "unused": float(len(self.source_columns) - used),
            **({"limited": float(len(limited))} if (limited := fitted.about.get(LIMITED)) else {}),
        }

    @property
    def can_predict(self) -> bool:
        """Return True: new rows are encoded by the state."""
        return True

    def partial_fit(self, context: Context, delta: DatasetDelta, executor: Executor) -> dict[str, float]:
        """Keep the encoding, and count missing values and categories of the new rows for their drift.

        Raises
        ------
        CannotPredictError
            More than ``max_new_share`` of the new rows have a new category, or the share of missing values of
            a column has changed by more.
        """
        from operators.encode.encoding import TableEncoding
        from operators.encode.level_counts import check_new_rows, count_shards, read_counts, write_counts

        copy_state(delta.state, context.state)
        encoding, seen = TableEncoding.load(context.state), read_counts(delta.state, "seen")
        new = count_shards(context.shards, encoding, context.state, delta.new_shards, executor)
        check_new_rows(seen, new, self.params.max_new_share)
        write_counts(context.state, seen, new)
        return dict(delta.metrics)

    def open(self, context: Context) -> Apply:
        """Load the state. Class shares of categories are those without the row's own fold."""
        return _open(context, out_of_fold=True)

    def open_for_new_rows(self, context: Context) -> Apply:
        """Load the state. Class shares of categories are those of all rows that ``fit`` has seen."""
        return _open(context, out_of_fold=False)

    def warnings(self, metrics: Mapping[str, float], state: Callable[[], Path]) -> tuple[str, ...]:
        """Name columns of text that the recipe has settings for, and that no network reads, and columns of
        categories with fewer features than alone."""
        from operators.encode.report import limited_columns, unread_texts

        return unread_texts(self.params, state) + (limited_columns(state) if "limited" in metrics else ())

    def report_section(self, context: ReportContext) -> ReportSection | None:
        """List the columns with their use, and draw maps of feature space."""
        from operators.encode.report import encoding_section, limited_columns, unread_texts

        said = unread_texts(self.params, lambda: context.state)
        return encoding_section(context, said + limited_columns(lambda: context.state))


def _open(context: Context, *, out_of_fold: bool) -> Apply:
    from operators.encode.encoding import TableEncoding
    from operators.encode.targets import N_FOLDS, PURPOSE

    encoding = TableEncoding.load(context.state)
    seed = int(encoding.about["seed"])

    def apply(table: pa.Table) -> pa.Table:
        folds = folds_of(table[ROW_ID].to_numpy(), N_FOLDS, seed, PURPOSE) if out_of_fold else None
        x, codes = encoding.transform(table, folds)
        bad = np.asarray(codes.any(axis=1), bool)
        made = vectors_with_gaps(x[~bad] if bad.any() else x, bad)
        found: dict[str, Any] = {FEATURES: made, FEATURE_FAULT: encoding.faults(table, codes)}
        return pa.table(found)

    return apply
