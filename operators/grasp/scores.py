"""Silhouettes of a class in blocks: the sums, hence the scores, of ``metrics.mean_silhouettes``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from operators.arrays import Index, Labels
from operators.dbscan.sharded.blocks import Layout, read_rows
from operators.dbscan.sharded.labels import BlockLabels, Solved
from operators.metrics.silhouette_sums import TILE, Float64, cluster_sums, coefficients, mean_and_error
from operators.metrics.silhouettes import BLOCK, FAILED, SUMS, Silhouettes, mean_silhouettes


class Cells(NamedTuple):
    """The labelings to score. Small.

    Attributes
    ----------
    which : (n_levels * n_min_samples,) which of the different labelings each cell of the grid is.
    first : a cell that has each of them.
    n_clusters : clusters of each of them, noise included.
    usable : those that have a silhouette.
    """

    which: Index
    first: Index
    n_clusters: Index
    usable: npt.NDArray[np.bool_]


def cells_of(solved: Solved, digests: list[bytes], noise: Index) -> Cells:
    """Which cells to score, from a digest of each cell's labels and its noise rows."""
    seen: dict[bytes, int] = {}
    which = np.array([seen.setdefault(digest, len(seen)) for digest in digests], np.intp)
    first = np.unique(which, return_index=True)[1]
    n_groups = solved.n_clusters.reshape(-1)[first]
    n_used = n_groups + (noise[first] > 0)
    return Cells(which, first, n_groups + 1, (n_used >= 2) & (n_used < solved.layout.n))


def row_tasks(n_drawn: int, n_sums: int) -> list[tuple[int, int]]:
    """Drawn rows cut as ``mean_silhouettes`` cuts them, and these pieces at its tiles."""
    step = max(1, SUMS // max(1, n_sums))
    chunks = [(start, min(start + step, n_drawn)) for start in range(0, n_drawn, step)]
    return [(at, min(at + TILE[0], stop)) for start, stop in chunks for at in range(start, stop, TILE[0])]


def score_rows(solved: Solved, cells: Cells, drawn: Index, some: tuple[int, int]) -> Float64:
    """(n_usable, s) silhouette coefficients of some of the ``drawn`` rows (row numbers, ascending)."""
    layout = solved.layout
    sample = read_rows(layout, drawn).vectors
    centre = sample.mean(axis=0, dtype=np.float64)
    rows = (sample[some[0] : some[1]] - centre).astype(np.float32)
    n_clusters = cells.n_clusters[cells.usable]
    total = np.zeros((int(n_clusters.sum()), len(rows)))
    own = np.empty((len(n_clusters), len(rows)), np.int32)
    mine = drawn[some[0] : some[1]]
    for start, labels in _labels_by_span(solved, cells):
        numbers = np.arange(start, start + labels.shape[1])
        block = (read_rows(layout, numbers).vectors - centre).astype(np.float32)
        total += cluster_sums(rows, block, labels, n_clusters)
        here = np.flatnonzero((mine >= start) & (mine < start + labels.shape[1]))
        own[:, here] = labels[:, mine[here] - start]
    return coefficients(total, _sizes(solved, cells), own, n_clusters)


def score_all(solved: Solved) -> Silhouettes:
    """Scores of every cell of the grid from all rows; for the few rows of which all are compared."""
    layout = solved.layout
    n_cells = len(layout.eps) * len(layout.least)
    all_cells = np.arange(n_cells)
    every = Cells(all_cells, all_cells, all_cells, np.ones(n_cells, np.bool_))
    labels = np.concatenate([_labels(solved, every, block) for block in layout.blocks], axis=1)
    return mean_silhouettes(read_rows(layout, np.arange(layout.n)).vectors, labels)


def scores_of(layout: Layout, cells: Cells, coefficients_: list[Float64]) -> Silhouettes:
    """Scores of every cell of the grid from the coefficients of all drawn rows."""
    values = np.concatenate(coefficients_, axis=1)
    found = np.zeros((len(cells.first), values.shape[1]))
    found[cells.usable] = values
    mean, error = mean_and_error(found, layout.n)
    mean, error = np.where(cells.usable, mean, FAILED), np.where(cells.usable, error, 0.0)
    return Silhouettes(mean[cells.which], error[cells.which])


def _sizes(solved: Solved, cells: Cells) -> Index:
    n_least = len(solved.layout.least)
    stored = [solved.layout.unpack("sizes", m) for m in range(n_least)]
    return np.concatenate(
        [stored[k % n_least][str(k // n_least)] for k in cells.first[cells.usable].tolist()]
    )


def _labels_by_span(solved: Solved, cells: Cells) -> Iterator[tuple[int, Labels]]:
    """Usable labelings of every BLOCK rows: sums over them are added in that order."""
    layout = solved.layout
    for start in range(0, layout.n, BLOCK):
        stop = min(start + BLOCK, layout.n)
        parts = []
        for block in range(start // layout.block_rows, (stop - 1) // layout.block_rows + 1):
            first = block * layout.block_rows
            inside = slice(max(start - first, 0), stop - first)
            parts.append(_labels(solved, cells, block)[:, inside])
        yield start, np.concatenate(parts, axis=1)


def _labels(solved: Solved, cells: Cells, block: int) -> Labels:
    found = BlockLabels(solved, block)
    n_least = len(solved.layout.least)
    wanted = cells.first[cells.usable]
    labels = np.empty((len(wanted), len(solved.layout.rows(block))), np.int32)
    for m in range(n_least):
        mine = np.flatnonzero(wanted % n_least == m)
        cell = found.of_threshold(m) if len(mine) else None
        for position in mine:
            labels[position] = cell.at(int(wanted[position]) // n_least)[0]  # type: ignore[union-attr]
    return labels
