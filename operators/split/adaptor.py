"""``split`` over shards: count the strata, find their thresholds, then name each row's part."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from operators.base import (
    CATEGORY,
    GROUP,
    IS_OUTLIER,
    LABEL,
    ROW_ID,
    SPLIT,
    Apply,
    Context,
    Executor,
    Operator,
    OperatorParams,
    ShardReader,
)
from operators.split.kernel import (
    BINS,
    DROPPED,
    PARTS,
    TEST,
    TRAIN,
    VALIDATION,
    Hashes,
    Ints,
    Search,
    assign_parts,
    histograms,
    part_sizes,
    row_hashes,
    strata,
)

STATE = "thresholds.json"


class SplitParams(OperatorParams):
    """How rows are divided; ``method`` tells the kinds of split apart."""

    method: Literal["random"] = "random"
    validation: float = Field(default=0.2, ge=0, lt=1, description="Share of rows for validation")
    test: float = Field(default=0.0, ge=0, lt=1, description="Share of rows for test")
    stratify_by_group: bool = Field(
        default=True, description="Take these shares of every group and every class's noise"
    )
    drop_outliers: bool = Field(
        default=False, description="Leave outliers out; noise is often the minority, so look at it first"
    )

    @model_validator(mode="after")
    def _leave_some_to_train(self) -> SplitParams:
        if self.validation + self.test >= 1:
            raise ValueError(
                f"validation ({self.validation}) and test ({self.test}) leave nothing to train on: "
                f"their sum must be below 1"
            )
        return self


class Split(Operator[SplitParams]):
    """Adds ``split``, the same for each row however the dataset is cut into shards."""

    name = "split"
    version = 1
    Params = SplitParams

    @property
    def requires(self) -> tuple[str, ...]:
        """What rows are stratified by, and what may be dropped."""
        return (LABEL, GROUP, IS_OUTLIER)

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """``split``."""
        return (pa.field(SPLIT, CATEGORY),)

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Find each stratum's thresholds; leaves ``thresholds.json``."""
        shards = range(len(context.shards.shards))
        sizes: Counter[int] = Counter()
        for found in executor.map(partial(_count, context.shards, self.params), shards):
            sizes.update(found)
        n_dropped = sizes.pop(-1, 0)
        parts = {key: part_sizes(n, self.params.validation, self.params.test) for key, n in sizes.items()}
        searches = [
            Search(key, rank) for key, (first, second) in parts.items() for rank in (first, first + second)
        ]
        ends = self._search(context, executor, searches)
        state = [[key, ends[2 * i], ends[2 * i + 1]] for i, key in enumerate(parts)]
        (context.state / STATE).write_text(json.dumps(sorted(state)), "utf-8")
        n_parts = {VALIDATION: sum(v for v, _ in parts.values()), TEST: sum(t for _, t in parts.values())}
        n_parts |= {TRAIN: sum(sizes.values()) - sum(n_parts.values()), DROPPED: n_dropped}
        return {PARTS[part]: float(n) for part, n in sorted(n_parts.items())}

    def open(self, context: Context) -> Apply:
        """Load the thresholds."""
        state = json.loads((context.state / STATE).read_text("utf-8"))
        thresholds = {key: (first, second) for key, first, second in state}

        def apply(table: pa.Table) -> pa.Table:
            keys, hashes = _keys(table, self.params), row_hashes(table[ROW_ID].to_numpy(), context.seed)
            kept = keys >= 0
            parts = np.full(table.num_rows, DROPPED, np.int8)
            parts[kept] = assign_parts(keys[kept], hashes[kept], thresholds)
            return pa.table({SPLIT: pa.DictionaryArray.from_arrays(pa.array(parts), pa.array(PARTS))})

        return apply

    def _search(self, context: Context, executor: Executor, searches: list[Search]) -> list[int]:
        """Thresholds of all searches; each round reads every shard once and settles 8 bits."""
        shards = range(len(context.shards.shards))
        found: dict[int, int] = {}
        going = dict(enumerate(searches))
        while going:
            work = partial(_histograms, context.shards, self.params, context.seed, list(going.values()))
            total: Ints = np.zeros((len(going), BINS), np.int64)
            for counts in executor.map(work, shards):
                total += counts
            results = {i: search.narrow(total[row]) for row, (i, search) in enumerate(going.items())}
            found |= {i: result for i, result in results.items() if isinstance(result, int)}
            going = {i: result for i, result in results.items() if isinstance(result, Search)}
        return [found[i] for i in range(len(searches))]


def _keys(table: pa.Table, params: SplitParams) -> Ints:
    """Stratum of each row, -1 for rows to drop."""
    keys: Ints = np.zeros(table.num_rows, np.int64)
    if params.stratify_by_group:
        keys = strata(table[LABEL].to_numpy(), table[GROUP].to_numpy())
    if params.drop_outliers:
        keys[table[IS_OUTLIER].to_numpy()] = -1
    return keys


def _read(reader: ShardReader, params: SplitParams, shard: int) -> tuple[Ints, pa.Table]:
    table = reader.read(shard, [LABEL, GROUP, IS_OUTLIER])
    return _keys(table, params), table


def _count(reader: ShardReader, params: SplitParams, shard: int) -> dict[int, int]:
    keys, _ = _read(reader, params, shard)
    values, counts = np.unique(keys, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _histograms(
    reader: ShardReader, params: SplitParams, seed: int, searches: list[Search], shard: int
) -> Ints:
    keys, table = _read(reader, params, shard)
    hashes: Hashes = row_hashes(table[ROW_ID].to_numpy(), seed)
    return histograms(keys, hashes, searches)
