"""Group inference for a class that no worker can hold: the labels, selection and model of the kernel, to the
bit.

The class is cut into blocks on disk and clustered by :mod:`operators.dbscan.sharded`. Silhouettes are
summed over the same spans of rows as in ``metrics.mean_silhouettes``, so they have the same bits.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from operators.arrays import NOISE, Float64, Index, Labels
from operators.base import Context, OperatorError
from operators.dbscan.sharded import lay_out, solve
from operators.dbscan.sharded.blocks import Layout, read_rows
from operators.dbscan.sharded.labels import BlockLabels, CellSize, Solved, count_labels, sizes
from operators.dbscan.sharded.solve import Map
from operators.grasp.class_model import ClassModel, draw_cores, load_model
from operators.grasp.kernel import MAX_CORES, group_fields, stability_of
from operators.grasp.params import GroupsParams
from operators.grasp.rows_on_disk import Parts, SpilledRows, spill_shard
from operators.grasp.selection import (
    FAILED,
    GridFacts,
    Selection,
    describe_pick,
    min_samples_values,
    pick_by_facts,
)
from operators.grasp.stability import checked_rows
from operators.grasp.state import class_record, keeps_grid, write_grid
from operators.groups.base import describe_length_mismatch
from operators.groups.small_groups import least_rows, to_groups
from operators.groups.state import model_path, write_label_part, write_label_starts
from operators.metrics.silhouette_sums import TILE, cluster_sums, coefficients, mean_and_error
from operators.metrics.silhouettes import (
    BLOCK,
    EXACT_ROWS,
    SUMS,
    Silhouettes,
    mean_silhouettes,
    sampled_rows,
)
from operators.models import prepare_device


def infer_class_in_blocks(
    map_: Map, source: SpilledRows, state: Path, index: int, params: GroupsParams, seed: int
) -> Selection:
    """Cluster one class and store its labels and model, equal to those of ``kernel.infer_class``.

    Parameters
    ----------
    map_ : runs tasks; a worker holds ``params.block_rows`` rows, and a few thousand beside them.
    source : the rows of the class.
    state : folder that all workers share; scratch files go to ``source.folder``.
    index : the class.
    params, seed : of the operator.
    """
    eps = tuple(np.unique(np.atleast_1d(params.eps)).tolist())
    shape = sum(n for _, n in source.parts), source(0, 1).shape[1]
    least = min_samples_values(params.min_samples, shape[0])
    layout, alike = lay_out(
        map_,
        source,
        source.folder,
        shape=shape,
        metric=params.metric,
        eps=eps,
        least=least,
        block_rows=params.block_rows,
        gpus=params.resources.gpus,
    )
    solved = None if alike else solve(map_, layout)
    facts = _one_group(layout) if solved is None else _facts(map_, solved)
    pick = pick_by_facts(facts, params.select)
    selection = describe_pick(facts, pick, params.select, eps, least)
    if keeps_grid(params.keep_grid, layout.n):
        list(map_(partial(_keep_block, solved, layout, (state, index), source), layout.blocks))
    if not pick.is_divided:
        solved = None
    write = partial(_write_block, layout, solved, pick.cell, (state, index), source)
    starts = list(map_(write, layout.blocks))
    write_label_starts(state, index, starts)
    radius = np.inf if solved is None else selection.eps
    save = partial(_save_model, layout, radius, selection.n_groups, seed)
    path = model_path(state, index)
    sizes = sum(map_(partial(_count_clusters, layout, selection.n_groups), layout.blocks))
    list(map_(save, [path]))
    fewest = least_rows(layout.n, params.min_rows, params.min_share)
    selection = replace(selection, **next(iter(map_(partial(_merge, path, fewest), [sizes]))))
    measure = partial(_stability, layout, (params, seed), selection)
    selection = replace(selection, stability=next(iter(map_(measure, [params.stability]))))
    shutil.rmtree(source.folder)
    return selection


def _count_clusters(layout: Layout, n_clusters: int, block: int) -> Index:
    """Count the rows (n_clusters,) of a block in each cluster of the pick."""
    labels = layout.unpack("labels", block)["label"]
    return np.asarray(np.bincount(labels[labels != NOISE], minlength=n_clusters))


def _merge(path: Path, least: float, sizes: Index) -> dict[str, Any]:
    return group_fields(load_model(path), sizes, least)


def _stability(
    layout: Layout, how: tuple[GroupsParams, int], selection: Selection, repeats: int
) -> tuple[float, ...]:
    """Measure the stability of the class on the rows on which the kernel does."""
    if not repeats:
        return ()
    params, seed = how
    rows = checked_rows(layout.n, seed)
    labels = np.concatenate([layout.unpack("labels", block)["label"] for block in layout.blocks])[rows]
    settings = {
        "metric": params.metric,
        "eps_grid": params.eps,
        "min_samples_grid": params.min_samples,
        "select": params.select,
        "random_state": seed,
        "device": prepare_device(params.resources.cpus, params.resources.gpus),
    }
    share = selection.least_rows / layout.n
    groups = to_groups(labels, selection.group_of)
    return stability_of(read_rows(layout, rows).raw, groups, share, settings, repeats, seed)


def _one_group(layout: Layout) -> GridFacts:
    """Put all rows, which are equal, in one group in every cell."""
    shape = len(layout.eps), len(layout.least)
    none = np.zeros(shape, np.intp)
    return GridFacts(layout.n, none, none, none + 1, np.full(shape, FAILED), np.zeros(shape))


def _facts(map_: Map, solved: Solved) -> GridFacts:
    layout = solved.layout
    shape = len(layout.eps), len(layout.least)
    for _ in map_(partial(count_labels, solved), layout.blocks):
        pass
    columns = list(map_(partial(sizes, solved), range(shape[1])))
    cells = [columns[m][level] for level in range(shape[0]) for m in range(shape[1])]
    noise, second = (np.array([getattr(cell, name) for cell in cells]) for name in ("noise", "second"))
    scores = _scores(map_, solved, cells, noise)
    return GridFacts(
        layout.n,
        noise.reshape(shape),
        second.reshape(shape),
        solved.n_clusters,
        scores.mean.reshape(shape),
        scores.standard_error.reshape(shape),
    )


def _scores(map_: Map, solved: Solved, figures: list[CellSize], noise: Index) -> Silhouettes:
    layout = solved.layout
    if layout.n <= EXACT_ROWS:
        found: Silhouettes = next(iter(map_(score_all, [solved])))
        return found
    cells = cells_of(solved, [cell.digest for cell in figures], noise)
    if not cells.usable.any():
        return Silhouettes(np.full(len(figures), FAILED), np.zeros(len(figures)))
    drawn = sampled_rows(layout.n)
    tasks = row_tasks(len(drawn), int(cells.n_clusters[cells.usable].sum()))
    return scores_of(layout, cells, list(map_(partial(score_rows, solved, cells, drawn), tasks)))


def _write_block(
    layout: Layout,
    solved: Solved | None,
    cell: tuple[int, int],
    target: tuple[Path, int],
    source: SpilledRows,
    block: int,
) -> int:
    """Store a block's labels, and its core samples for the model. Return its first row id."""
    n = len(layout.rows(block))
    labels, core = np.zeros(n, np.int32), np.arange(n) + block == 0
    if solved is not None:
        labels, core = BlockLabels(solved, block).of_threshold(cell[1]).at(cell[0])
    layout.pack("picked", block, {"core": np.flatnonzero(core), "label": labels[core]})
    layout.pack("labels", block, {"label": labels})
    start = block * layout.block_rows
    row_ids = source.ids(start, start + n)
    write_label_part(*target, block, row_ids, labels)
    return int(row_ids[0])


def _keep_block(
    solved: Solved | None, layout: Layout, target: tuple[Path, int], source: SpilledRows, block: int
) -> None:
    """Store a block's labels in every cell."""
    start, n = block * layout.block_rows, len(layout.rows(block))
    labels = np.zeros((len(layout.eps), len(layout.least), n), np.int32)
    if solved is not None:
        found = BlockLabels(solved, block)
        cells = [found.of_threshold(m) for m in range(len(layout.least))]
        for level, m in np.ndindex(labels.shape[:2]):
            labels[level, m] = cells[m].at(level)[0]
    write_grid(*target, source.ids(start, start + n), block, labels)


def _save_model(layout: Layout, radius: float, n_groups: int, seed: int, path: Path) -> None:
    """Draw core samples as the kernel does, and store the model."""
    totals = np.zeros(n_groups, np.intp)
    for block in layout.blocks:
        totals += np.bincount(layout.unpack("picked", block)["label"], minlength=n_groups)
    used = np.flatnonzero(totals)
    drawn = dict(zip(used.tolist(), draw_cores(totals[used], MAX_CORES, seed), strict=True))
    kept = _marked([drawn.get(group, used[:0]) for group in range(n_groups)], totals)
    seen, first = np.zeros(n_groups, np.intp), np.cumsum(totals) - totals
    rows, labels = [np.empty(0, np.intp)], [np.empty(0, np.int32)]
    for block in layout.blocks:
        picked = layout.unpack("picked", block)
        label, core = picked["label"], picked["core"]
        rank = first[label] + seen[label] + _place_in_group(label)
        seen += np.bincount(label, minlength=n_groups)
        rows.append(core[kept[rank]] + block * layout.block_rows)
        labels.append(label[kept[rank]])
    cores = read_rows(layout, np.concatenate(rows)).raw
    model = ClassModel(layout.frame.metric, radius, layout.frame.centre, cores, np.concatenate(labels))
    model.save(path)


def _marked(drawn: Sequence[Index], totals: Index) -> npt.NDArray[np.bool_]:
    """Return the mask (all cores,) of those that are kept, group after group."""
    kept = np.zeros(int(totals.sum()), np.bool_)
    for start, positions in zip(np.cumsum(totals) - totals, drawn, strict=True):
        kept[start + positions] = True
    return kept


def _place_in_group(label: npt.NDArray[Any]) -> Index:
    """Return for each entry the number of earlier entries that are equal to it."""
    order = np.argsort(label, kind="stable")
    ordered = label[order]
    starts = np.searchsorted(ordered, ordered)
    place = np.empty(len(label), np.intp)
    place[order] = np.arange(len(label)) - starts
    return place


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
    """Choose the cells to score, from a digest of each cell's labels and its noise rows."""
    seen: dict[bytes, int] = {}
    which = np.array([seen.setdefault(digest, len(seen)) for digest in digests], np.intp)
    first = np.unique(which, return_index=True)[1]
    n_groups = solved.n_clusters.reshape(-1)[first]
    n_used = n_groups + (noise[first] > 0)
    return Cells(which, first, n_groups + 1, (n_used >= 2) & (n_used < solved.layout.n))


def row_tasks(n_drawn: int, n_sums: int) -> list[tuple[int, int]]:
    """Cut the drawn rows as ``mean_silhouettes`` does, and these pieces at its tiles."""
    step = max(1, SUMS // max(1, n_sums))
    chunks = [(start, min(start + step, n_drawn)) for start in range(0, n_drawn, step)]
    return [(at, min(at + TILE[0], stop)) for start, stop in chunks for at in range(start, stop, TILE[0])]


def score_rows(solved: Solved, cells: Cells, drawn: Index, some: tuple[int, int]) -> Float64:
    """Return the silhouette coefficients (n_usable, s) of some of the ``drawn`` rows (row numbers,
    ascending).
    """
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
    """Score every cell of the grid from all rows; for a class so small that all its rows are compared."""
    layout = solved.layout
    n_cells = len(layout.eps) * len(layout.least)
    all_cells = np.arange(n_cells)
    every = Cells(all_cells, all_cells, all_cells, np.ones(n_cells, np.bool_))
    labels = np.concatenate([_labels(solved, every, block) for block in layout.blocks], axis=1)
    return mean_silhouettes(read_rows(layout, np.arange(layout.n)).vectors, labels)


def scores_of(layout: Layout, cells: Cells, coefficients_: list[Float64]) -> Silhouettes:
    """Score every cell of the grid from the coefficients of all drawn rows."""
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
    """Yield the usable labelings of every BLOCK rows; sums over them are added in that order."""
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


def infer_in_blocks(
    context: Context, run: Map, column: str, params: GroupsParams, large: dict[int, tuple[str, Parts]]
) -> list[dict[str, Any]]:
    """Cluster the large classes, one after the other, each by many workers."""
    folders = {i: context.state / f"blocks-{i}" for i in large}
    for folder in folders.values():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    shards = sorted({shard for _, parts in large.values() for shard, _ in parts})
    spill = partial(spill_shard, context.shards, column, folders)
    lengths = {n: shard for shard, n in zip(shards, run(spill, shards), strict=True)}
    if len(lengths) > 1:
        (some, _), (others, second) = list(lengths.items())[:2]
        paths = {shard.index: shard.path for shard in context.shards.shards}
        raise OperatorError(describe_length_mismatch(paths[second], column, others, some))
    records = []
    for i, (name, parts) in large.items():
        source = SpilledRows(folders[i], parts)
        selection = infer_class_in_blocks(run, source, context.state, i, params, context.seed)
        records.append(class_record(i, name, selection))
    return records
