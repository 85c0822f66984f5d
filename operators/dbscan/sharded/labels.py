"""Labels of one block in any cell of the grid, and what selection needs to know of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from operators.dbscan.distances import Index, Mask
from operators.dbscan.sharded.hubs import Attached, attached
from operators.dbscan.sharded.layout import Layout

Labels = npt.NDArray[np.int32]

NOISE = -1


class Solved(NamedTuple):
    """What the driver knows when all clusters are numbered. Picklable, small but for ``keys``.

    ``round_``: of the last attaching; ``keys``: groups of the density search that hold rows of each
    block; ``n_clusters``: (n_levels, n_min_samples).
    """

    layout: Layout
    round_: int
    keys: list[list[int]]
    n_clusters: npt.NDArray[np.intp]


class BlockLabels:
    """Labels and cores of the rows of one block."""

    def __init__(self, solved: Solved, block: int) -> None:
        layout = self._layout = solved.layout
        self._core = layout.load("core", block)
        self._to = attached(layout, solved.round_, block)
        self._rows = layout.rows(block)
        none = np.empty(0, np.intp)
        self._pairs = [
            _Pairs(none, none, none, np.empty((len(layout.least), 0), np.intp), Attached(none, none))
        ]
        self._pairs += [_pairs_of(layout, key, block) for key in solved.keys[block]]

    def of_threshold(self, m: int) -> CellLabels:
        """Labels for one min_samples."""
        layout = self._layout
        numbers, node_rows = (layout.load(name, m, mapped=True) for name in ("numbers", "node_rows"))
        first = numbers.shape[1] - len(node_rows)
        node = first + np.searchsorted(node_rows, self._rows)
        pairs = [
            (p.row, p.level, p.core[m], p.to, first + np.searchsorted(node_rows, p.col)) for p in self._pairs
        ]
        return CellLabels(numbers, self._core[m], self._to, node, pairs)


class CellLabels:
    """Labels of a block for one min_samples, at any radius."""

    def __init__(self, numbers: Labels, core: Any, to: Attached, node: Index, pairs: list[Any]) -> None:
        self._numbers, self._core, self._to, self._node = numbers, core, to, node
        self._pairs = pairs

    def at(self, level: int) -> tuple[Labels, Mask]:
        """Labels and cores at one radius; a border row joins the lowest cluster that reaches it."""
        numbers = np.asarray(self._numbers[level])
        core = self._core <= level
        labels = np.full(len(core), NOISE, np.int32)
        labels[core] = numbers[np.where(self._to.level <= level, self._to.hub, self._node)[core]]
        unsigned = labels.view(np.uint32)  # noise is the largest number there
        for row, first, reached, to, node in self._pairs:
            use = np.flatnonzero((first <= level) & (reached <= level))
            use = use[~core[row[use]]]
            found = numbers[np.where(to.level[use] <= level, to.hub[use], node[use])]
            np.minimum.at(unsigned, row[use], found.view(np.uint32))
        return labels, core


class _Pairs(NamedTuple):
    row: Index
    """Within the block."""
    col: Index
    level: npt.NDArray[Any]
    core: npt.NDArray[Any]
    to: Attached


def _pairs_of(layout: Layout, key: int, block: int) -> _Pairs:
    found, reached = layout.unpack("density", key), layout.unpack("reached", key)
    row = found["number"][found["pair_row"]]
    mine = row // layout.block_rows == block
    return _Pairs(
        row[mine] - block * layout.block_rows,
        found["pair_col"][mine],
        found["pair_level"][mine],
        reached["core"][:, mine],
        Attached(reached["hub"][mine], reached["level"][mine]),
    )


def tally(solved: Solved, sample: Index, block: int) -> None:
    """Store the sizes of the clusters of every cell within a block, and the labels of sampled rows.

    Parameters
    ----------
    sample : row numbers, ascending, of any blocks.
    """
    layout, found = solved.layout, BlockLabels(solved, block)
    inside = sample[sample // layout.block_rows == block] - block * layout.block_rows
    cells: dict[str, npt.NDArray[Any]] = {}
    sampled = np.empty((len(layout.eps), len(layout.least), len(inside)), np.int32)
    for m in range(len(layout.least)):
        cell = found.of_threshold(m)
        for level in range(len(layout.eps)):
            labels = cell.at(level)[0]
            sampled[level, m] = labels[inside]
            cells[f"cluster{m}-{level}"], cells[f"size{m}-{level}"] = np.unique(labels, return_counts=True)
    layout.pack("tally", block, {**cells, "sampled": sampled})


def sizes(solved: Solved, m: int) -> list[tuple[int, int]]:
    """Noise rows, and rows of the second largest cluster, at each radius for one min_samples."""
    layout = solved.layout
    totals = [np.zeros(int(n) + 1, np.int64) for n in solved.n_clusters[:, m]]  # the last is noise
    for block in layout.blocks:
        with np.load(layout.folder / f"tally-{block}.npz") as stored:
            for level, total in enumerate(totals):
                total[stored[f"cluster{m}-{level}"]] += stored[f"size{m}-{level}"]
    return [(int(total[-1]), int(np.sort(np.append(total[:-1], [0, 0]))[-2])) for total in totals]


def sampled_labels(layout: Layout) -> Labels:
    """(n_levels, n_min_samples, n_sample) labels of the sampled rows, in order."""
    return np.concatenate([layout.unpack("tally", block)["sampled"] for block in layout.blocks], axis=2)
