"""The base class of all methods of ``groups``, the published columns, and reading a class from shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.arrays import NOISE, Labels, Mask
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
    ShardInfo,
    ShardReader,
    copy_state,
)
from operators.columns import vectors_to_numpy
from operators.explanations import ExplainedRow, Fact, added_facts
from operators.groups.kernel import Array
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
        """Return the added columns: the group, and the reason why the method marks the row as an outlier."""
        return (pa.field(GROUP, pa.int32()), pa.field(GROUP_OUTLIER, CATEGORY))

    @property
    def can_predict(self) -> bool:
        """Return whether the method can place new rows in groups; ``oracle`` reads them from the source."""
        return True

    def partial_fit(self, context: Context, delta: DatasetDelta, executor: Executor) -> dict[str, float]:
        """Copy the models and the selection, without labels, and return the metrics of ``fit``."""
        copy_state(delta.state, context.state, ("labels-*", "grid-*"))
        return dict(delta.metrics)

    def explain(self, context: Context, row: ExplainedRow) -> list[Fact]:
        """Return the row's group, and the reason why the method marks the row as an outlier, if it does."""
        if not row.has(GROUP):
            return added_facts(self.adds, row)
        group, reason = row.value(GROUP), row.value(GROUP_OUTLIER)
        method = str(getattr(self.params, "method", self.name))
        where = "in no group (noise)" if group == NOISE else f"found by the method {method}"
        return [Fact(GROUP, group, where), *([Fact(GROUP_OUTLIER, reason)] if reason else [])]

    def open_for_new_rows(self, context: Context) -> Apply:
        """Return the function for rows that ``fit`` has not seen, whose groups follow from the state
        alone.
        """
        return self.open(context)


def apply_by_class(offsets: Mapping[int, int], label: LabelClass, marked_by: str | None) -> Apply:
    """Return the function that labels the rows of a table class by class.

    Rows of a class that had no row to learn from, since all of its rows are held out, are in no group; they
    are not marked as outliers for it.

    Parameters
    ----------
    offsets : class index -> number of its first group.
    label : labels, from 0 within the class, of a table's rows of one class.
    marked_by : see :func:`group_columns`.
    """

    def apply(table: pa.Table) -> pa.Table:
        classes = table.column(LABEL).to_numpy()
        group = np.full(len(classes), NOISE, np.int32)
        for value in np.unique(classes).tolist():
            if value not in offsets:
                continue
            rows = np.flatnonzero(classes == value)
            labels = label(value, table.take(rows))
            group[rows] = np.where(labels == NOISE, NOISE, labels + offsets[value])
        return group_columns(group, marked_by, np.isin(classes, list(offsets)))

    return apply


def stored_labels(state: Path, index: int, rows: pa.Table) -> Labels:
    """Read the labels that ``fit`` stored for these rows of a class."""
    return read_labels(state, index, rows.column(ROW_ID).to_numpy())


def group_columns(group: Labels, marked_by: str | None = None, learnt: Mask | None = None) -> pa.Table:
    """Return the added columns.

    With ``marked_by``, rows in no group are marked as the noise of that method, except those that ``learnt``
    (n,) excludes.
    """
    outlier = (group == NOISE) & (marked_by is not None)
    outlier = outlier if learnt is None else outlier & learnt
    sources = pa.array(["", f"{marked_by}:noise"])
    reason = pa.DictionaryArray.from_arrays(pa.array(outlier.astype(np.int8)), sources)
    return pa.table({GROUP: group, GROUP_OUTLIER: reason})


def gather_class(
    shards: ShardReader, index: int, columns: Sequence[str], among: Sequence[ShardInfo] | None = None
) -> tuple[npt.NDArray[np.int64], dict[str, Array]]:
    """Read row ids (n,), ascending, and columns of the class ``index``: vectors (n, d) float32, numbers (n,).

    Labels are read first, because they are small and show how many rows there are in which shards. Other
    columns of shards without the class are not read. ``among`` are the shards that may hold the class;
    default: all.

    Raises
    ------
    OperatorError
        Vectors of different lengths.
    """
    ordered = sorted(shards.shards if among is None else among, key=lambda shard: shard.first_row)
    wanted = [pc.equal(shards.read(shard.index, [LABEL]).column(LABEL), index) for shard in ordered]
    sizes = [pc.sum(mask).as_py() or 0 for mask in wanted]
    row_ids = np.empty(sum(sizes), np.int64)
    found: dict[str, Array] = {}
    start = 0
    for shard, mask, size in zip(ordered, wanted, sizes, strict=True):
        if not size:
            continue
        table = shards.read(shard.index, columns).filter(mask)
        row_ids[start : start + size] = table.column(ROW_ID).to_numpy()
        for name in columns:
            rows = column_to_numpy(table.column(name))
            whole = found.setdefault(name, np.empty((len(row_ids), *rows.shape[1:]), rows.dtype))
            if rows.shape[1:] != whole.shape[1:]:
                raise OperatorError(describe_length_mismatch(shard.path, name, rows.shape[1], whole.shape[1]))
            whole[start : start + size] = rows
        start += size
    return row_ids, found


def describe_length_mismatch(path: str, column: str, length: int, expected: int) -> str:
    """Return the error text for a shard whose vectors differ in length from those of earlier shards."""
    return (
        f"{path}: {column!r} has {length} entries, in earlier shards {expected}. They come from different "
        "runs; run the operator that adds this column again."
    )


def column_to_numpy(column: pa.ChunkedArray) -> Array:
    """Return a list column as (n, d) float32, and any other as (n,)."""
    if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        return vectors_to_numpy(column)
    return np.asarray(column.to_numpy())
