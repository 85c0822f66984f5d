"""The driver of DBSCAN in blocks, which runs the tasks in order and receives small values from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from operators.dbscan.density import (
    GROWTH,
    MAX_SAMPLE_GROWTH,
    MAX_SAMPLE_SHARE,
    MIN_SAMPLE,
    SAMPLE_PER_GOAL,
    STALLED,
)
from operators.dbscan.sharded import blocks, density, hubs, labels, links
from operators.dbscan.sharded.blocks import Layout, Preparation, drawn, query_groups
from operators.dbscan.sharded.level_forest import Edges, lightest
from operators.points import Metric

Map: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Runs a picklable function on every item and returns the results in order. May run an item again."""

SEED = 0
"""Seed of samples and hubs, on which the time depends, but not the labels."""
HUBS = 64
"""Hubs of the first round."""
MAX_HUBS = 1024
"""Largest number of hubs of a round."""
ROWS_PER_HUB = 64
"""Core samples per hub: more hubs than that take longer than they save."""
ALL_HUBS = 2048
"""Largest number of hubs of all rounds."""
PROGRESS = 0.8
"""A round must leave at most this share of the rows outside the largest component."""
QUERY_ROWS = 4096
"""Rows that one task compares with all blocks."""


def lay_out(
    map_: Map,
    source: blocks.Source,
    folder: Path,
    *,
    shape: tuple[int, int],
    metric: Metric,
    eps: Sequence[float],
    least: Sequence[int],
    block_rows: int,
    gpus: float = 0.0,
) -> tuple[Layout, bool]:
    """Write the blocks of a class; return their layout, and whether all rows are equal.

    Parameters
    ----------
    source : reads rows of the class, in order.
    folder : empty scratch folder that all workers share.
    shape : rows and columns of the class.
    metric : as in :class:`~operators.dbscan.DBSCAN`.
    eps, least : radii and values of min_samples, ascending, no repeats.
    block_rows : rows of a block, >= 1; a worker holds one block and up to QUERY_ROWS other rows.
    gpus : GPUs of a worker; above 0 the GPU computes the products.
    """
    n, n_features = shape
    spans = list(blocks.spans(n))
    sums, alike = zip(*map_(partial(blocks.sum_span, source, n), spans), strict=True)
    centre = np.zeros(n_features) if metric == "cosine" else blocks.mean_of(source, n, list(sums))
    unit = 1.0
    if metric == "euclidean":
        largest = max(map_(partial(blocks.largest_entry, source, n, centre), spans))
        unit = blocks.unit_of(largest, n_features)
    query_rows = min(QUERY_ROWS, block_rows)
    frame = Preparation(metric, centre, unit)
    layout = Layout(
        folder=folder,
        n=n,
        n_features=n_features,
        block_rows=block_rows,
        eps=tuple(eps),
        least=tuple(least),
        frame=frame,
        query_rows=query_rows,
        gpus=gpus,
    )
    _each(map_, partial(blocks.write_block, layout, source), layout.blocks)
    return layout, all(alike)


def solve(map_: Map, layout: Layout) -> labels.Solved:
    """Find and number the clusters of every cell of the grid."""
    round_, counts = _decide(map_, layout)
    _alone(map_, partial(density.choose_directions, layout, round_, counts), SEED)
    _each(map_, partial(density.write_boxes, layout), layout.blocks)
    groups = query_groups(counts, layout.query_rows)
    _each(map_, _Keyed(partial(density.search, layout, round_)), list(enumerate(groups)))
    keys: list[list[int]] = [[] for _ in layout.blocks]
    for key, group in enumerate(groups):
        for block, _, _ in group:
            keys[block].append(key)
    cores = list(map_(partial(density.core_levels, layout, round_, keys), layout.blocks))
    attachment, outsiders, edges, n_hubs = _attach(map_, layout, cores)
    link_groups = query_groups(outsiders, layout.query_rows)
    _each(map_, _Keyed(partial(links.link, layout, attachment)), list(enumerate(link_groups)))
    _each(map_, partial(links.resolve, layout, attachment), range(len(groups)))
    _each(map_, partial(links.write_nodes, layout, attachment, n_hubs), layout.blocks)
    as_nodes = Edges(-1 - edges.a, -1 - edges.b, edges.level)
    number = partial(links.number_clusters, layout, (len(groups), len(link_groups)), as_nodes)
    n_clusters = np.array(list(map_(number, range(len(layout.least))))).T
    return labels.Solved(layout, attachment, keys, n_clusters)


def _decide(map_: Map, layout: Layout) -> tuple[int, list[int]]:
    """Run rounds of samples as ``density.decide_by_samples`` does.

    Returns the number of the last round and the number of open rows of each block.
    """
    counts = list(map_(partial(density.start, layout), layout.blocks))
    size = max(MIN_SAMPLE, int(SAMPLE_PER_GOAL * layout.least[-1]))
    largest = min(MAX_SAMPLE_GROWTH * size, int(MAX_SAMPLE_SHARE * layout.n))
    random, round_ = np.random.default_rng(SEED), 0
    while sum(counts) > size and size <= largest:
        ranks = drawn(random, layout.n, size - size // 2), drawn(random, sum(counts), size // 2)
        _alone(map_, partial(density.draw_sample, layout, round_, counts), ranks)
        found = list(map_(partial(density.decide_block, layout, round_), layout.blocks))
        n_before, counts = sum(counts), [n_open for n_open, _ in found]
        round_ += 1
        if sum(n_moved for _, n_moved in found) <= STALLED * n_before:
            break
        size = min(GROWTH * size, largest)
    return round_, counts


def _attach(map_: Map, layout: Layout, cores: list[int]) -> tuple[int, list[int], Edges, int]:
    """Run rounds of hubs.

    Returns the number of the last round, the number of outside rows of each block, the edges between hubs,
    and the number of hubs.
    """
    outsiders, edges, n_hubs, round_ = cores, Edges.joined([]), 0, 0
    n_levels, random, size = len(layout.eps), np.random.default_rng(SEED), HUBS
    hubs.save_hubs(layout, 0, hubs.Hubs(np.empty((n_levels, 0), np.intp), 0))
    limit = min(ALL_HUBS, max(HUBS, sum(cores) // ROWS_PER_HUB))
    while sum(outsiders) > 0 and n_hubs < limit:
        ranks = drawn(random, sum(cores), size // 2), drawn(random, sum(outsiders), size - size // 2)
        n_new = _alone(map_, partial(hubs.draw_hubs, layout, round_, cores, outsiders), ranks)
        at_hub = np.zeros(n_hubs + n_new, np.int64)
        for found, at_block in map_(partial(hubs.attach, layout, round_, n_hubs), layout.blocks):
            edges = lightest(Edges.joined([edges, found]))
            at_hub += at_block
        n_hubs += n_new
        round_ += 1
        hubs.save_hubs(layout, round_, hubs.structure(n_levels, edges, at_hub))
        n_before = sum(outsiders)
        outsiders = list(map_(partial(hubs.count_outside, layout, round_), layout.blocks))
        if sum(outsiders) > PROGRESS * n_before:
            break
        size = min(2 * size, MAX_HUBS)
    return round_, outsiders, edges, n_hubs


class _Keyed:
    """Calls a function with the two parts of an item."""

    def __init__(self, fn: Callable[[int, Any], Any]) -> None:
        self._fn = fn

    def __call__(self, item: tuple[int, Any]) -> Any:
        return self._fn(*item)


def _alone(map_: Map, fn: Callable[[Any], Any], item: Any) -> Any:
    """Run one task on one worker."""
    return next(iter(map_(fn, [item])))


def _each(map_: Map, fn: Callable[[Any], Any], items: Sequence[Any]) -> None:
    for _ in map_(fn, items):
        pass
