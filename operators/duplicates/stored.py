"""Signatures of all texts on disk, and the search for pairs in their bands.

One folder for each shard holds the row ids of its texts, ascending (``ids.npy``), their signatures
(``signatures.npy``), the keys of each band, ascending (``keys.npy``), and whose they are (``order.npy``). One
task searches one band for the new rows whose key falls into its slice, and holds the signatures of a bounded
number of them; what it finds is a file of pairs, ascending by row id. Each shard then takes the oldest row
of each of its own rows from the files of all tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from operators.arrays import Ids, Mask
from operators.base import ROW_ID, OperatorError, ShardReader
from operators.duplicates.minhash import (
    COMPARED,
    N_HASHES,
    Signatures,
    band_keys,
    choose_bands,
    older_in_band,
    signatures,
)
from operators.duplicates.pairs import PARTLY, KindOf, Kinds, write_some
from operators.duplicates.params import DuplicatesParams
from operators.hashing import Hashes

ROWS_OF_A_TASK = 250_000
"""About so many new rows are looked up by one task, unless many have the same key."""


class Task(NamedTuple):
    """One band, and the number of a slice of its keys, of so many."""

    band: int
    part: int
    n_parts: int


class _Sought(NamedTuple):
    """Rows of one folder that a task compares."""

    keys: Hashes
    ids: Ids
    places: npt.NDArray[np.uint32]
    """Rows of the folder."""


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
    texts = [" ".join(filter(None, row)) for row in zip(*columns, strict=True)]
    try:
        has_any, found = signatures(texts, params.shingle)
    except ImportError as error:
        raise OperatorError(str(error)) from None
    if len(found):
        folder = state / f"texts-{info.first_row:015d}"
        folder.mkdir(exist_ok=True)
        np.save(folder / "ids.npy", ids[has_any])
        np.save(folder / "signatures.npy", found)
        keys = band_keys(found, params.threshold)
        order = np.argsort(keys, axis=1, kind="stable")
        np.save(folder / "keys.npy", np.take_along_axis(keys, order, axis=1))
        np.save(folder / "order.npy", order.astype(np.uint32))
    return len(found)


def search_tasks(n_texts: int, threshold: float) -> list[Task]:
    """Return the tasks that together search all bands for so many new texts."""
    bands, _ = choose_bands(threshold)
    n_parts = max(1, -(-n_texts // ROWS_OF_A_TASK))
    return [Task(band, part, n_parts) for band in range(bands) for part in range(n_parts)]


def search(state: Path, threshold: float, first_row: int, task: Task) -> int:
    """Find the older near duplicates, in one band, of rows from ``first_row`` on; return how many have one.

    They are stored as ``partly-<band>-<slice>.npy``. Of the rows before, those with a key of a new row are
    looked up, so that the cost grows with the new rows. One folder at a time is open, however many there are.
    """
    folders = sorted(state.glob("texts-*"))
    found: dict[int, _Sought] = {}
    new = {n for n, path in enumerate(folders) if int(path.name.removeprefix("texts-")) >= first_row}
    for number in sorted(new):  # each folder is closed before the next one is opened
        band = _Band(_Folder(folders[number]), task.band)
        found[number] = band.read(band.slice(task))
    if not any(len(sought.keys) for sought in found.values()):
        return 0
    wanted = np.unique(np.concatenate([sought.keys for sought in found.values()]))
    for number in range(len(folders)):
        if number not in new:
            band = _Band(_Folder(folders[number]), task.band)
            found[number] = band.read(band.with_keys(wanted))
    ordered = [found[number] for number in range(len(folders))]
    key = np.concatenate([sought.keys for sought in ordered])
    row_id = np.concatenate([sought.ids for sought in ordered])
    numbers = np.repeat(np.arange(len(ordered)), [len(sought.keys) for sought in ordered])
    places = np.concatenate([sought.places for sought in ordered])
    _, which, count = np.unique(key, return_inverse=True, return_counts=True)
    shared = np.flatnonzero(count[which] > 1)
    signed = _Signatures(folders, np.stack([numbers[shared], places[shared]]))
    ids = row_id[shared]
    rows, others, similar = older_in_band(key[shared], ids, signed, threshold, ids >= first_row)
    name = f"{PARTLY}-{task.band:03d}-{task.part:06d}"
    return write_some(state / name, ids[rows], ids[others], similar)


def texts_near_other_kind(state: Path, threshold: float, ids: Ids, kinds: Kinds, kind_of: KindOf) -> Mask:
    """Return whether each row (n,), of ascending ids, is near an older one of another kind in some band.

    In each band a row is compared with the oldest ``COMPARED`` rows of another kind that have its key, in
    whatever shards they are.
    """
    folders = sorted(state.glob("texts-*"))
    firsts = np.array([int(folder.name.removeprefix("texts-")) for folder in folders])
    numbers = np.searchsorted(firsts, ids, side="right") - 1
    places = np.empty(len(ids), np.int64)
    for number in np.unique(numbers):
        mine = numbers == number
        places[mine] = np.searchsorted(np.load(folders[number] / "ids.npy", mmap_mode="r"), ids[mine])
    own = _Signatures(folders, np.stack([numbers, places]))[np.arange(len(ids))]
    found = np.zeros(len(ids), np.bool_)
    keys = band_keys(own, threshold)
    order, left = np.argsort(keys, axis=1), np.full(keys.shape, COMPARED, np.int16)
    for path, first in zip(folders, firsts, strict=True):  # outside, so that each file is opened once
        folder = _Folder(path)
        for band in range(len(keys)):
            asked = order[band][(~found & (left[band] > 0) & (ids > first))[order[band]]]
            stored = _Band(folder, band)
            asked = asked[stored.has(keys[band, asked])]
            for kind in np.unique(kinds[asked]):
                mine = asked[kinds[asked] == kind]
                most = left[band, mine]
                places, begin, length = stored.with_other_kind(keys[band, mine], kind, kind_of, most)
                found[mine] = stored.near(own[mine], threshold, ids[mine], places, begin, length)
                left[band, mine] -= length
    return found


class _Folder:
    """The files of one shard, each of which is mapped when it is first read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def keys(self) -> Hashes:
        """Return the keys (bands, m) of each band, ascending."""
        return self._map("keys")

    @cached_property
    def order(self) -> npt.NDArray[np.uint32]:
        """Return the places (bands, m) of the rows with these keys."""
        return self._map("order")

    @cached_property
    def ids(self) -> Ids:
        """Return the row ids (m,), ascending."""
        return self._map("ids")

    @cached_property
    def signatures(self) -> Signatures:
        """Return the signatures (m, N_HASHES)."""
        return self._map("signatures")

    def _map(self, name: str) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = np.load(self._path / f"{name}.npy", mmap_mode="r")
        return found


class _Band:
    """One band of a folder: its keys ascend, and of equal ones those of older rows come first."""

    def __init__(self, folder: _Folder, band: int) -> None:
        self._folder, self._band = folder, band
        self.keys: Hashes = folder.keys[band]

    @property
    def places(self) -> npt.NDArray[np.uint32]:
        """Return the places (m,) of the rows in the order of the keys."""
        found: npt.NDArray[np.uint32] = self._folder.order[self._band]
        return found

    def ids(self, rows: Ids) -> Ids:
        """Return the row ids at positions in the order of the keys."""
        found: Ids = self._folder.ids[self.places[rows]]
        return found

    def read(self, rows: Ids) -> _Sought:
        """Read the rows at positions in the order of the keys into memory."""
        return _Sought(self.keys[rows], self.ids(rows), self.places[rows])

    def slice(self, task: Task) -> Ids:
        """Return the positions of a task's rows: its range of keys, which are spread evenly as hashes are."""
        first, end = (part * 2**64 // task.n_parts for part in (task.part, task.part + 1))
        start = np.searchsorted(self.keys, np.uint64(first))
        return np.arange(start, np.searchsorted(self.keys, np.uint64(end - 1), "right"))

    def has(self, keys: Hashes) -> Mask:
        """Return whether each of some keys (n,) occurs."""
        place = np.searchsorted(self.keys, keys)
        found: Mask = place < len(self.keys)
        found[found] = self.keys[place[found]] == keys[found]
        return found

    def with_keys(self, wanted: Hashes) -> Ids:
        """Return the positions of the oldest ``COMPARED`` rows of each of some keys."""
        first = np.searchsorted(self.keys, wanted, "left")
        length = np.minimum(np.searchsorted(self.keys, wanted, "right") - first, COMPARED)
        return _ranges(first, length)

    def with_other_kind(self, keys: Hashes, kind: int, kind_of: KindOf, most: Ids) -> tuple[Ids, Ids, Ids]:
        """Find the rows of another kind than ``kind`` that have some keys (n,), which ascend.

        Returns their positions (p,), those of one key in a row and ascending by age; and for each key where
        its rows begin among them (n,), and how many of them are to be compared (n,), at most ``most`` (n,).
        """
        first, last = (np.searchsorted(self.keys, keys, side) for side in ("left", "right"))
        _, one = np.unique(keys, return_index=True)
        places = _ranges(first[one], (last - first)[one])
        theirs = kind_of(self.ids(places))
        places = places[(theirs >= 0) & (theirs != kind)]
        begin = np.searchsorted(places, first)
        return places, begin, np.minimum(np.searchsorted(places, last) - begin, most)

    def near(
        self, signed: Signatures, threshold: float, ids: Ids, places: Ids, begin: Ids, length: Ids
    ) -> Mask:
        """Return whether each row (n,) is near an older one among those found by :meth:`with_other_kind`."""
        theirs = self._folder.signatures
        found = np.zeros(len(ids), np.bool_)
        for member in range(int(length.max(initial=0))):
            rows = np.flatnonzero(~found & (length > member))
            at = places[begin[rows] + member]
            older = self.ids(at) < ids[rows]
            rows, at = rows[older], at[older]
            similar = (signed[rows] == theirs[self.places[at]]).mean(axis=1, dtype=np.float32)
            found[rows[similar >= threshold]] = True
        return found


def _ranges(first: Ids, length: Ids) -> Ids:
    """Return the numbers from each of ``first`` (n,) on, as many as ``length`` (n,) says, in their order."""
    before = np.cumsum(length) - length
    return np.repeat(first - before, length) + np.arange(length.sum())


class _Signatures:
    """The signatures of some rows, read from their folders when they are asked for."""

    def __init__(self, folders: Sequence[Path], place: Ids) -> None:
        """Take the number of the folder and the row in it, (2, m)."""
        self._folders = folders
        self._place = place

    def __getitem__(self, rows: Ids, /) -> Signatures:
        numbers, places = self._place[:, rows]
        found = np.empty((len(rows), N_HASHES), np.uint32)
        for number in np.unique(numbers):
            mine = np.flatnonzero(numbers == number)
            signed: Signatures = np.load(self._folders[number] / "signatures.npy", mmap_mode="r")
            found[mine] = signed[places[mine]]
        return found
