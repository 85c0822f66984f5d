"""Train, validation and test rows of a dataset, by shard."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64, Int64
from operators.base import OperatorError
from operators.probe.rows import Rows

Noise = Literal["own_group", "erm", "drop"]
NO_GROUP = -1
"""Index of a row that is in no group but takes part."""
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class GroupedRows(Rows):
    """n rows with features, labels, weights, groups and row ids."""

    group: Int64
    """(n,) index into the dataset's groups; ``NO_GROUP`` for a row in no group."""
    row_id: Int64
    """(n,)"""
    target: Float64 | None = None
    """(n,) numbers that a regression predicts; None for a classification, which predicts ``y``."""

    @property
    def numbers(self) -> Float64:
        """The target (n,) of a regression. Raises ValueError for the rows of a classification."""
        if self.target is None:
            raise ValueError("these rows have no target: they were read for a classification")
        return self.target

    def take(self, places: slice | Int64) -> GroupedRows:
        """Return the rows at the given positions, in the order of the positions."""
        return GroupedRows(
            self.X[places],
            self.y[places],
            self.weight[places],
            self.group[places],
            self.row_id[places],
            None if self.target is None else self.target[places],
        )


def join(parts: Sequence[GroupedRows]) -> GroupedRows:
    """Concatenate the rows of at least one part."""
    # Parts without rows are left out: they may not know how wide their rows would be.
    parts = [part for part in parts if len(part)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    columns = zip(*((p.X, p.y, p.weight, p.group, p.row_id) for p in parts), strict=True)
    targets = [part.target for part in parts if part.target is not None]
    target = np.concatenate(targets) if targets else None
    return replace(GroupedRows(*(np.concatenate(column) for column in columns)), target=target)


class Shards(Protocol):
    """The rows of one split by shard. A shard may be read any number of times."""

    def __len__(self) -> int: ...
    def __getitem__(self, shard: int, /) -> GroupedRows: ...


@dataclass(frozen=True)
class Dataset:
    """Input of a training: three splits over the same shards, and the groups that may occur."""

    splits: Mapping[str, Shards]
    """``train``, ``validation`` and ``test``; the last two may have no rows."""
    group_names: tuple[int, ...]
    """Published number of each group by its index; -1 - c for the noise of class c if that counts as a
    group."""
    n_features: int
    n_classes: int
    widths: tuple[int, ...] = ()
    """Widths of consecutive features that come from one vector column, or 1; default: all are 1."""
    class_names: tuple[str, ...] = ()
    """Labels in the order of their indices, for errors; default: the indices name the classes."""

    def class_name(self, index: int) -> str:
        """Return a class as an error names it."""
        return repr(self.class_names[index]) if self.class_names else str(index)

    @property
    def n_groups(self) -> int:
        """Number of groups that may occur."""
        return len(self.group_names)

    @property
    def train(self) -> Shards:
        """Rows that the model is trained on."""
        return self.splits["train"]

    @property
    def validation(self) -> Shards:
        """Rows that selection and early stopping use."""
        return self.splits["validation"]


@dataclass(frozen=True)
class Counts:
    """Counts of the train rows, equal on every worker."""

    slot_rows: tuple[int, ...]
    total_weight: float
    group_rows: npt.NDArray[np.int64]
    """(G,)"""
    group_weight: Float64
    """(G,) sums of weights."""
    rows_without_group: npt.NDArray[np.int64]
    """(C,) rows of each class that take part and are in no group."""

    @property
    def n_rows(self) -> int:
        """Number of train rows."""
        return sum(self.slot_rows)


def group_names(groups: Sequence[int], n_classes: int, noise: Noise) -> tuple[int, ...]:
    """Return the groups that may occur, from the published numbers, which may include -1 (no group)."""
    named = sorted({int(group) for group in groups if group >= 0})
    own = [-1 - c for c in range(n_classes)] if noise == "own_group" and min(groups, default=0) < 0 else []
    return (*named, *own)


def group_indices(group: npt.ArrayLike, y: npt.ArrayLike, names: Sequence[int], noise: Noise) -> Int64:
    """Return the index into ``names`` of each row, ``NO_GROUP`` for rows in no group: (n,) int64.

    Raises ValueError for a group that ``names`` does not hold.
    """
    group, y = np.asarray(group, np.int64), np.asarray(y, np.int64)
    keys = np.where(group >= 0, group, -1 - y)
    order = np.argsort(names)
    ordered = np.asarray(names, np.int64)[order] if len(names) else np.zeros(1, np.int64)
    place = np.searchsorted(ordered, keys).clip(max=len(ordered) - 1)
    known = (ordered[place] == keys) & (len(names) > 0)
    stray = ~known & ((group >= 0) | (noise == "own_group"))
    if stray.any():
        raise ValueError(f"group {keys[stray][0]} is none of the {len(names)} groups that may occur")
    found: Int64 = np.where(known, order[place] if len(names) else NO_GROUP, NO_GROUP)
    return found


class CachedShards:
    """A split's shards, each made once. They are kept in memory up to a budget, else in mapped files.

    Every window of an epoch takes rows of every shard, so reading a shard again must be fast. Making one
    means reading Parquet and encoding columns.
    """

    def __init__(self, read: Shards, budget: list[int]) -> None:
        """``budget`` holds one number, the remaining bytes of memory, which the splits of a dataset share."""
        self._read, self._budget = read, budget
        self._kept: dict[int, GroupedRows] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __len__(self) -> int:
        return len(self._read)

    def __getitem__(self, shard: int, /) -> GroupedRows:
        if shard not in self._kept:
            rows = self._read[shard]
            if rows.X.nbytes <= self._budget[0]:
                self._budget[0] -= rows.X.nbytes
            else:
                rows = self._mapped(shard, rows)
            self._kept[shard] = rows
        return self._kept[shard]

    def _mapped(self, shard: int, rows: GroupedRows) -> GroupedRows:
        """Return the same rows with their features in a mapped file of a temporary folder."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="rowsieve-rows-")
        path = Path(self._folder.name) / f"{shard}.npy"
        np.save(path, rows.X)
        # As a plain array, so that rows that are taken from it are copies in memory.
        return replace(rows, X=np.asarray(np.load(path, mmap_mode="r")))


def dataset_of_arrays(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    groups: npt.ArrayLike | None = None,
    weight: npt.ArrayLike | None = None,
    split: npt.ArrayLike | None = None,
    target: npt.ArrayLike | None = None,
    noise: Noise = "own_group",
    n_shards: int = 1,
) -> Dataset:
    """Build a dataset from arrays in memory.

    Parameters
    ----------
    X
        (n, d) features.
    y
        (n,) class indices.
    groups
        (n,) group numbers, -1 for noise; default: all rows in group 0.
    weight
        (n,) >= 0; default 1.
    split
        (n,) "train", "validation", "test" or "dropped"; default: all train.
    target
        (n,) numbers that a regression predicts; default: the classes are predicted.
    noise
        What becomes of rows with group -1, see ``TrainParams.noise``.
    n_shards
        Consecutive parts of nearly equal length.

    Raises
    ------
    OperatorError
        Arrays of different lengths or other shapes, or a value that cannot be used, with its row.
    """
    n = len(np.asarray(y))
    split = np.full(n, "train") if split is None else np.asarray(split)
    rows = _rows_of_arrays(X, y, groups, weight, target)
    _check_shapes(rows, split)
    rows = replace(rows, y=_class_indices(rows.y))
    _check_weights_and_splits(rows.weight, split)
    n_classes, numbers = int(rows.y.max()) + 1, rows.group
    names = group_names(np.unique(numbers).tolist(), n_classes, noise)
    rows = replace(rows, group=group_indices(numbers, rows.y, names, noise))
    used = numbers >= 0 if noise == "drop" else np.ones(n, bool)
    parts = np.array_split(np.arange(n), n_shards)
    splits = {
        name: [rows.take(part[(split[part] == name) & (used[part] | (name != "train"))]) for part in parts]
        for name in SPLITS
    }
    return Dataset(splits, names, rows.X.shape[1], n_classes)


def _rows_of_arrays(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    groups: npt.ArrayLike | None,
    weight: npt.ArrayLike | None,
    target: npt.ArrayLike | None,
) -> GroupedRows:
    """Return arrays as rows, unchecked, with the numbers of their groups in place of indices."""
    n = len(np.asarray(y))
    return GroupedRows(
        np.asarray(X, np.float32),
        np.asarray(y),
        np.ones(n) if weight is None else np.asarray(weight, np.float64),
        np.zeros(n, np.int64) if groups is None else np.asarray(groups, np.int64),
        np.arange(n, dtype=np.int64),
        None if target is None else np.asarray(target, np.float64),
    )


def _check_shapes(rows: GroupedRows, split: npt.NDArray[Any]) -> None:
    """Raise OperatorError unless X is a table, and the other arrays have a value for each of its rows."""
    n = len(rows.y)
    target = rows.y if rows.target is None else rows.target
    columns = {"y": rows.y, "groups": rows.group, "weight": rows.weight, "split": split, "target": target}
    for name, found in {"X": rows.X, **columns}.items():
        wanted = "(n, d)" if name == "X" else "(n,)"
        if found.ndim != (2 if name == "X" else 1):
            raise OperatorError(f"{name} has the shape {found.shape}; give {wanted}.")
        if len(found) != n:
            raise OperatorError(f"{name} has {len(found)} rows, and y {n}. Give both for the same rows.")
    if not n:
        raise OperatorError(
            "y has no rows, so there is nothing to train on. Give at least one row of each class."
        )


def _check_weights_and_splits(weight: Float64, split: npt.NDArray[Any]) -> None:
    usable = np.isfinite(weight) & (weight >= 0)
    _check_values("weight", weight, usable, "no finite weight of at least 0")
    names = (*SPLITS, "dropped")
    _check_values("split", split, np.isin(split, names), f"none of {', '.join(names)}")


def _class_indices(labels: npt.NDArray[Any]) -> Int64:
    """Return class indices (n,). Raises OperatorError for other labels, such as texts and fractions."""
    if labels.dtype.kind not in "iub":
        numeric = labels.dtype.kind == "f"
        whole = np.isfinite(labels) & (labels == np.round(labels)) if numeric else np.zeros(len(labels), bool)
        _check_values("y", labels, whole, "no class index 0, 1, 2, ...")
    found = labels.astype(np.int64)
    _check_values("y", found, found >= 0, "no class index 0, 1, 2, ...")
    return found


def _check_values(name: str, values: npt.NDArray[Any], usable: npt.NDArray[np.bool_], what: str) -> None:
    if not usable.all():
        row = int(np.flatnonzero(~usable)[0])
        raise OperatorError(f"{name}: row {row} has {what} ({values[row]!r}). Correct it, or leave it out.")
