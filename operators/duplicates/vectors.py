"""Near duplicates among vectors: the stored vectors of all shards, and trees of boxes over groups of shards.

One folder for each shard holds the row ids of its vectors, ascending (``ids.npy``), and the vectors
(``rows.npy``). A tree (:mod:`operators.duplicates.box_tree`) covers a run of shards. Trees of like size are
made one as shards come (:mod:`operators.duplicates.runs`): there are few of them, and an increment builds
few anew. One task searches all trees for the older rows of one new shard, and stores the
pairs that it finds.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from operators.arrays import Float32, Ids, Mask
from operators.base import FEATURES, ROW_ID, OperatorError, ShardReader
from operators.columns import vectors_to_numpy
from operators.duplicates.box_tree import SAMPLE, BoxTree, OldestNear, build_tree, choose_axes, project
from operators.duplicates.pairs import KindOf, Kinds, write_pairs
from operators.duplicates.runs import Run, choose_runs
from operators.neighbours.geometry import Geometry

ROUNDING = 1e-6
"""Cosines of float32 vectors are this uncertain: equal vectors are near at any distance."""
TREE = "tree"
LARGEST = 2**22
"""Most rows of trees that are made one: a worker holds 300 bytes for each row of a tree that it builds."""


def store_vectors(reader: ShardReader, state: Path, shard: int) -> int:
    """Store the vectors of a shard's valid rows; return how many there are.

    A row with an entry that is not finite is near no other, and left out.
    """
    info = next(info for info in reader.shards if info.index == shard)
    table = reader.read(shard, [FEATURES])
    if not table.num_rows:
        return 0
    rows = vectors_to_numpy(table.column(FEATURES)).astype(np.float32, copy=False)
    finite = np.isfinite(rows).all(axis=1)
    if finite.any():
        folder = _folder(state, info.first_row)
        folder.mkdir(exist_ok=True)
        np.save(folder / "ids.npy", table.column(ROW_ID).to_numpy()[finite])
        np.save(folder / "rows.npy", rows[finite])
    return int(finite.sum())


def check_widths(reader: ShardReader, state: Path) -> None:
    """Raise OperatorError, which names the file, if vectors have different lengths."""
    paths = {info.first_row: info.path for info in reader.shards}
    first: tuple[int, int] | None = None
    for folder in sorted(state.glob("vectors-*")):
        width = int(np.load(folder / "rows.npy", mmap_mode="r").shape[1])
        row = int(folder.name.removeprefix("vectors-"))
        first = first or (width, row)
        if width != first[0]:
            raise OperatorError(
                f"{paths[row]}: its features are vectors of {width} entries, those of {paths[first[1]]} "
                f"have {first[0]}. They come from different runs; run the operator that adds them again."
            )


def trees_to_build(state: Path) -> list[Run]:
    """Return the runs of shards whose trees are missing; trees that these replace are removed."""
    known = sorted(map(Run.of, state.glob("tree-*")))
    covered = max((run.last for run in known), default=-1)
    rows = {
        int(folder.name.removeprefix("vectors-")): len(np.load(folder / "ids.npy", mmap_mode="r"))
        for folder in sorted(state.glob("vectors-*"))
    }
    new = [Run(first, first, n) for first, n in rows.items() if first > covered]
    chosen = choose_runs(known, new, LARGEST)
    for run in set(known) - set(chosen):
        shutil.rmtree(state / run.name(TREE))
    return [run for run in chosen if run not in known]


def build_run(state: Path, run: Run) -> int:
    """Build the tree of a run of shards; return its rows."""
    rows = _StoredRows(state, run)
    ids = rows.ids()
    drawn = np.unique(np.linspace(0, len(ids) - 1, SAMPLE).astype(np.int64))
    X = rows(ids[drawn])
    axes = choose_axes(Geometry.of(X, "cosine").exact(X))
    at = np.empty((len(ids), len(axes) - 1), np.float32)
    start = 0
    for part in rows.parts():
        at[start : start + len(part)] = project(part, axes)
        start += len(part)
    build_tree(state / run.name(TREE), axes, at, ids)
    return len(ids)


def search_vectors(reader: ShardReader, state: Path, distance: float, shard: int) -> int:
    """Find the oldest near row of each row of a shard among older ones; return how many have one.

    They are stored by :func:`operators.duplicates.pairs.write_pairs`.
    """
    info = next(info for info in reader.shards if info.index == shard)
    own = _folder(state, info.first_row)
    if not info.n_rows or not own.exists():
        return 0
    ids, X = np.load(own / "ids.npy"), np.load(own / "rows.npy", mmap_mode="r")
    found = OldestNear(X, ids, max(distance, ROUNDING), _StoredRows(state))
    for run in sorted(map(Run.of, state.glob("tree-*"))):
        if run.first <= ids[-1]:
            found.search(BoxTree.load(state / run.name(TREE)))
    near = np.flatnonzero(found.of < ids)
    similar = (1.0 - found.distances[near]).astype(np.float32)
    return write_pairs(state, info.first_row, ids[near], found.of[near], similar)


def vectors_near_other_kind(state: Path, distance: float, ids: Ids, kinds: Kinds, kind_of: KindOf) -> Mask:
    """Return whether each row (n,), of ascending ids, is near an older one of another kind."""

    def admits(queries: Ids, others: Ids) -> Mask:
        theirs = kind_of(others)
        admitted: Mask = (theirs >= 0) & (theirs != kinds[queries][:, None])
        return admitted

    rows = _StoredRows(state)
    found = OldestNear(rows(ids), ids, max(distance, ROUNDING), rows, admits)
    for run in sorted(map(Run.of, state.glob(f"{TREE}-*"))):
        if run.first <= ids[-1]:
            found.search(BoxTree.load(state / run.name(TREE)))
    return found.of < ids


def _folder(state: Path, first_row: int) -> Path:
    return state / f"vectors-{first_row:015d}"


class _StoredRows:
    """The stored vectors of a run of shards, or of all. One file at a time is open, whatever their number."""

    def __init__(self, state: Path, run: Run | None = None) -> None:
        folders = sorted(state.glob("vectors-*"))
        if run:
            folders = [f for f in folders if run.first <= int(f.name.removeprefix("vectors-")) <= run.last]
        self._folders = folders
        self._first = np.array([int(folder.name.removeprefix("vectors-")) for folder in folders])

    def ids(self) -> Ids:
        """Return all row ids, ascending."""
        return np.concatenate([np.load(folder / "ids.npy") for folder in self._folders])

    def parts(self) -> Iterator[Float32]:
        """Yield the vectors of each shard, mapped into memory."""
        for folder in self._folders:
            yield np.load(folder / "rows.npy", mmap_mode="r")

    def __call__(self, ids: Ids) -> Float32:
        """Return the vectors (m, p) of rows with some ids (m,)."""
        found = np.empty((len(ids), next(self.parts()).shape[1]), np.float32)
        numbers = np.searchsorted(self._first, ids, side="right") - 1
        for number in np.unique(numbers):
            mine, folder = np.flatnonzero(numbers == number), self._folders[number]
            places = np.searchsorted(np.load(folder / "ids.npy", mmap_mode="r"), ids[mine])
            found[mine] = np.load(folder / "rows.npy", mmap_mode="r")[places]
        return found
