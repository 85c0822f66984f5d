"""Group inference for a class that no worker can hold: the kernel's labels, selection and model."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.arrays import Index
from operators.dbscan.sharded import BlockLabels, Solved, lay_out, solve
from operators.dbscan.sharded.blocks import Layout, read_rows
from operators.dbscan.sharded.labels import CellSize, count_labels, sizes
from operators.dbscan.sharded.solve import Map
from operators.grasp.kept_grid import keeps_grid, write_grid
from operators.grasp.kernel import MAX_CORES
from operators.grasp.model import ClassModel, draw_cores
from operators.grasp.params import GroupsParams
from operators.grasp.picked import Selection, describe_pick
from operators.grasp.scores import cells_of, row_tasks, score_all, score_rows, scores_of
from operators.grasp.selection import FAILED, GridFacts, pick_by_facts
from operators.grasp.spill import SpilledRows
from operators.groups.state import model_path, write_label_part, write_label_starts
from operators.metrics import Silhouettes
from operators.metrics.silhouettes import EXACT_ROWS, sampled_rows


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
    least = tuple(np.unique(np.atleast_1d(params.min_samples)).tolist())
    shape = sum(n for _, n in source.parts), source(0, 1).shape[1]
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
    write = partial(_write_block, layout, solved, pick.cell, (state, index), source)
    starts = list(map_(write, layout.blocks))
    write_label_starts(state, index, starts)
    radius = np.inf if solved is None else selection.eps
    save = partial(_save_model, layout, radius, selection.n_groups, seed)
    list(map_(save, [model_path(state, index)]))
    shutil.rmtree(source.folder)
    return selection


def _one_group(layout: Layout) -> GridFacts:
    """All rows are equal: one group in every cell."""
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
    """Store a block's labels, and its core samples for the model; its first row id."""
    n = len(layout.rows(block))
    labels, core = np.zeros(n, np.int32), np.arange(n) + block == 0
    if solved is not None:
        labels, core = BlockLabels(solved, block).of_threshold(cell[1]).at(cell[0])
    layout.pack("picked", block, {"core": np.flatnonzero(core), "label": labels[core]})
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
    """(all cores,) which are kept, group after group."""
    kept = np.zeros(int(totals.sum()), np.bool_)
    for start, positions in zip(np.cumsum(totals) - totals, drawn, strict=True):
        kept[start + positions] = True
    return kept


def _place_in_group(label: npt.NDArray[Any]) -> Index:
    """How many earlier entries are equal."""
    order = np.argsort(label, kind="stable")
    ordered = label[order]
    starts = np.searchsorted(ordered, ordered)
    place = np.empty(len(label), np.intp)
    place[order] = np.arange(len(label)) - starts
    return place
