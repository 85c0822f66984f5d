"""The operator ``groups`` with the methods ``grasp`` and ``feasp``.

One worker per class runs the kernel; a class of more than ``block_rows`` rows is cut into blocks
(:mod:`operators.grasp.blocks`).
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.arrays import Ids, Labels
from operators.base import (
    FACTORS,
    FEATURES,
    GRADIENT,
    LABEL,
    Apply,
    Context,
    Cost,
    Executor,
    Operator,
    OperatorError,
    OperatorParams,
    ReportContext,
)
from operators.bounded_json import read_json
from operators.factored import FactoredLayer, unpack
from operators.factored.packed_rows import read_parts
from operators.gradients.adaptor import PROJECTION
from operators.gradients.params import GradientsParams
from operators.grasp.params import GroupsParams
from operators.grasp.state import (
    class_record,
    draw_warning,
    keeps_grid,
    read_group_of,
    read_offsets,
    summary,
    write_grid,
    write_selection,
)
from operators.groups.base import GroupsBase, LabelClass, apply_by_class, stored_labels
from operators.groups.small_groups import least_rows, to_groups
from operators.groups.sorted_shards import Gather, class_gatherer, count_rows, remove_sorted
from operators.groups.state import (
    class_names,
    has_labels,
    model_path,
    number_groups,
    write_group_record,
    write_labels,
)
from operators.report import ReportSection

if TYPE_CHECKING:
    from operators.grasp.rows_on_disk import DrawnClass


@dataclass(frozen=True)
class Source:
    """Source of the vectors of a class: a column, flat or packed, of the shards; or drawn rows on disk."""

    gather: Gather
    column: str
    parts: Sequence[FactoredLayer] | None
    drawn: Mapping[int, DrawnClass] = field(default_factory=dict)

    def drawn_from(self, index: int) -> int:
        """Return the number of rows of a class if only drawn ones are clustered; 0 if all are."""
        return self.drawn[index].n_rows if index in self.drawn else 0

    def gradients(self, index: int) -> tuple[Ids, Any]:
        """Return the row ids (none if rows are drawn) and the gradients of a class."""
        row_ids: Ids = np.empty(0, np.int64)
        if index in self.drawn:
            vectors: Any = self.drawn[index].vectors()
        else:
            row_ids, columns = self.gather(index)
            vectors = columns.get(self.column)
        if vectors is None or self.parts is None:
            return row_ids, vectors
        return row_ids, unpack(vectors, self.parts)


def read_projection(maker: Path | None) -> dict[str, Any]:
    """Return the record of the gradients' projection and its error in cosines; empty without projection."""
    path = maker / PROJECTION if maker else None
    if path is None or not path.exists():
        return {}
    record: dict[str, Any] = read_json(path)
    return record


_log = logging.getLogger("rowsieve")

SPACES = {"grasp": GRADIENT, "feasp": FEATURES}


class Groups(GroupsBase[GroupsParams]):
    """Adds ``group`` (-1: in no cluster) and ``group_outlier``.

    ``fit`` leaves in its state folder ``groups.json`` with the parameters, per class
    ``labels-<class>.parquet`` and ``model-<class>.npz``, ``selection.json`` with every class's grid and
    pick, and ``grid-<class>/`` where the labels of all settings are kept. A class of more than ``block_rows``
    rows is clustered in blocks (``labels-<class>/``), with scratch files of twice the size of its
    gradients and more. A class of more than ``fit_rows``, the usual case of a large one, is clustered on
    drawn rows, and all of its rows are then placed shard by shard. Labels and models hold clusters;
    ``selection.json`` has the group of each. Memory: a worker holds the gradients of one class or block, and
    twice that while it clusters them. Where many classes lie in many shards, their rows are first sorted by
    class on disk (:mod:`operators.groups.sorted_shards`). Factored gradients are read where the recipe keeps
    gradients so; a class of them is always one worker's.
    """

    version = 7
    cost = Cost(240, 189, 298)
    Params: ClassVar[type[OperatorParams]] = GroupsParams

    def __init__(self, params: GroupsParams) -> None:
        super().__init__(params)
        self._column = SPACES[params.method]
        self._maker = ""
        self._accepts_projection = False

    def in_chain(self, chain: Sequence[Operator[Any]]) -> Operator[GroupsParams]:
        """Read factored gradients if there are no others, and note whether gradients are projected.

        Raises OperatorError for factored gradients with approximate neighbours.
        """
        makers = {field.name: operator for operator in chain for field in operator.adds}
        column = FACTORS if self._column == GRADIENT and GRADIENT not in makers else self._column
        if self._column != GRADIENT or column not in makers:
            return self
        if column == FACTORS and self.params.neighbours in ("ivf", "hnsw"):
            raise OperatorError(
                f"operators.groups.neighbours: {self.params.neighbours} needs FAISS, which cannot index "
                f"factored gradients. Use `exact`, or set `{makers[column].name}: {{form: flat}}`."
            )
        found, maker = Groups(self.params), makers[column]
        found._column, found._maker, found.uses = column, maker.name, (*self.uses, maker.name)
        given = maker.params.projection if isinstance(maker.params, GradientsParams) else None
        found._accepts_projection = given is not None and given.accept_error
        return found

    @property
    def requires(self) -> tuple[str, ...]:
        """The vectors compared, and labels."""
        return self._column, LABEL

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Infer the groups of every class.

        Returns
        -------
        ``groups``, ``outlier_share`` (of all rows), ``silhouette_class_<name>`` of each class (and its index,
        if the names of two look alike without the characters that a metric may not have), and
        ``stability``, the least mean of a class, where it was measured; where gradients are projected,
        ``projection_error_mean`` and ``projection_error_p99`` of cosines.

        Raises
        ------
        OperatorError
            No class has a row, or gradients have different lengths.
        """
        from operators.grasp.rows_on_disk import large_classes

        maker = context.states.get(self._maker)
        parts = read_parts(maker) if maker and self._column == FACTORS else None
        names = class_names(context.states["ingest"])
        run = partial(executor.map, resources=self.params.resources)
        counts = count_rows(context.shards, run, len(names))
        large = {} if self._column == FACTORS else large_classes(context.shards, counts, self.params)
        drawn_classes = self._draw(context, run, counts)
        whole = np.where(np.isin(np.arange(len(names)), [*large, *drawn_classes]), 0, counts)
        gather = class_gatherer(context.shards, run, [self._column], whole, context.state)
        source = Source(gather, self._column, parts, drawn_classes)
        infer = partial(_infer_class, source, context.state, self.params, context.seed)
        found = list(run(infer, [(i, name) for i, name in enumerate(names) if i not in large]))
        remove_sorted(context.state)
        if large:
            # Imported here because it loads torch and scikit-learn, which a driver on Ray does without.
            from operators.grasp.blocks import infer_in_blocks

            parts_of_large = {i: (names[i], large[i]) for i in large}
            found += infer_in_blocks(context, run, self._column, self.params, parts_of_large)
        for drawn in source.drawn.values():
            shutil.rmtree(drawn.folder, ignore_errors=True)
        known = [record for record in found if record is not None]
        known = self._placed(context, run, counts, known)
        records = number_groups(sorted(known, key=lambda record: int(record["class"])))
        if not records:
            raise OperatorError(
                "operators.groups: no class has a row with a gradient. Look at the rejected rows "
                "(`rowsieve quarantine`) and mend the source."
            )
        projection = read_projection(maker)
        write_group_record(context.state, self.params, column=self._column)
        write_selection(context.state, records, projection)
        self._warn(records, projection)
        rows = sum(record["drawn_from"] or record["n_rows"] for record in records)
        outliers = sum(record["n_noise"] for record in records) if self.params.outliers == "noise" else 0
        measured = [summary(record["stability"]) for record in records]
        stable = {"stability": min(both[0] for both in measured if both)} if any(measured) else {}
        metrics = {
            "groups": float(sum(record["n_groups"] for record in records)),
            "outlier_share": outliers / rows,
            **stable,
        }
        metrics |= {name: value for name, value in projection.items() if name.startswith("projection_error")}
        return metrics | _silhouettes(records)

    def open(self, context: Context) -> Apply:
        """Load where each class's groups start; labels are read as shards ask for them."""
        return self._apply(context.state, partial(_own_labels, context.state, self._column))

    def open_for_new_rows(self, context: Context) -> Apply:
        """Give a new row the group of the nearest core sample of its class if that is within eps, else -1."""
        return self._apply(context.state, partial(_nearest_labels, context.state, self._column))

    def report_section(self, context: ReportContext) -> ReportSection | None:
        """Show every class's grid of settings and explain the pick."""
        from operators.grasp.report import selection_section

        return selection_section(context, self._accepts_projection)

    def _draw(self, context: Context, run: Any, counts: npt.NDArray[np.intp]) -> dict[int, DrawnClass]:
        fit_rows = self.params.rows_to_fit()
        if fit_rows is None:
            return {}
        from operators.grasp.rows_on_disk import draw_classes

        by_class = dict(enumerate(counts.T))
        how = {"fit_rows": fit_rows, "seed": context.seed, "folder": context.state}
        return draw_classes(context.shards, run, self._column, by_class, **how)

    def _placed(
        self, context: Context, run: Any, counts: npt.NDArray[np.intp], records: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Place the rows of the classes of which some were drawn, and merge by the rows that were placed."""
        drawn = {int(record["class"]): len(record["group_of"]) for record in records if record["drawn_from"]}
        if not drawn:
            return records
        from operators.grasp.placement import merge_placed, place_shards

        found = place_shards(context, run, self._column, {i: counts[:, i] for i in drawn}, drawn)
        merge = partial(merge_placed, context.state, self.params, found)
        return list(run(merge, records))

    def _warn(self, records: list[dict[str, Any]], projection: Mapping[str, Any]) -> None:
        for record in records:
            if (found_by := record["approximation"]) and found_by["low"]:
                _log.warning("operators.groups: class %s: %s", record["name"], found_by["low"])
            if text := draw_warning(record):
                _log.warning("operators.groups: class %s: %s", record["name"], text)
        if projection and not self._accepts_projection:
            _log.warning(
                "operators.groups: eps was picked on projected gradients, whose cosines are off by %s: these "
                "groups can be others than those of the gradients themselves. Leave out "
                "gradients.projection, or accept that: gradients.projection.accept_error: true.",
                f"{projection['projection_error_mean']:.3f} on average"
                if "projection_error_mean" in projection
                else "an unknown error",
            )

    def _apply(self, state: Path, label: LabelClass) -> Apply:
        marked_by = self.params.method if self.params.outliers == "noise" else None
        group_of = read_group_of(state)

        def grouped(index: int, rows: pa.Table) -> Labels:
            return to_groups(label(index, rows), group_of.get(index))

        return apply_by_class(read_offsets(state), grouped, marked_by)


def _own_labels(state: Path, column: str, index: int, rows: pa.Table) -> Labels:
    if has_labels(state, index):
        return stored_labels(state, index, rows)
    return _nearest_labels(state, column, index, rows)


def _nearest_labels(state: Path, column: str, index: int, rows: pa.Table) -> Labels:
    from operators.grasp.placement import place

    return place(state, column, index, rows)


def _infer_class(
    source: Source, state: Path, params: GroupsParams, seed: int, named: tuple[int, str]
) -> dict[str, Any] | None:
    """Cluster one class and store its labels and model; small values only come back."""
    # Imported here because planning imports this module and must not load scikit-learn.
    from operators.grasp.kernel import MAX_CORES, PLACING_CORES, infer_class
    from operators.models import prepare_device

    index, name = named
    drawn_from = source.drawn_from(index)
    row_ids, gradients = source.gradients(index)
    if not (drawn_from or len(row_ids)):
        return None
    n_clustered = len(gradients)
    keep = not drawn_from and keeps_grid(params.keep_grid, n_clustered)
    least = least_rows(drawn_from or n_clustered, params.min_rows, params.min_share)
    least *= n_clustered / drawn_from if drawn_from else 1
    labels, selection, model = infer_class(
        gradients,
        metric=params.metric,
        eps_grid=params.eps,
        min_samples_grid=params.min_samples,
        select=params.select,
        random_state=seed,
        max_cores=PLACING_CORES if drawn_from else MAX_CORES,
        least_rows=least,
        stability=params.stability,
        neighbours=params.neighbours,
        nprobe=params.nprobe,
        ef_search=params.ef_search,
        device=prepare_device(params.resources.cpus, params.resources.gpus),
        keep=partial(write_grid, state, index, row_ids, 0) if keep else None,
    )
    if not drawn_from:
        write_labels(state, index, row_ids, labels)
    model.save(model_path(state, index))
    return class_record(index, name, replace(selection, drawn_from=drawn_from))


def _silhouettes(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the silhouette of each class by its name, with its index where two names look alike."""
    names = [_plain(record["name"]) for record in records]
    keys = [
        name if names.count(name) == 1 else f"{name}_{record['class']}"
        for name, record in zip(names, records, strict=True)
    ]
    return {f"silhouette_class_{k}": r["silhouette"] for k, r in zip(keys, records, strict=True)}


def _plain(name: str) -> str:
    """Return a class name as part of a metric's name, in which trackers allow few characters."""
    return re.sub(r"[^\w\-. ]", "_", name)
