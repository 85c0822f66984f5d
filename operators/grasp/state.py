"""Files of ``groups: {method: grasp}``: ``selection.json`` and, if they are kept, the labels of the whole
grid.

``selection.json`` holds the grid of every class and the selected cell. Operators do not read the truth, so
the grid cannot be scored by it during the run. If the grid is kept, a folder per class (``grid-<class>/``)
holds the labels, one column per cell, and the report reads them. One row takes 2 bytes per cell before
compression.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from operators.arrays import Ids
from operators.base import ROW_ID
from operators.bounded_json import read_json

SELECTION = "selection.json"


def class_record(index: int, name: str, selection: Any) -> dict[str, Any]:
    """Return the selection of a class as plain values."""
    values = asdict(selection).items()
    plain = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in values}
    return {"class": index, "name": name, **plain}


def write_selection(
    state: Path, records: list[dict[str, Any]], projection: Mapping[str, Any] | None = None
) -> None:
    """Store the records of all classes, and that of the projection of gradients, if there is one."""
    record = {"classes": records, **({"projection": dict(projection)} if projection else {})}
    (state / SELECTION).write_text(json.dumps(record, indent=1), "utf-8")


def read_offsets(state: Path) -> dict[int, int]:
    """Return the number of the first group of each class, by class index."""
    record = read_json(state / SELECTION)
    return {entry["class"]: entry["offset"] for entry in record["classes"]}


def read_group_of(state: Path) -> dict[int, list[int]]:
    """Return the group of each cluster, by class index. States before version 6, whose clusters are
    groups, have none.
    """
    record = read_json(state / SELECTION)
    return {entry["class"]: entry["group_of"] for entry in record["classes"] if "group_of" in entry}


LOW_STABILITY = 0.8
"""Below this mean adjusted Rand index the groups of a class depend on the rows that they were found on."""


def summary(stability: Sequence[float]) -> tuple[float, float] | None:
    """Return the mean and the smallest of a class's adjusted Rand indices, or None if none was measured."""
    return (sum(stability) / len(stability), min(stability)) if stability else None


def draw_warning(record: Mapping[str, Any]) -> str:
    """Return a warning for a class whose groups depend on the drawn rows, or an empty text."""
    found = summary(record.get("stability", ()))
    if not record.get("drawn_from") or found is None or found[0] >= LOW_STABILITY:
        return ""
    return (
        f"its groups were found on {record['n_rows']:,} of {record['drawn_from']:,} rows, and those found "
        f"again on part of these agree with an adjusted Rand index of {found[0]:.2f} only, so other rows "
        "would give other groups. Raise groups.fit_rows (null: all rows), or use the groups with care."
    )


Keep: TypeAlias = Literal["auto"] | bool
GridLabels: TypeAlias = npt.NDArray[np.integer[Any]]

AUTO_ROWS = 250_000
"""Largest class whose grid is kept with ``auto``: 104 cells are 50 MB before compression."""
ROWS_PER_GROUP = 65_536
"""Rows of a row group, the smallest unit that is read."""


def keeps_grid(keep: Keep, n_rows: int) -> bool:
    """Return whether to keep the grid of a class: with ``auto``, up to 250,000 rows."""
    return n_rows <= AUTO_ROWS if keep == "auto" else keep


def grid_path(state: Path, index: int) -> Path:
    """Return the path of the grid of class ``index``."""
    return state / f"grid-{index}"


def write_grid(state: Path, index: int, row_ids: Ids, part: int, labels: GridLabels) -> None:
    """Store a grid, or a part of it.

    Parameters
    ----------
    state : folder of the operator.
    index : class.
    row_ids : (n,) ascending.
    part : 0 where the class is in one piece; else parts in the order of their row ids.
    labels : (n_eps, n_min_samples, n) groups from 0, -1 for noise.
    """
    narrow = np.int16 if labels.max(initial=0) <= np.iinfo(np.int16).max else np.int32
    columns = {ROW_ID: row_ids}
    for e, m in np.ndindex(labels.shape[:2]):
        columns[_column(e, m)] = labels[e, m].astype(narrow)
    path = grid_path(state, index) / f"part-{part:05}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=ROWS_PER_GROUP, compression="zstd")


def read_grid(
    state: Path, index: int, row_ids: Ids
) -> Iterator[tuple[tuple[int, int], npt.NDArray[np.int32]]]:
    """Yield each cell with the labels of some rows of one class, read from the row groups that hold them.

    Parameters
    ----------
    row_ids : (m,) ascending, m >= 1.

    Yields
    ------
    (e, m), and (m,) int32; -2 for a row that was not clustered, such as a validation row.
    """
    path = grid_path(state, index)
    within = (pc.field(ROW_ID) >= int(row_ids[0])) & (pc.field(ROW_ID) <= int(row_ids[-1]))
    table = pq.read_table(path, filters=within, partitioning=None)
    stored = table.column(ROW_ID).to_numpy()
    clustered = np.isin(row_ids, stored)
    place = np.searchsorted(stored, row_ids[clustered])
    for name in table.column_names:
        if name != ROW_ID:
            _, e, m = name.split("-")
            labels = np.full(len(row_ids), -2, np.int32)
            labels[clustered] = table.column(name).to_numpy()[place]
            yield (int(e), int(m)), labels


def _column(e: int, m: int) -> str:
    return f"cell-{e}-{m}"
