"""``split`` by a hash: count the strata, find their thresholds, then name each row's part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa

from operators.base import (
    GROUP,
    IS_OUTLIER,
    LABEL,
    ROW_ID,
    Apply,
    Context,
    Executor,
    OperatorParams,
    ShardReader,
)
from operators.explanations import ExplainedRow, Fact, added_facts
from operators.hashing import END, Hashes, row_hashes
from operators.splits.adaptor import Split, split_column, stratum_keys
from operators.splits.hashing import (
    DROPPED,
    PARTS,
    TEST,
    TRAIN,
    VALIDATION,
    Ints,
    Search,
    assign_parts,
    count_strata,
    find_ends,
    part_sizes,
)
from operators.splits.params import RandomParams, SplitParams
from operators.splits.shift import measure

STATE = "thresholds.json"


class Random(Split[RandomParams]):
    """Rows by a hash of seed and row id, with exact shares in every stratum."""

    Params: ClassVar[type[OperatorParams]] = RandomParams

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Find each stratum's thresholds; leaves ``thresholds.json``. Returns rows by part, and the shift."""
        draw = self._draw(context)
        found, counts = draw.thresholds(executor, self.params, self.params.validation, self.params.test)
        state = [[key, *ends] for key, ends in found.items()]
        (context.state / STATE).write_text(json.dumps(sorted(state)), "utf-8")
        return counts | measure(self, context, executor)

    def open(self, context: Context) -> Apply:
        """Load the thresholds."""
        draw = self._draw(context)
        state = json.loads((context.state / STATE).read_text("utf-8"))
        thresholds = {key: (first, second) for key, first, second in state}
        return lambda table: split_column(draw.parts(table, thresholds))

    def explain(self, context: Context, row: ExplainedRow) -> list[Fact]:
        """Say which share of the hashes of the row's stratum goes where, and what the row's hash is."""
        facts = added_facts(self.adds, row)
        if not row.has(LABEL, GROUP, IS_OUTLIER):
            return facts
        draw = self._draw(context)
        key = int(draw.keys(row.table)[0])
        if key < 0:
            return [*facts, Fact("dropped", True, "outliers are dropped (split.drop_outliers)")]
        ends = {k: (a, b) for k, a, b in json.loads((context.state / STATE).read_text("utf-8"))}
        first, second = (float(end) / END for end in draw.complete(np.array([key]), ends)[key])
        drawn = float(row_hashes(np.array([row.row_id]), context.seed)[0]) / END
        where = "its class and group" if draw.by_group else "all rows"
        note = f"of {where}: below {first:.4f} validation, below {second:.4f} test, else train"
        return [*facts, Fact("hash", drawn, note)]

    def _draw(self, context: Context) -> Draw:
        by, params = self.params.stratify_by_group, self.params
        shares = (params.validation, params.test)
        return Draw(
            context.shards, context.seed, params.drop_outliers, by_label=by, by_group=by, shares=shares
        )


@dataclass(frozen=True)
class Draw:
    """Rows drawn by their hash in strata of labels, and groups. Picklable."""

    reader: ShardReader
    seed: int
    drop_outliers: bool
    by_label: bool
    by_group: bool
    shares: tuple[float, float] = (0.0, 0.0)
    """Shares of validation and test in strata that had no row in ``fit``."""

    def keys(self, table: pa.Table) -> Ints:
        """Return the stratum (n,) of each row; -1 for rows to drop."""
        return stratum_keys(
            table, by_label=self.by_label, by_group=self.by_group, drop_outliers=self.drop_outliers
        )

    def thresholds(
        self, executor: Executor, params: SplitParams, validation: float, test: float
    ) -> tuple[dict[int, tuple[int, int]], dict[str, float]]:
        """Return, for each stratum, the hashes at which validation and then test end; and the rows of each
        part.
        """
        shards = range(len(self.reader.shards))
        sizes = count_strata(executor, shards, partial(_keys, self), params.resources)
        n_dropped = sizes.pop(-1, 0)
        parts = {key: part_sizes(n, validation, test) for key, n in sizes.items()}
        searches = [Search(key, rank) for key, (a, b) in parts.items() for rank in (a, a + b)]
        found = find_ends(executor, shards, partial(_hashed, self), searches, params.resources)
        ends = [end for end in found if isinstance(end, int)]  # all of them: no two rows share a hash
        pairs = zip(parts, ends[::2], ends[1::2], strict=True)
        counts = {VALIDATION: sum(v for v, _ in parts.values()), TEST: sum(t for _, t in parts.values())}
        counts |= {TRAIN: sum(sizes.values()) - sum(counts.values()), DROPPED: n_dropped}
        named = {PARTS[part]: float(n) for part, n in sorted(counts.items())}
        return {key: (first, second) for key, first, second in pairs}, named

    def parts(
        self, table: pa.Table, thresholds: Mapping[int, tuple[int, int]]
    ) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
        """Return the index (n,) into ``PARTS`` of each row."""
        keys = self.keys(table)
        kept = keys >= 0
        parts = np.full(table.num_rows, DROPPED, np.int8)
        thresholds = self.complete(keys[kept], thresholds)
        hashes = row_hashes(table[ROW_ID].to_numpy()[kept], self.seed)
        parts[kept] = assign_parts(keys[kept], hashes, thresholds)
        return parts

    def complete(
        self, keys: Ints, thresholds: Mapping[int, tuple[int, int]]
    ) -> Mapping[int, tuple[int, int]]:
        """Add strata that had no row in ``fit``; their thresholds are the shares themselves."""
        missing = set(np.unique(keys).tolist()).difference(thresholds)
        ends = (int(self.shares[0] * END), int(sum(self.shares) * END))
        return {**thresholds, **dict.fromkeys(missing, ends)} if missing else thresholds


def draw_test_rows(params: SplitParams, context: Context) -> Draw:
    """Return the draw of test rows within labels, for methods that do not draw validation rows."""
    shares = (0.0, params.test)
    return Draw(
        context.shards, context.seed, params.drop_outliers, by_label=True, by_group=False, shares=shares
    )


def _keys(draw: Draw, shard: int) -> Ints:
    return draw.keys(draw.reader.read(shard, [LABEL, GROUP, IS_OUTLIER]))


def _hashed(draw: Draw, shard: int) -> tuple[Ints, Hashes]:
    table = draw.reader.read(shard, [LABEL, GROUP, IS_OUTLIER])
    return draw.keys(table), row_hashes(table[ROW_ID].to_numpy(), draw.seed)
