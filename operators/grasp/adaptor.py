"""Group inference over shards: one worker per class runs the kernel; large classes go in blocks."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.base import (
    FEATURES,
    GRADIENT,
    LABEL,
    ROW_ID,
    Apply,
    Context,
    Executor,
    OperatorError,
    OperatorParams,
    Resources,
    ShardReader,
)
from operators.columns import vectors_to_numpy
from operators.grasp.kept_grid import keeps_grid, write_grid
from operators.grasp.params import GroupsParams
from operators.grasp.state import (
    Ids,
    Labels,
    class_record,
    model_path,
    number_groups,
    read_offsets,
    write_labels,
    write_selection,
)
from operators.groups.operator import Groups as GroupsOperator
from operators.groups.operator import LabelClass, by_class, stored_labels
from operators.groups.state import write_record

_log = logging.getLogger("winnow")

Map: TypeAlias = Callable[..., Any]
Parts: TypeAlias = list[tuple[int, int]]

SPACES = {"grasp": GRADIENT, "feasp": FEATURES}


class Groups(GroupsOperator[GroupsParams]):
    """Adds ``group`` (-1: in no cluster), ``is_outlier`` and ``outlier_source``.

    ``fit`` leaves in its state folder ``groups.json`` with the parameters, per class
    ``labels-<class>.parquet`` and ``model-<class>.npz``, ``selection.json`` with every class's grid and
    pick, and ``grid-<class>/`` where the labels of all settings are kept. A class of more than ``block_rows``
    rows is clustered in blocks (``labels-<class>/``), with scratch files of twice the size of its
    gradients and more. Memory: a worker holds the gradients of one class or block, and twice that while it
    clusters them.
    """

    version = 4
    Params: ClassVar[type[OperatorParams]] = GroupsParams

    @property
    def requires(self) -> tuple[str, ...]:
        """The vectors compared, and labels."""
        return SPACES[self.params.method], LABEL

    @property
    def resources(self) -> Resources:
        """Resources of one actor."""
        return self.params.resources

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Infer the groups of every class.

        Returns
        -------
        ``groups``, ``outlier_share`` (of all rows) and ``silhouette_class_<name>`` of each class.

        Raises
        ------
        OperatorError
            No class has a row, or gradients have different lengths.
        """
        names = [str(value) for value in _classes(context.states["ingest"])]
        run = partial(executor.map, resources=self.params.resources)
        large = _large_classes(context.shards, run, len(names), self.params)
        infer = partial(_infer_class, context.shards, context.state, self.params, context.seed)
        found = list(run(infer, [(i, name) for i, name in enumerate(names) if i not in large]))
        found += _infer_in_blocks(context, run, self.params, {i: (names[i], large[i]) for i in large})
        known = [record for record in found if record is not None]
        records = number_groups(sorted(known, key=lambda record: int(record["class"])))
        if not records:
            raise OperatorError(
                "operators.groups: no class has a row with a gradient. Look at the rejected rows "
                "(`winnow quarantine`) and mend the source."
            )
        write_record(context.state, self.params)
        write_selection(context.state, records)
        for record in records:
            if (found_by := record["approximation"]) and found_by["low"]:
                _log.warning("operators.groups: class %s: %s", record["name"], found_by["low"])
        rows = sum(record["n_rows"] for record in records)
        outliers = sum(record["n_noise"] for record in records) if self.params.outliers == "noise" else 0
        metrics = {
            "groups": float(sum(record["n_groups"] for record in records)),
            "outlier_share": outliers / rows,
        }
        return metrics | {f"silhouette_class_{_plain(r['name'])}": r["silhouette"] for r in records}

    def open(self, context: Context) -> Apply:
        """Load where each class's groups start; labels are read as shards ask for them."""
        return self._apply(context.state, partial(stored_labels, context.state))

    def place(self, context: Context) -> Apply:
        """Groups of new rows: that of the nearest core sample of their class if within eps, else -1."""
        return self._apply(context.state, partial(_nearest_labels, context.state, SPACES[self.params.method]))

    def _apply(self, state: Path, label: LabelClass) -> Apply:
        judge = self.params.method if self.params.outliers == "noise" else None
        return by_class(read_offsets(state), label, judge, state)


def _nearest_labels(state: Path, column: str, index: int, rows: pa.Table) -> Labels:
    from operators.grasp.model import ClassModel

    return ClassModel.load(model_path(state, index)).assign(vectors_to_numpy(rows.column(column)))


def _infer_class(
    shards: ShardReader, state: Path, params: GroupsParams, seed: int, named: tuple[int, str]
) -> dict[str, Any] | None:
    """Cluster one class and store its labels and model; small values only come back."""
    # Not at the top: planning imports this module, and needs no scikit-learn.
    from operators.grasp.kernel import infer_class

    index, name = named
    row_ids, gradients = _gather(shards, index, SPACES[params.method])
    if not len(row_ids):
        return None
    keep = keeps_grid(params.keep_grid, len(row_ids))
    labels, selection, model = infer_class(
        gradients,
        metric=params.metric,
        eps_grid=params.eps,
        min_samples_grid=params.min_samples,
        select=params.select,
        random_state=seed,
        neighbours=params.neighbours,
        nprobe=params.nprobe,
        ef_search=params.ef_search,
        keep=partial(write_grid, state, index, row_ids, 0) if keep else None,
    )
    write_labels(state, index, row_ids, labels)
    model.save(model_path(state, index))
    return class_record(index, name, selection)


def _large_classes(shards: ShardReader, run: Map, n_classes: int, params: GroupsParams) -> dict[int, Parts]:
    """Classes to cluster in blocks: (shard, rows) of each, in row order."""
    if params.neighbours in ("ivf", "hnsw"):
        return {}  # an index is built by one worker
    from operators.grasp.spill import count_classes

    order = [shard.index for shard in sorted(shards.shards, key=lambda shard: shard.first_row)]
    counts = np.array(list(run(partial(count_classes, shards, n_classes), order))).reshape(-1, n_classes)
    large = np.flatnonzero(counts.sum(axis=0) > params.block_rows).tolist()
    return {i: [(s, n) for s, n in zip(order, counts[:, i].tolist(), strict=True) if n] for i in large}


def _infer_in_blocks(
    context: Context, run: Map, params: GroupsParams, large: dict[int, tuple[str, Parts]]
) -> list[dict[str, Any]]:
    """Cluster the large classes, one after the other, each by many workers."""
    if not large:
        return []
    from operators.grasp.sharded import infer_class_in_blocks
    from operators.grasp.spill import SpilledRows, spill_shard

    folders = {i: context.state / f"blocks-{i}" for i in large}
    for folder in folders.values():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    shards = sorted({shard for _, parts in large.values() for shard, _ in parts})
    spill = partial(spill_shard, context.shards, SPACES[params.method], folders)
    lengths = {n: shard for shard, n in zip(shards, run(spill, shards), strict=True)}
    if len(lengths) > 1:
        (some, first), (others, second) = list(lengths.items())[:2]
        paths = {shard.index: shard.path for shard in context.shards.shards}
        raise OperatorError(_other_lengths(paths[second], others, some) + f" ({paths[first]})")
    records = []
    for i, (name, parts) in large.items():
        source = SpilledRows(folders[i], parts)
        selection = infer_class_in_blocks(run, source, context.state, i, params, context.seed)
        records.append(class_record(i, name, selection))
    return records


def _other_lengths(path: str, n_features: int, expected: int) -> str:
    return (
        f"{path}: its gradients have {n_features} entries, those of earlier shards {expected}. They come "
        "from different probes; run the operator `gradients` again."
    )


def _gather(shards: ShardReader, index: int, column: str = GRADIENT) -> tuple[Ids, npt.NDArray[np.float32]]:
    """Row ids and gradients of a class, filled shard by shard into a matrix of the right size.

    Labels are read first: they are small, and tell how many rows there are and where. Rows come in
    the order of their ids, as groups are numbered by their first core sample.
    """
    ordered = sorted(shards.shards, key=lambda shard: shard.first_row)
    wanted = [pc.equal(shards.read(shard.index, [LABEL]).column(LABEL), index) for shard in ordered]
    sizes = [pc.sum(mask).as_py() or 0 for mask in wanted]
    row_ids = np.empty(sum(sizes), np.int64)
    gradients: npt.NDArray[np.float32] | None = None
    start = 0
    for shard, mask, size in zip(ordered, wanted, sizes, strict=True):
        if not size:
            continue
        table = shards.read(shard.index, [column]).filter(mask)
        rows = vectors_to_numpy(table.column(column))
        if gradients is None:
            gradients = np.empty((len(row_ids), rows.shape[1]), np.float32)
        elif rows.shape[1] != gradients.shape[1]:
            raise OperatorError(_other_lengths(shard.path, rows.shape[1], gradients.shape[1]))
        gradients[start : start + size] = rows
        row_ids[start : start + size] = table.column(ROW_ID).to_numpy()
        start += size
    return row_ids, np.empty((0, 0), np.float32) if gradients is None else gradients


def _classes(ingest: Path) -> list[Any]:
    found: list[Any] = json.loads((ingest / "classes.json").read_text("utf-8"))["classes"]
    return found


def _plain(name: str) -> str:
    """A class name as part of a metric's name: trackers allow few other characters."""
    return re.sub(r"[^\w\-. ]", "_", name)
