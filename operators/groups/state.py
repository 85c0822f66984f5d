"""Files in which every method of ``groups`` keeps its result.

``groups.json`` holds the parameters; ``labels-<class>.parquet`` (or a folder of parts, for a class too large
for one file) the labels of the rows of ``fit``; ``model-<class>.npz`` the arrays that place new rows.
"""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from operators.arrays import Ids, Labels
from operators.base import ROW_ID, OperatorError, OperatorParams
from operators.bounded_json import read_json
from operators.groups.kernel import State

LABEL_ROWS = 65_536
"""Rows of a row group, the smallest unit that a shard reads."""
RECORD = "groups.json"


def write_group_record(state: Path, params: OperatorParams, **values: Any) -> None:
    """Store the parameters, including the method, and other ``values``."""
    record = {"params": params.model_dump(mode="json", exclude=set(params.execution_only)), **values}
    (state / RECORD).write_text(json.dumps(record, indent=1), "utf-8")


def read_group_record(state: Path) -> dict[str, Any]:
    """Read the record that :func:`write_group_record` stored."""
    record: dict[str, Any] = read_json(state / RECORD)
    return record


def write_arrays(state: Path, index: int, arrays: State) -> None:
    """Store the state of a class."""
    # Through a dict of its own: savez takes names as keyword arguments.
    np.savez(model_path(state, index), **{name: np.asarray(value) for name, value in arrays.items()})  # type: ignore[arg-type]


def read_arrays(state: Path, index: int) -> State:
    """Read the arrays that :func:`write_arrays` stored, without unpickling anything."""
    with np.load(model_path(state, index), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def class_names(ingest: Path) -> list[str]:
    """Return the names of the classes, by class index."""
    classes = read_json(ingest / "classes.json")["classes"]
    return [str(value) for value in classes]


def labels_path(state: Path, index: int) -> Path:
    """Return the path of the labels of class ``index``."""
    return state / f"labels-{index}.parquet"


def model_path(state: Path, index: int) -> Path:
    """Return the path of the model of class ``index``."""
    return state / f"model-{index}.npz"


def has_labels(state: Path, index: int) -> bool:
    """Return whether the labels of class ``index`` are stored."""
    return labels_path(state, index).exists() or (state / f"labels-{index}").is_dir()


def write_labels(state: Path, index: int, row_ids: Ids, labels: Labels) -> None:
    """Store the labels of a class, numbered from 0 within it; ``row_ids`` must ascend."""
    table = pa.table({ROW_ID: row_ids, "label": labels})
    pq.write_table(table, labels_path(state, index), row_group_size=LABEL_ROWS)


def write_label_part(state: Path, index: int, part: int, row_ids: Ids, labels: Labels) -> None:
    """Store some of the labels of a class that is too large for one file; parts ascend with row ids."""
    folder = state / f"labels-{index}"
    folder.mkdir(exist_ok=True)
    temporary = folder / f".{uuid.uuid4().hex}"
    pq.write_table(pa.table({ROW_ID: row_ids, "label": labels}), temporary, row_group_size=LABEL_ROWS)
    os.replace(temporary, folder / f"{part}.parquet")


def write_label_starts(state: Path, index: int, starts: list[int]) -> None:
    """Store the first row id of each part."""
    np.save(state / f"labels-{index}" / "starts.npy", np.array(starts, np.int64))


def _label_files(state: Path, index: int, row_ids: Ids) -> list[Path]:
    """Return the files that may hold some rows."""
    folder = state / f"labels-{index}"
    if not folder.exists():
        return [labels_path(state, index)]
    starts = np.load(folder / "starts.npy")
    low, high = np.searchsorted(starts, [row_ids.min(), row_ids.max()], side="right")
    return [folder / f"{part}.parquet" for part in range(max(low, 1) - 1, max(high, 1))]


def read_labels(state: Path, index: int, row_ids: Ids) -> Labels:
    """Read the labels of rows of one class, from the row groups that may hold them.

    Raises
    ------
    OperatorError
        A row has no label: the state was fitted on other data.
    """
    paths = _label_files(state, index, row_ids)
    within = (pc.field(ROW_ID) >= int(row_ids.min())) & (pc.field(ROW_ID) <= int(row_ids.max()))
    table = pa.concat_tables(pq.read_table(path, filters=within, partitioning=None) for path in paths)
    known = table.column(ROW_ID).to_numpy()
    position = np.searchsorted(known, row_ids)
    found = np.zeros(len(row_ids), bool)
    inside = position < len(known)
    found[inside] = known[position[inside]] == row_ids[inside]
    if not found.all():
        raise OperatorError(
            f"{paths[0]}: holds no label for row_id {row_ids[~found][0]}. Groups were inferred from other "
            "rows than these; run the operator `groups` again."
        )
    labels: Labels = table.column("label").to_numpy()[position]
    return labels


def number_groups(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add ``offset``, the number of the class's first group, in the order of the classes."""
    offset, numbered = 0, []
    for record in records:
        numbered.append({**record, "offset": offset})
        offset += record["n_groups"]
    return numbered
