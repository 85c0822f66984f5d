"""Base class of the operators behind ``groups``, and how labels of a class become the published columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from operators.base import (
    CATEGORY,
    GROUP,
    GROUP_OUTLIER,
    LABEL,
    ROW_ID,
    Apply,
    Context,
    DatasetDelta,
    Executor,
    Operator,
    OperatorError,
    OperatorParams,
    copy_state,
)
from operators.groups.kernel import NOISE, Labels
from operators.groups.state import read_labels

LabelClass: TypeAlias = Callable[[int, pa.Table], Labels]
P = TypeVar("P", bound=OperatorParams)


class GroupsBase(Operator[P]):
    """Adds ``group`` (int32, -1 for a row in no group) and ``group_outlier``. Base of every method."""

    name = "groups"
    version = 2
    Params: ClassVar[type[OperatorParams]] = OperatorParams
    uses: tuple[str, ...] = ("ingest",)

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """Group, and why this method takes the row for an outlier; empty where it does not."""
        return (pa.field(GROUP, pa.int32()), pa.field(GROUP_OUTLIER, CATEGORY))

    def as_fitted(self, record: Mapping[str, Any]) -> GroupsBase[P]:
        """This operator as it was when it left ``groups.json``."""
        return self

    @property
    def can_predict(self) -> bool:
        """Whether the method can assign new rows to groups; ``oracle`` reads the groups from the source."""
        return True

    def partial_fit(self, context: Context, delta: DatasetDelta, executor: Executor) -> dict[str, float]:
        """The models and the selection; labels stay with the rows that had them. Metrics are of ``fit``."""
        copy_state(delta.state, context.state, ("labels-*", "grid-*"))
        return dict(delta.metrics)

    def open_for_new_rows(self, context: Context) -> Apply:
        """Like ``open``, for rows that ``fit`` has not seen: their groups from the state alone."""
        return self.open(context)


def by_class(offsets: Mapping[int, int], label: LabelClass, judge: str | None, state: Path) -> Apply:
    """Label rows class by class.

    Parameters
    ----------
    offsets : class index -> number of its first group.
    label : labels, from 0 within the class, of a table's rows of one class.
    judge : see :func:`group_columns`.
    state : named in the error for a class without groups.
    """

    def apply(table: pa.Table) -> pa.Table:
        classes = table.column(LABEL).to_numpy()
        group = np.full(len(classes), NOISE, np.int32)
        for value in np.unique(classes).tolist():
            if value not in offsets:
                raise OperatorError(
                    f"operators.groups: class index {value} had no row when {state} was made, so it has no "
                    "groups there. Run the operator `groups` again on all rows."
                )
            rows = np.flatnonzero(classes == value)
            labels = label(value, table.take(rows))
            group[rows] = np.where(labels == NOISE, NOISE, labels + offsets[value])
        return group_columns(group, judge)

    return apply


def stored_labels(state: Path, index: int, rows: pa.Table) -> Labels:
    """Labels that ``fit`` stored for these rows of a class."""
    return read_labels(state, index, rows.column(ROW_ID).to_numpy())


def group_columns(group: Labels, judge: str | None = None) -> pa.Table:
    """The columns that ``groups`` adds; rows in no group are outliers by the noise of ``judge``, if given."""
    outlier = (group == NOISE) & (judge is not None)
    sources = pa.array(["", f"{judge}:noise"])
    reason = pa.DictionaryArray.from_arrays(pa.array(outlier.astype(np.int8)), sources)
    return pa.table({GROUP: group, GROUP_OUTLIER: reason})
