"""The operator ``duplicates``: every row's older near duplicate, within the source and against older rows.

Row ids are given in the order of the source, and rows of later increments come after all others. So the
older of two near duplicates is the one with the smaller row id, old rows never change when new ones arrive,
and an increment compares its new rows alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from operators.base import (
    DUPLICATE_OF,
    FACTOR,
    FEATURES,
    LABEL,
    ROW_ID,
    Apply,
    CannotPredictError,
    Context,
    DatasetDelta,
    Executor,
    Operator,
    OperatorError,
    OperatorParams,
    ReportContext,
    ShardReader,
    copy_state,
)
from operators.duplicates.pairs import StoredPairs, join_parts, join_shards
from operators.duplicates.params import DuplicatesParams, too_many
from operators.report import ReportSection

_log = logging.getLogger("rowsieve")
NAME, ENCODE = "duplicates", "encode"
SIMILARITY = "duplicate_similarity"
WEIGHT_COLUMN = NAME + FACTOR


class DuplicatesOperator(Operator[DuplicatesParams]):
    """Adds ``duplicate_of``, the oldest near duplicate among older rows, and the similarity (0 without one).

    A row whose texts are empty, or that ``ingest`` rejects, is not a duplicate and has none. Memory: a worker
    holds one shard; for texts 48 bytes for each new row of a slice of a band and a bounded number of
    signatures, for vectors 300 bytes for each row of a tree that it builds, of at most 2^22 rows.
    """

    name = NAME
    version = 4
    Params: ClassVar[type[OperatorParams]] = DuplicatesParams
    uses = ("ingest",)
    fits_on_all_rows = True
    state_needs_row_ids = True

    def in_chain(self, chain: Sequence[Operator[Any]]) -> DuplicatesOperator:
        """Return the operator itself.

        Raises
        ------
        OperatorError
            Nothing says what is compared, and the features are encoded columns.
        """
        given = self.params.columns or "distance" in self.params.model_fields_set
        if not given and any(operator.name == ENCODE for operator in chain):
            raise OperatorError(
                "operators.duplicates: the features are encoded columns, of which unlike rows may point in "
                "nearly the same direction: many rows would count as duplicates. Name what is compared: "
                "columns: [TEXT] for texts, or the operator embed for vectors of a network. To compare the "
                "encoded columns all the same, give a distance, such as distance: 0.000001, with weight: 1 "
                "at first, which only marks rows."
            )
        return self

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the required column: vectors, or for texts the label, which only valid rows have."""
        return (LABEL,) if self.params.columns else (FEATURES,)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Return the columns with the texts that are compared."""
        return self.params.columns

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """Return the added columns: older row, similarity, and a weight factor unless it is 1."""
        found = (pa.field(DUPLICATE_OF, pa.int64()), pa.field(SIMILARITY, pa.float32()))
        return found if self.params.weight == 1 else (*found, pa.field(WEIGHT_COLUMN, pa.float32()))

    @property
    def publishes(self) -> tuple[pa.Field, ...]:
        """Return the published column ``duplicate_of``."""
        return (pa.field(DUPLICATE_OF, pa.int64()),)

    @property
    def can_predict(self) -> bool:
        """Return True: new rows are compared with all rows, and old rows stay what they are."""
        return True

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Store what rows are compared by, and find the pairs.

        Returns
        -------
        ``compared``, the number of rows that have a text or vector, and ``duplicates``.

        Raises
        ------
        OperatorError
            A package is missing, or vectors have different lengths.
        """
        return self._find(context, executor, range(len(context.shards.shards)), {})

    def partial_fit(self, context: Context, delta: DatasetDelta, executor: Executor) -> dict[str, float]:
        """Compare the rows of new shards with all rows. Raises CannotPredictError where rows are gone."""
        if delta.rows_removed:
            raise CannotPredictError("rows are gone, so that the row ids of the state are others now")
        copy_state(delta.state, context.state, link=True)  # its files are written once
        return self._find(context, executor, delta.new_shards, delta.metrics)

    def open(self, context: Context) -> Apply:
        """Open the pairs of ``fit``, and return the function that looks rows up in them."""
        pairs = StoredPairs(context.state)

        def apply(table: pa.Table) -> pa.Table:
            found = pairs.of_rows(table.column(ROW_ID).to_numpy())
            is_one = found.of >= 0
            columns = {
                DUPLICATE_OF: pa.array(found.of, mask=~is_one),
                SIMILARITY: pa.array(found.similarity),
            }
            if self.params.weight < 1:
                columns[WEIGHT_COLUMN] = pa.array(
                    np.where(is_one, self.params.weight, 1.0).astype(np.float32)
                )
            return pa.table(columns)

        return apply

    def warnings(self, metrics: Mapping[str, float], state: Callable[[], Path]) -> tuple[str, ...]:
        """Say so where more rows are duplicates than is likely."""
        doubtful = too_many(self.params, int(metrics["duplicates"]), int(metrics["compared"]))
        return (doubtful,) if doubtful else ()

    def report_section(self, context: ReportContext) -> ReportSection | None:
        """Report how many rows are near duplicates, some of them, and how many lie in different splits."""
        from operators.duplicates.report import duplicates_section

        return duplicates_section(context, self.params, DUPLICATE_OF, SIMILARITY)

    def _find(
        self, context: Context, executor: Executor, shards: Sequence[int], before: Mapping[str, float]
    ) -> dict[str, float]:
        """Store the rows of some shards and compare them; add what was counted to the counts before."""
        if not shards:
            return dict(before)
        search = self._search_texts if self.params.columns else self._search_vectors
        compared, found = search(context, executor, shards)
        join_shards(context.state)
        compared, found = before.get("compared", 0.0) + compared, before.get("duplicates", 0.0) + found
        if doubtful := too_many(self.params, int(found), int(compared)):
            _log.warning("operators.duplicates: %s", doubtful)
        return {"compared": compared, "duplicates": found}

    def _search_vectors(
        self, context: Context, executor: Executor, shards: Sequence[int]
    ) -> tuple[float, float]:
        """Store the vectors of some shards and compare them; return how many there are, and duplicates."""
        from operators.duplicates import vectors

        reader, state, resources = context.shards, context.state, self.params.resources
        compared = sum(
            executor.map(partial(vectors.store_vectors, reader, state), shards, resources=resources)
        )
        vectors.check_widths(reader, state)
        runs = vectors.trees_to_build(state)
        search = partial(vectors.search_vectors, reader, state, self.params.distance)
        sum(executor.map(partial(vectors.build_run, state), runs, resources=resources))
        found = sum(executor.map(search, shards, resources=resources))
        return float(compared), float(found)

    def _search_texts(
        self, context: Context, executor: Executor, shards: Sequence[int]
    ) -> tuple[float, float]:
        """Sign the texts of some shards and search all bands; return how many there are, and duplicates."""
        from operators.duplicates.stored import search, search_tasks, sign_shard

        state, resources = context.state, self.params.resources
        sign = partial(sign_shard, context.shards, state, self.params)
        compared = float(sum(executor.map(sign, shards, resources=resources)))
        first = min(info.first_row for info in context.shards.shards if info.index in shards)
        tasks = search_tasks(int(compared), self.params.threshold)
        for _ in executor.map(
            partial(search, state, self.params.threshold, first), tasks, resources=resources
        ):
            pass
        join = partial(_join_parts, context.shards, state)
        return compared, float(sum(executor.map(join, shards, resources=resources)))


def _join_parts(reader: ShardReader, state: Path, shard: int) -> int:
    """Store the pairs of a shard's valid rows; return how many rows are duplicates."""
    ids = reader.read(shard, (LABEL,)).column(ROW_ID).to_numpy()
    first_row = next(info.first_row for info in reader.shards if info.index == shard)
    return join_parts(state, first_row, ids)
