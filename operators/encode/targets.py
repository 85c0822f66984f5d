"""Class shares of categories, counted out of fold: no row's feature is computed from the row's own label.

Source: Micci-Barreca, A preprocessing scheme for high-cardinality categorical attributes, SIGKDD Explorations
2001; cross fitting and smoothing as in scikit-learn's ``TargetEncoder(smooth=m)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from operators.arrays import Float32, Float64

N_FOLDS = 5
"""Number of folds of the cross-fitting, as in scikit-learn's ``TargetEncoder``."""
PURPOSE = "encode/fold"


@dataclass(frozen=True)
class TargetTable:
    """Rows of every category by fold and class.

    Attributes
    ----------
    values : categories (v,), ascending; null as the last for the missing value, if it occurs.
    counts : rows, (v, N_FOLDS, C) int64.
    totals : rows of all categories, also of those that are not kept, (N_FOLDS, C) int64.
    names : classes whose shares are features: all of them, or the second one of two.
    smoothing : rows with the overall shares that are added to each category.
    """

    values: pa.Array
    counts: npt.NDArray[np.int64]
    totals: npt.NDArray[np.int64]
    names: tuple[str, ...]
    smoothing: float

    def shares(
        self, texts: pa.Array, rows: npt.NDArray[np.int64], folds: npt.NDArray[np.int64] | None
    ) -> Float32:
        """Return smoothed class shares (n, len(names)).

        Parameters
        ----------
        texts : distinct values (k,), null for a missing one.
        rows : position in ``texts`` of each row (n,).
        folds : fold of each row: its share is counted on the other folds. None for rows that were not
            counted: their share is counted on all folds.
        """
        found = pc.index_in(texts, value_set=self.values)
        places = np.asarray(found.fill_null(len(self.values)).to_numpy(), np.int64)[rows]
        chosen = np.full(len(rows), N_FOLDS) if folds is None else folds
        return np.asarray(self._table[places, chosen])

    @cached_property
    def _table(self) -> Float32:
        """Shares (v + 1, N_FOLDS + 1, names): the last category is new, the last fold leaves none out."""
        n_classes = self.counts.shape[2]
        counts = np.concatenate([self.counts, np.zeros((1, N_FOLDS, n_classes), np.int64)])
        every, prior = counts.sum(axis=1, keepdims=True), self.totals.sum(axis=0, keepdims=True)
        kept = np.concatenate([every - counts, every], axis=1).astype(np.float64)
        overall = np.concatenate([prior - self.totals, prior]).astype(np.float64)
        overall /= np.maximum(overall.sum(axis=1, keepdims=True), 1)
        smoothed: Float64 = (kept + self.smoothing * overall) / (kept.sum(-1, keepdims=True) + self.smoothing)
        return np.asarray(smoothed[:, :, n_classes - len(self.names) :], np.float32)

    def save(self, path: Path) -> None:
        """Write the table as one Parquet file."""
        n = len(self.values)
        flat = (
            pa.FixedSizeListArray.from_arrays(
                pa.array(np.append(self.counts.reshape(-1), self.totals.reshape(-1))), self.counts[0].size
            )
            if n
            else pa.array([self.totals.reshape(-1).tolist()], pa.list_(pa.int64(), self.totals.size))
        )
        values = pa.concat_arrays([self.values.cast(pa.large_string()), pa.nulls(1, pa.large_string())])
        kind = ["category"] * n + ["all"]
        pq.write_table(pa.table({"kind": kind, "value": values, "rows": flat}), path)

    @classmethod
    def load(cls, path: Path, names: Sequence[str], smoothing: float) -> Self:
        """Read what :meth:`save` wrote."""
        table: Any = pq.read_table(path)
        flat = table["rows"].combine_chunks().flatten().to_numpy()
        n_classes = len(flat) // table.num_rows // N_FOLDS
        counts = flat.reshape(-1, N_FOLDS, n_classes)
        values = table["value"].combine_chunks().slice(0, table.num_rows - 1)
        return cls(values, counts[:-1], counts[-1], tuple(names), smoothing)


def count_targets(
    texts: pa.Array,
    rows: npt.NDArray[np.int64],
    y: npt.NDArray[np.int32],
    folds: npt.NDArray[np.int64],
    values: pa.Array,
    n_classes: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Count the rows of a shard by category, fold and class.

    Parameters
    ----------
    texts, rows : distinct values (k,), and the position among them of each row (n,).
    y : class of each row, -1 for a row without one, which is not counted.
    folds : fold of each row.
    values : categories (v,) that are kept.
    n_classes : C.

    Returns
    -------
    Sparse counts as (m, 2): the cell ``(value * N_FOLDS + fold) * C + class`` and its rows; and the rows of
    all categories, (N_FOLDS, C).
    """
    place = np.asarray(pc.index_in(texts, value_set=values).fill_null(-1).to_numpy(), np.int64)[rows]
    cell = folds * n_classes + y
    labelled = y >= 0
    totals = np.bincount(cell[labelled], minlength=N_FOLDS * n_classes).reshape(N_FOLDS, n_classes)
    counted = labelled & (place >= 0)
    cells, found = np.unique(place[counted] * (N_FOLDS * n_classes) + cell[counted], return_counts=True)
    return np.column_stack([cells, found]).astype(np.int64), totals.astype(np.int64)
