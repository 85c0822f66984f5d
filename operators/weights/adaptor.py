"""``weights`` over shards: count the groups, train without each fold, then weigh each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from operators.base import FEATURES, WEIGHT, Apply, Context, Executor, Operator, ShardReader
from operators.weights.kernel import balance_keys, count_keys, group_keys, largest_groups
from operators.weights.params import WeightsParams
from operators.weights.weighing import COLUMNS, Scales, Trust


class Weights(Operator[WeightsParams]):
    """Adds ``weight``, mean 1 over all valid rows."""

    name = "weights"
    version = 2
    Params = WeightsParams

    def __init__(self, params: WeightsParams) -> None:
        super().__init__(params)
        self._doubts = params.trust == "self_confidence"
        self.uses = ("ingest",) if self._doubts else ()

    @property
    def requires(self) -> tuple[str, ...]:
        """Class, group and outlier mark, and what a classifier learns from."""
        return (*COLUMNS, FEATURES) if self._doubts else COLUMNS

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """``weight``."""
        return (pa.field(WEIGHT, pa.float32()),)

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Count the rows of each group and train without each fold; leaves ``weights.json`` and the models.

        Returns groups, largest_weight, effective_sample_size, and ``doubted``: rows that count for less than
        their share.

        Raises
        ------
        OperatorError
            Too few rows for the folds, or a training diverged.
        """
        shards = range(len(context.shards.shards))
        balanced: Counter[int] = Counter()
        by_class: Counter[tuple[int, int]] = Counter()
        for found in executor.map(partial(_count, context.shards), shards):
            balanced.update(found[0])
            by_class.update(found[1])
        sizes = dict(balanced) if self.params.method == "group_balanced" else None
        scales = Scales(sizes, self._train(context, executor, by_class))
        add_up = partial(_add_up, context.shards, self.requires, scales, context.state)
        sums = [Sums(*column) for column in executor.map(add_up, shards)]
        total = sum(part.weight for part in sums)
        scale = sum(by_class.values()) / total if total else 1.0
        replace(scales, scale=scale).save(context.state)
        return {
            "groups": float(len(balanced)),
            "largest_weight": float(np.float32(scale * max((part.largest for part in sums), default=0.0))),
            "effective_sample_size": total**2 / sum(part.square for part in sums) if total else 0.0,
            "doubted": float(sum(part.doubted for part in sums)),
        }

    def _train(
        self, context: Context, executor: Executor, by_class: Counter[tuple[int, int]]
    ) -> Trust | None:
        largest = largest_groups(by_class)
        if not self._doubts or len(by_class) == len(largest):
            return None  # every class is one group: nothing to doubt
        # Not at the top: torch takes seconds, and planning imports this module.
        from operators.weights.cross_fit import FoldJob, count_classes

        sizes: Counter[int] = Counter()
        for (_, key), n_rows in by_class.items():
            sizes[key] += n_rows
        trust = Trust(
            largest, self.params.cross_fit.folds, count_classes(context.states["ingest"]), context.seed
        )
        job = FoldJob(context.shards, context.state, self.params, dict(sizes), trust)
        for _ in executor.map(job, range(trust.n_folds), resources=self.params.resources):
            pass
        return trust

    def open(self, context: Context) -> Apply:
        """Load sizes and models."""
        weigh = Scales.load(context.state).open(context.state)
        return lambda table: pa.table({WEIGHT: pa.array(weigh(table)[0].astype(np.float32))})


class Sums(NamedTuple):
    """Of the weights of a shard."""

    weight: float
    square: float
    largest: float
    doubted: int


def _count(reader: ShardReader, shard: int) -> tuple[dict[int, int], dict[tuple[int, int], int]]:
    """Rows of each group as they are balanced; rows of each class and group with all noise."""
    table = reader.read(shard, COLUMNS)
    y, group, is_outlier = (table.column(name).to_numpy() for name in COLUMNS)
    pairs = Counter(zip(y.tolist(), group_keys(y, group).tolist(), strict=True))
    return count_keys(balance_keys(y, group, is_outlier)), dict(pairs)


def _add_up(
    reader: ShardReader, columns: Sequence[str], scales: Scales, state: Path, shard: int
) -> tuple[float, float, float, int]:
    """See :class:`Sums`."""
    weights, trusted = scales.open(state)(reader.read(shard, columns))
    doubted = int(np.count_nonzero(trusted < 1))
    return float(weights.sum()), float(weights @ weights), float(weights.max(initial=0.0)), doubted
