"""Labels of one block in any cell of the grid, and the statistics of cells from which one is selected."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from operators.arrays import NOISE, Index, Labels, Mask
from operators.dbscan.sharded.blocks import Layout
from operators.dbscan.sharded.hubs import Attachment, attachment


class Solved(NamedTuple):
    """Clusters of every cell, numbered. It is picklable and, except ``keys``, small."""

    layout: Layout
    round_: int
    """Number of the last round of attachment to hubs."""
    keys: list[list[int]]
    """For each block, the groups of the density search that hold its rows."""
    n_clusters: npt.NDArray[np.intp]
    """(n_levels, n_min_samples) number of clusters."""


class BlockLabels:
    """Labels and cores of the rows of one block."""

    def __init__(self, solved: Solved, block: int) -> None:
        layout = self._layout = solved.layout
        self._core = layout.load("core", block)
        self._to = attachment(layout, solved.round_, block)
        self._rows = layout.rows(block)
        self._pairs = [_pairs_of(layout, key, block) for key in solved.keys[block]]

    def of_threshold(self, m: int) -> CellLabels:
        """Return the labels for one min_samples."""
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

    def __init__(self, numbers: Labels, core: Any, to: Attachment, node: Index, pairs: list[Any]) -> None:
        self._numbers, self._core, self._to, self._node = numbers, core, to, node
        self._pairs = pairs

    def at(self, level: int) -> tuple[Labels, Mask]:
        """Return labels and cores at one radius; a border row joins the lowest cluster that reaches it."""
        numbers = np.asarray(self._numbers[level])
        core = self._core <= level
        labels = np.full(len(core), NOISE, np.int32)
        labels[core] = numbers[np.where(self._to.level <= level, self._to.hub, self._node)[core]]
        unsigned = labels.view(np.uint32)  # noise, -1, is the largest unsigned number
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
    to: Attachment


def _pairs_of(layout: Layout, key: int, block: int) -> _Pairs:
    found, reached = layout.unpack("density", key), layout.unpack("reached", key)
    row = found["number"][found["pair_row"]]
    mine = row // layout.block_rows == block
    return _Pairs(
        row[mine] - block * layout.block_rows,
        found["pair_col"][mine],
        found["pair_level"][mine],
        reached["core"][:, mine],
        Attachment(reached["hub"][mine], reached["level"][mine]),
    )


def count_labels(solved: Solved, block: int) -> None:
    """Store the sizes of the clusters of every cell within a block, and a digest of its labels."""
    layout, found = solved.layout, BlockLabels(solved, block)
    cells: dict[str, npt.NDArray[Any]] = {}
    for m in range(len(layout.least)):
        cell = found.of_threshold(m)
        for level in range(len(layout.eps)):
            labels = cell.at(level)[0]
            digest = blake2b(labels.tobytes(), digest_size=16).digest()
            cells[f"digest{m}-{level}"] = np.frombuffer(digest, np.uint8)
            cells[f"cluster{m}-{level}"], cells[f"size{m}-{level}"] = np.unique(labels, return_counts=True)
    layout.pack("count_labels", block, cells)


class CellSize(NamedTuple):
    """Figures of a cell of the grid."""

    noise: int
    """Rows in no cluster."""
    second: int
    """Rows of the second largest cluster."""
    digest: bytes
    """Equal for equal labels."""


def sizes(solved: Solved, m: int) -> list[CellSize]:
    """Return the figures of the cells of one min_samples, and store the ``sizes`` of clusters, noise
    first.
    """
    layout = solved.layout
    totals = [np.zeros(int(n) + 1, np.intp) for n in solved.n_clusters[:, m]]
    digests = [blake2b(digest_size=16) for _ in totals]
    for block in layout.blocks:
        with np.load(layout.folder / f"count_labels-{block}.npz") as stored:
            for level, total in enumerate(totals):
                total[stored[f"cluster{m}-{level}"] + 1] += stored[f"size{m}-{level}"]
                digests[level].update(stored[f"digest{m}-{level}"].tobytes())
    layout.pack("sizes", m, {str(level): total for level, total in enumerate(totals)})
    seconds = [int(np.sort(np.append(total[1:], [0, 0]))[-2]) for total in totals]
    return [
        CellSize(int(total[0]), second, digest.digest())
        for total, second, digest in zip(totals, seconds, digests, strict=True)
    ]
