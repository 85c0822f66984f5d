"""The operator ``neighbours``: one worker per class builds an index, then every shard is searched in it."""

from __future__ import annotations

import json
import logging
import re
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from operators.arrays import Ids
from operators.base import (
    LABEL,
    Apply,
    Context,
    Executor,
    Operator,
    OperatorError,
    OperatorParams,
    ReportContext,
)
from operators.bounded_json import read_json
from operators.neighbours.params import EVERY_CLASS, GRAPH, NeighboursParams
from operators.report import ReportSection

if TYPE_CHECKING:
    from operators.neighbours.class_index import Edges, PartIndex

NEIGHBOUR_IDS = "neighbour_ids"
NEIGHBOUR_DISTANCES = "neighbour_distances"
MAX_EDGES = 2**31 - 1
"""Values of an Arrow list column, whose offsets have 32 bits."""

_log = logging.getLogger("rowsieve")


class Neighbours(Operator[NeighboursParams]):
    """Adds ``neighbour_ids`` (row ids, ascending) and ``neighbour_distances`` of each row.

    ``fit`` leaves in its state folder, per class, the vectors, their row ids and an index over them, and
    ``graph.json`` with the parameters and every index's recall. Memory: a worker that builds holds one index
    and one shard; one that searches maps the indexes it needs into memory, and holds the edges of one shard.
    """

    name = "neighbours"
    version = 2
    Params: ClassVar[type[OperatorParams]] = NeighboursParams
    uses = ("ingest",)

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the required columns: vectors, and labels where classes are kept apart."""
        return (self.params.space, LABEL) if self.params.per_class else (self.params.space,)

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """Return the added columns: row ids of the neighbours, and their distances."""
        return (
            pa.field(NEIGHBOUR_IDS, pa.list_(pa.int64())),
            pa.field(NEIGHBOUR_DISTANCES, pa.list_(pa.float32())),
        )

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Build the indexes and measure their recall.

        Returns
        -------
        ``rows``; ``recall``, the lowest of any index; ``mean_neighbours`` over a sample of rows.

        Raises
        ------
        OperatorError
            FAISS is missing, no class has a row, or vectors have different lengths.
        """
        module = _parts_module()
        parts = [(EVERY_CLASS, "all")]
        if self.params.per_class:
            parts = list(enumerate(_class_names(context.states["ingest"])))
        run = partial(executor.map, resources=self.params.resources)
        write = partial(module.write_rows, context.shards, self.params.space, context.state)
        (written,) = run(write, [[part for part, _ in parts]])
        build = partial(module.build_part, context.state, self.params, context.seed)
        records = list(run(build, [(part, name) for part, name in parts if part in written]))
        if not records:
            raise OperatorError(
                "operators.neighbours: no class has a row with a vector. Look at the rejected rows "
                "(`rowsieve quarantine`) and correct the source."
            )
        for record in records:
            if record["advice"]:
                _log.warning("operators.neighbours: class %s: %s", record["name"], record["advice"])
        record = {"params": self.params.model_dump(mode="json", exclude={"resources"}), "parts": records}
        (context.state / GRAPH).write_text(json.dumps(record, indent=1), "utf-8")
        rows = sum(record["rows"] for record in records)
        edges = sum(record["mean_neighbours"] * record["rows"] for record in records)
        recall = min(record["recall"] for record in records)
        return {"rows": float(rows), "recall": recall, "mean_neighbours": edges / rows}

    def report_section(self, context: ReportContext) -> ReportSection | None:
        """Report how many near duplicates there are."""
        from operators.neighbours.report import duplicate_section

        return duplicate_section(context, self.params, NEIGHBOUR_IDS, NEIGHBOUR_DISTANCES)

    def open(self, context: Context) -> Apply:
        """Return a function that looks a shard's rows up; an index is mapped when a row first needs it."""
        open_part = _parts_module().PartIndex
        opened: dict[int, PartIndex] = {}

        def apply(table: pa.Table) -> pa.Table:
            of_part = _parts_of(table, self.params.per_class)
            pieces = []
            for part in np.unique(of_part).tolist():
                if part not in opened:
                    opened[part] = open_part(context.state, part, self.params)
                pieces.append(opened[part].look_up(table, np.flatnonzero(of_part == part)))
            return _lists(pieces, table.num_rows)

        return apply


def _lists(pieces: list[Edges], n_rows: int) -> pa.Table:
    """Return the edges of a shard's rows, in any order of rows, as two list columns."""
    columns = [np.concatenate(values) for values in zip(*pieces, strict=True)] if pieces else []
    rows, ids, distances = columns or (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    if len(rows) > MAX_EDGES:
        raise OperatorError(
            f"operators.neighbours: a shard of {n_rows} rows has {len(rows)} pairs of neighbours, more than "
            f"one column holds ({MAX_EDGES}). Lower operators.neighbours.eps, or cut smaller shards "
            "(source.shard_bytes)."
        )
    order = np.argsort(rows, kind="stable")
    offsets = np.zeros(n_rows + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=n_rows), out=offsets[1:])
    return pa.table(
        {
            NEIGHBOUR_IDS: pa.ListArray.from_arrays(offsets, ids[order]),
            NEIGHBOUR_DISTANCES: pa.ListArray.from_arrays(offsets, distances[order]),
        }
    )


def _parts_of(table: pa.Table, per_class: bool) -> Ids:
    if per_class:
        return np.asarray(table.column(LABEL).to_numpy(), np.int64)
    return np.full(table.num_rows, EVERY_CLASS, np.int64)


def _class_names(ingest: Path) -> list[str]:
    record: dict[str, Any] = read_json(ingest / "classes.json")
    return [re.sub(r"[\r\n]", " ", str(value)) for value in record["classes"]]


def _parts_module() -> Any:
    """Import what needs FAISS and scikit-learn late: planning imports this file, and needs neither."""
    from operators.neighbours.faiss_index import load_faiss

    try:
        load_faiss()
    except ImportError as error:
        raise OperatorError(str(error)) from None
    return import_module("operators.neighbours.class_index")
