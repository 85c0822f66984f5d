"""Signatures of all texts on disk, and the search for pairs in their bands.

One folder for each shard holds the row ids of its texts, ascending (``ids.npy``), their signatures
(``signatures.npy``) and the keys of their bands (``keys.npy``). One task searches one band among the rows
whose key falls into its slice, and holds the signatures of a bounded number of them; what it finds is a
file of pairs, ascending by row id, of which a shard reads the part with its own rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from operators.arrays import Ids
from operators.base import ROW_ID, OperatorError, ShardReader
from operators.duplicates.minhash import (
    N_HASHES,
    Duplicates,
    Signatures,
    band_keys,
    choose_bands,
    older_in_band,
    oldest,
    signatures,
)
from operators.duplicates.params import DuplicatesParams

ROWS_OF_A_TASK = 250_000
"""About so many rows are compared by one task, unless many have the same key."""
PAIR = np.dtype([("row", np.int64), ("of", np.int64), ("similarity", np.float32)])
BETWEEN = "\n\x1f\n"
"""Separator of the columns of a row."""

Pairs = npt.NDArray[Any]
"""Structured array of ``PAIR``."""


class Task(NamedTuple):
    """One band, and the slice of its keys."""

    band: int
    part: int
    n_parts: int


def sign_shard(reader: ShardReader, state: Path, params: DuplicatesParams, shard: int) -> int:
    """Store the signatures of a shard's valid rows; return how many have a text.

    Raises OperatorError if the package that makes signatures is missing.
    """
    info = next(info for info in reader.shards if info.index == shard)
    ids = reader.read(shard, []).column(ROW_ID).to_numpy()
    columns = [
        column.to_pylist()
        for column in reader.read_source(shard, params.columns).take(ids - info.first_row).columns
    ]
    texts = [BETWEEN.join(filter(None, row)) for row in zip(*columns, strict=True)]
    try:
        has_any, found = signatures(texts, params.shingle)
    except ImportError as error:
        raise OperatorError(str(error)) from None
    if len(found):
        folder = state / f"texts-{info.first_row:015d}"
        folder.mkdir(exist_ok=True)
        np.save(folder / "ids.npy", ids[has_any])
        np.save(folder / "signatures.npy", found)
        np.save(folder / "keys.npy", band_keys(found, params.threshold))
    return len(found)


def search_tasks(n_texts: int, threshold: float) -> list[Task]:
    """Return the tasks that together search all bands of so many texts."""
    bands, _ = choose_bands(threshold)
    n_parts = max(1, -(-n_texts // ROWS_OF_A_TASK))
    return [Task(band, part, n_parts) for band in range(bands) for part in range(n_parts)]


def search(state: Path, threshold: float, first_row: int, task: Task) -> int:
    """Find the older near duplicates, in one band, of rows from ``first_row`` on; return how many have one.

    They are stored as ``pairs-<first row>-<band>-<slice>.npy``.
    """
    folders = sorted(state.glob("texts-*"))
    keys, ids, places = [], [], []
    for number, folder in enumerate(folders):
        key = np.load(folder / "keys.npy", mmap_mode="r")[task.band]
        rows = np.flatnonzero(key % np.uint64(task.n_parts) == task.part)
        keys.append(key[rows])
        ids.append(np.load(folder / "ids.npy", mmap_mode="r")[rows])
        places.append(np.stack([np.full(len(rows), number), rows]))
    if not folders:
        return 0
    key, row_id, place = np.concatenate(keys), np.concatenate(ids), np.concatenate(places, axis=1)
    _, which, count = np.unique(key, return_inverse=True, return_counts=True)
    shared = count[which] > 1
    key, row_id, place = key[shared], row_id[shared], place[:, shared]
    found = _Signatures(folders, place)
    rows, others, similar = older_in_band(key, row_id, found, threshold, row_id >= first_row)
    pairs = np.empty(len(rows), PAIR)
    pairs["row"], pairs["of"], pairs["similarity"] = row_id[rows], row_id[others], similar
    if len(pairs):
        name = f"pairs-{first_row:015d}-{task.band:03d}-{task.part:06d}.npy"
        np.save(state / name, np.sort(pairs, order="row"))
    return len(pairs)


class _Signatures:
    """The signatures of some rows, read from their folders when they are asked for."""

    def __init__(self, folders: Sequence[Path], place: Ids) -> None:
        """Take the number of the folder and the row in it, (2, m)."""
        self._files: list[Signatures] = [np.load(one / "signatures.npy", mmap_mode="r") for one in folders]
        self._place = place

    def __getitem__(self, rows: Ids, /) -> Signatures:
        numbers, places = self._place[:, rows]
        found = np.empty((len(rows), N_HASHES), np.uint32)
        for number in np.unique(numbers):
            mine = np.flatnonzero(numbers == number)
            found[mine] = self._files[number][places[mine]]
        return found


class StoredPairs:
    """The pairs that all bands have found, mapped into memory."""

    def __init__(self, state: Path) -> None:
        self._files: list[Pairs] = [np.load(path, mmap_mode="r") for path in sorted(state.glob("pairs-*"))]

    def of_rows(self, ids: Ids) -> Duplicates:
        """Return the older near duplicates of rows (n,), ascending by their ids."""
        found = []
        for pairs in self._files if len(ids) else []:
            first, end = np.searchsorted(pairs["row"], [ids[0], ids[-1] + 1])
            part = np.array(pairs[first:end])
            found.append((part["row"], part["of"], part["similarity"]))
        return oldest(ids, found)
