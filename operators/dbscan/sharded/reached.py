"""What the pairs kept by the density search say for the smaller min_samples, and for border rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from operators.dbscan.distances import Index
from operators.dbscan.forest import Forest
from operators.dbscan.sharded.density import core_of
from operators.dbscan.sharded.hubs import Attached, attached, attached_of
from operators.dbscan.sharded.layout import Arrays, Layout
from operators.dbscan.sharded.levels import Edges, lightest
from operators.dbscan.sharded.links import end_nodes


def resolve(layout: Layout, round_: int, key: int) -> None:
    """Store, for a group's pairs, what is known of the neighbours; and the edges per min_samples.

    A pair joins at the first radius that holds it and at which both rows are core. For the largest
    min_samples such edges are known already.
    """
    found = layout.unpack("density", key)
    rows, level = found["number"][found["pair_row"]], found["pair_level"]
    cols = found["pair_col"]
    core, to = core_of(layout, cols), attached_of(layout, round_, cols)
    layout.pack("reached", key, {"core": core, "hub": to.hub, "level": to.level})
    core_row, to_row = core_of(layout, rows), attached_of(layout, round_, rows)
    for m in range(len(layout.least) - 1):
        at = np.maximum(level, np.maximum(core[m], core_row[m])).astype(np.int16)
        use = at < len(layout.eps)
        ends = [
            end_nodes(numbers[use], Attached(who.hub[use], who.level[use]), at[use])
            for numbers, who in ((rows, to_row), (cols, to))
        ]
        edges = lightest(Edges(ends[0], ends[1], at[use]))
        layout.pack(f"edges{m}", key, edges._asdict())


def own_nodes(layout: Layout, round_: int, n_hubs: int, block: int) -> None:
    """Store the rows of a block that are core, per min_samples, before they are attached to a hub.

    Also stored: the lowest row that is attached to each hub at each level (n where there is none).
    """
    core, to = layout.load("core", block), attached(layout, round_, block)
    shift = block * layout.block_rows
    sooner = np.minimum(to.level, len(layout.eps))
    parts: Arrays = {}
    for m in range(len(layout.least)):
        rows = np.flatnonzero(core[m] < sooner)
        parts[f"row{m}"], parts[f"core{m}"] = rows + shift, core[m][rows]
        parts[f"hub{m}"], parts[f"level{m}"] = to.hub[rows], to.level[rows]
    lowest = np.full((len(layout.eps), n_hubs), layout.n, np.intp)
    for level in range(len(layout.eps)):
        rows = np.flatnonzero(to.level <= level)
        np.minimum.at(lowest[level], to.hub[rows], rows + shift)
    layout.pack("nodes", block, {**parts, "lowest": lowest})


def join(layout: Layout, keys: tuple[int, int], edges: Edges, m: int) -> list[int]:
    """Number the clusters of one min_samples at every radius; number of clusters at each.

    One worker does this for all rows: its memory grows with the rows that reach no hub as soon as they
    are core (8 bytes a level each), not with the rows.

    Parameters
    ----------
    keys : number of groups of the density search and of the link search.
    edges : between hubs, as nodes.

    Stores ``numbers``: (n_levels, n_hubs + n_nodes) int32 cluster of each hub and of each of the rows
    ``node_rows``; clusters are numbered by their lowest core row; -1 where there is none.
    """
    row, core, hub, level, lowest = _nodes(layout, m)
    n_hubs = lowest.shape[1]
    names = [f"edges{m}"] * keys[0] if m + 1 < len(layout.least) else []
    several = [Edges(**layout.unpack(name, key)) for key, name in enumerate(names)]
    several += [Edges(**layout.unpack("links", key)) for key in range(keys[1])]
    ties = level < len(layout.eps)
    several += [edges, Edges(row[ties], -1 - hub[ties].astype(np.intp), level[ties])]
    all_edges = lightest(Edges.joined(several))
    ends = [_positions(nodes, row, n_hubs) for nodes in (all_edges.a, all_edges.b)]
    forest = Forest(n_hubs + len(row))
    numbers = np.full((len(layout.eps), n_hubs + len(row)), -1, np.int32)
    n_clusters = []
    for at in range(len(layout.eps)):
        here = all_edges.level == at
        forest.union(ends[0][here], ends[1][here])
        first = np.append(lowest[at], np.where(core <= at, row, layout.n))
        present = np.flatnonzero(first < layout.n)
        root = forest.find(present)
        least = np.full(len(first), layout.n, np.intp)
        np.minimum.at(least, root, first[present])
        clusters, number = np.unique(least[root], return_inverse=True)
        numbers[at, present] = number
        n_clusters.append(len(clusters))
    layout.save("numbers", m, numbers)
    layout.save("node_rows", m, row)
    return n_clusters


def _nodes(layout: Layout, m: int) -> tuple[npt.NDArray[Any], ...]:
    """What :func:`own_nodes` stored of all blocks."""
    parts = []
    lowest = layout.unpack("nodes", 0)["lowest"]
    for block in layout.blocks:
        stored = layout.unpack("nodes", block)
        np.minimum(lowest, stored["lowest"], out=lowest)
        parts.append([stored[f"{name}{m}"] for name in ("row", "core", "hub", "level")])
    return *(np.concatenate(column) for column in zip(*parts, strict=True)), lowest


def _positions(nodes: Index, row: Index, n_hubs: int) -> Index:
    """Hub -1 - h to h, row to ``n_hubs`` and its place among the rows."""
    return np.where(nodes < 0, -1 - nodes, n_hubs + np.searchsorted(row, nodes))
