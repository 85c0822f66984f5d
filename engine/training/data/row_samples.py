"""Bounded samples of rows: each worker writes the rows of its shard, and one task reads all of them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from connectors.storage import write_whole
from engine.training.data.rows import GroupedRows
from operators.arrays import Float64, Int64


@dataclass(frozen=True)
class RowSample:
    """n sampled rows with d features."""

    X: npt.NDArray[np.float32]
    """(n, d) features."""
    y: Int64
    """(n,) class indices."""
    ids: Int64
    """(n,) row ids."""
    groups: Int64
    """(n,) published groups; -1 - class for rows in no group."""
    target: Float64 | None = None
    """(n,) numbers that a regression predicts."""


def sample_file(folder: Path, shard: int) -> Path:
    """Return the file with the sampled rows of a shard."""
    return folder / f"{shard}.npz"


def write_sample(file: Path, rows: GroupedRows, groups: Int64, *, root: Path) -> None:
    """Write sampled rows. No link beneath ``root``, a folder above the file, is followed."""
    with io.BytesIO() as content:
        columns: dict[str, Any] = {"X": rows.X, "y": rows.y, "ids": rows.row_id, "groups": groups}
        if rows.target is not None:
            columns["target"] = rows.target
        np.savez(content, **columns)
        write_whole(file, content.getvalue(), durable=False, root=root)


def read_samples(files: Sequence[Path]) -> RowSample:
    """Read the rows of at least one file, in the order of the files."""
    parts = []
    for file in files:
        with np.load(file, allow_pickle=False) as stored:
            parts.append(dict(stored))
    return RowSample(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
