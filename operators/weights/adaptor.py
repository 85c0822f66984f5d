"""``weights`` over shards: count the groups, then weigh each row."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from operators.base import (
    GROUP,
    IS_OUTLIER,
    LABEL,
    WEIGHT,
    Apply,
    Context,
    Executor,
    Operator,
    OperatorParams,
    ShardReader,
)
from operators.weights.kernel import balance_keys, balanced_weights, count_keys

STATE = "sizes.json"
COLUMNS = (LABEL, GROUP, IS_OUTLIER)


class WeightsParams(OperatorParams):
    """How rows are weighed."""

    method: Literal["uniform", "group_balanced"] = Field(
        default="uniform",
        description="uniform: 1 each; group_balanced: the same sum for every group and every class's noise, "
        "while rows marked as outliers weigh 1",
    )


class Weights(Operator[WeightsParams]):
    """Adds ``weight``, mean 1 over all valid rows."""

    name = "weights"
    version = 1
    Params = WeightsParams

    @property
    def requires(self) -> tuple[str, ...]:
        """The group, and with ``group_balanced`` what its noise is told apart by."""
        return (GROUP,) if self.params.method == "uniform" else COLUMNS

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """``weight``."""
        return (pa.field(WEIGHT, pa.float32()),)

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Count the rows of each group; leaves ``sizes.json``."""
        if self.params.method == "uniform":
            return {}
        sizes: Counter[int] = Counter()
        for found in executor.map(partial(_count, context.shards), range(len(context.shards.shards))):
            sizes.update(found)
        (context.state / STATE).write_text(json.dumps(sorted(sizes.items())), "utf-8")
        largest = balanced_weights(np.array(list(sizes)), sizes).max() if sizes else 0.0
        return {"groups": float(len(sizes)), "largest_weight": float(largest)}

    def open(self, context: Context) -> Apply:
        """Load the sizes."""
        if self.params.method == "uniform":
            return lambda table: pa.table({WEIGHT: pa.array(np.ones(table.num_rows, np.float32))})
        sizes = dict(json.loads((context.state / STATE).read_text("utf-8")))
        return lambda table: pa.table({WEIGHT: pa.array(balanced_weights(_keys(table), sizes))})


def _keys(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return balance_keys(*(table[name].to_numpy() for name in COLUMNS))


def _count(reader: ShardReader, shard: int) -> dict[int, int]:
    return count_keys(_keys(reader.read(shard, COLUMNS)))
