"""``split`` with ``method: random``: a row's part follows from its hash and two thresholds of its stratum."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from operators.arrays import Int64
from operators.base import (
    FEATURES,
    GROUP,
    IS_OUTLIER,
    LABEL,
    PART,
    ROW_ID,
    SPLIT,
    Apply,
    Context,
    Cost,
    Executor,
    Operator,
    OperatorParams,
    Resources,
    ShardReader,
)
from operators.bounded_json import read_json
from operators.columns import vectors_to_numpy
from operators.explanations import ExplainedRow, Fact
from operators.hashing import END, Hashes, row_hashes
from operators.row_identity import content_hashes, content_identities, key_hashes, source_column
from operators.splits.adaptor import ROUNDED, Split, split_column, stratum_keys
from operators.splits.hashed_split import (
    DROPPED,
    PARTS,
    TEST,
    TRAIN,
    VALIDATION,
    Search,
    assign_parts,
    count_strata,
    find_ends,
    part_sizes,
)
from operators.splits.params import RandomParams, SplitParams
from operators.splits.shift import measure

STATE = "thresholds.json"
PURPOSE = "split/parts"


class Random(Split[RandomParams]):
    """Splits rows by a hash of seed and content, or of seed and a key.

    Shares are exact in every stratum, up to rounding and copies of a row, with ``fit_on: all`` and no key.
    Else they are those of the hash, which hold on average; see "Small classes" in the README.

    With ``fit_on: all`` and no key, copies of a row are numbered within their shard, so that the part of a
    copy depends on how the dataset is cut. Copies with the same number in several shards are in one part:
    where shards hold few of many copies, the parts differ in content.
    """

    Params: ClassVar[type[OperatorParams]] = RandomParams
    cost = Cost(6.81, 3.33, 115)

    def in_chain(self, chain: Sequence[Operator[Any]]) -> Self:
        """Return a copy of the operator for this chain.

        If an operator of the chain draws the parts before anything is fitted, the copy only names these
        parts.
        """
        found = super().in_chain(chain)
        found.fits_on_all_rows = any(_draws(operator) for operator in chain)
        return found

    @property
    def requires(self) -> tuple[str, ...]:
        """Labels, groups and outlier marks, which decide the strata, and features; or the drawn parts."""
        return (*super().requires, PART) if self.fits_on_all_rows else super().requires

    def fit_rule(self, context: Context, executor: Executor) -> dict[str, float]:
        """Find each stratum's thresholds; leaves ``thresholds.json``. Returns rows by part, and the shift."""
        if self.fits_on_all_rows:
            return _count_drawn(self, context, executor) | measure(self, context, executor)
        draw = self._draw(context)
        found, counts = draw.thresholds(executor, self.params, self.params.validation, self.params.test)
        state = [[key, *ends] for key, ends in found.items()]
        (context.state / STATE).write_text(json.dumps(sorted(state)), "utf-8")
        return counts | measure(self, context, executor)

    def open_rule(self, context: Context) -> Apply:
        """Load the thresholds, if the parts have not been drawn before."""
        if self.fits_on_all_rows:
            return partial(_drawn_parts, self.params.drop_outliers)
        draw = self._draw(context)
        state = read_json(context.state / STATE)
        thresholds = {key: (first, second) for key, first, second in state}
        return lambda table: split_column(draw.parts(table, thresholds))

    def explain(self, context: Context, row: ExplainedRow) -> list[Fact]:
        """Return the row's hash and the thresholds of its stratum, as shares of the largest hash."""
        facts = super().explain(context, row)
        if self.fits_on_all_rows or not row.has(LABEL, GROUP, IS_OUTLIER):
            return facts
        draw = self._draw(context)
        key = int(draw.keys(row.table)[0])
        if key < 0:
            return [*facts, Fact("dropped", True, "outliers are dropped (split.drop_outliers)")]
        ends = {k: (a, b) for k, a, b in read_json(context.state / STATE)}
        first, second = (float(end) / END for end in draw.complete(np.array([key]), ends)[key])
        if row.value(SPLIT) == PARTS[TEST] and not self.params.test:
            return [*facts, Fact("held out", True, "source.holdout decides, not the hash")]
        if not row.has(FEATURES):
            return facts
        drawn = float(draw.hash_of_row(row)) / END
        where = "its class and group" if draw.by_group else "all rows"
        note = f"of {where}: below {first:.4f} validation, below {second:.4f} test, else train"
        said = PARTS[VALIDATION if drawn < first else TEST if drawn < second else TRAIN]
        if row.value(SPLIT) not in (None, said):
            note = f"that of the first of several equal rows, {said}; this copy has a hash of its own"
        return [*facts, Fact("hash", drawn, note)]

    def asked_shares(self) -> Mapping[str, tuple[float, str]]:
        """Return the shares of validation and test rows, which hold on average unless rows are few."""
        if self.params.key is not None:
            why = (
                f"rows with one value of {self.params.key!r} are in one part, and there are too few values, "
                "or some have too many rows. Choose a split.key of more values, or another seed."
            )
        elif self.fits_on_all_rows:
            why = (
                "the content of each row decides, and classes of fewer than 20 rows are training rows. Add "
                "rows, or set split.fit_on: all, which draws exact shares."
            )
        elif self._by_group:
            why = f"{ROUNDED}Set split.stratify_by_group: false to draw from all rows alike."
        else:
            return {}
        shares = {VALIDATION: self.params.validation, TEST: self.params.test}
        return {PARTS[part]: (share, why) for part, share in shares.items()}

    @property
    def _by_group(self) -> bool:
        return self.params.stratify_by_group and self.params.key is None

    def _draw(self, context: Context) -> Draw:
        params, by = self.params, self._by_group
        shares = (params.validation, params.test)
        return Draw(
            context.shards,
            context.seed,
            params.drop_outliers,
            by_label=by,
            by_group=by,
            shares=shares,
            key=params.key,
        )


def _draws(operator: Operator[Any]) -> bool:
    return any(field.name == PART for field in operator.adds) and operator.params.draw is not None


def _drawn_parts(drop_outliers: bool, table: pa.Table) -> pa.Table:
    """Return the column ``split`` for rows whose parts have been drawn."""
    names = np.array([TRAIN, VALIDATION, TEST], np.int8)
    parts = names[table[PART].to_numpy()]
    if drop_outliers:
        parts[table[IS_OUTLIER].to_numpy()] = DROPPED
    return split_column(parts)


def _count_drawn(operator: Random, context: Context, executor: Executor) -> dict[str, float]:
    """Count the rows of each part."""
    totals = np.zeros(len(PARTS), np.int64)
    work = partial(_drawn_counts, context.shards, operator.params.drop_outliers)
    shards = range(len(context.shards.shards))
    for counts in executor.map(work, shards, resources=operator.params.resources):
        totals += counts
    return {name: float(n) for name, n in zip(PARTS, totals, strict=True)}


def _drawn_counts(reader: ShardReader, drop_outliers: bool, shard: int) -> Int64:
    found = _drawn_parts(drop_outliers, reader.read(shard, [IS_OUTLIER, PART]))
    indices = found[SPLIT].combine_chunks().indices.to_numpy()
    return np.bincount(indices, minlength=len(PARTS)).astype(np.int64)


@dataclass(frozen=True)
class Draw:
    """Draws validation and test rows by hash, within strata of label and group. Picklable."""

    reader: ShardReader
    seed: int
    drop_outliers: bool
    by_label: bool
    by_group: bool
    shares: tuple[float, float] = (0.0, 0.0)
    """Shares of validation and test in strata that had no row in ``fit``."""
    key: str | None = None
    """Source column whose value decides; default: the features."""

    def keys(self, table: pa.Table) -> Int64:
        """Return the stratum (n,) of each row; -1 for rows to drop."""
        return stratum_keys(
            table, by_label=self.by_label, by_group=self.by_group, drop_outliers=self.drop_outliers
        )

    def thresholds(
        self, executor: Executor, params: SplitParams, validation: float, test: float
    ) -> tuple[dict[int, tuple[int, int]], dict[str, float]]:
        """Return the hashes at which validation and test end, per stratum, and the number of rows per
        part.
        """
        shards = range(len(self.reader.shards))
        sizes = count_strata(executor, shards, partial(_keys, self), params.resources)
        n_dropped = sizes.pop(-1, 0)
        if self.key is not None:
            # Thresholds do not depend on the rows, so that no key ever changes its part.
            ends = (int(validation * END), int((validation + test) * END))
            thresholds = dict.fromkeys(sizes, ends)
            return thresholds, self._counts(executor, thresholds, params.resources)
        parts = {key: part_sizes(n, validation, test) for key, n in sizes.items()}
        searches = [Search(key, rank) for key, (a, b) in parts.items() for rank in (a, a + b) if rank]
        found = iter(find_ends(executor, shards, partial(_hashed, self), searches, params.resources))
        counts, result = dict.fromkeys(range(len(PARTS)), 0), {}
        for key, (a, b) in parts.items():
            # Copies of a row in several shards share a hash. If it is the threshold, all go to the later
            # part.
            first, second = (next(found) if rank else 0 for rank in (a, a + b))
            low, high = (end.low if isinstance(end, Search) else end for end in (first, second))
            lacking = [end.rank if isinstance(end, Search) else 0 for end in (first, second)]
            n_validation, n_both = a - lacking[0], a + b - lacking[1]
            result[key] = (low, high)
            counts[VALIDATION] += n_validation
            counts[TEST] += n_both - n_validation
            counts[TRAIN] += sizes[key] - n_both
        counts[DROPPED] = n_dropped
        return result, {PARTS[part]: float(n) for part, n in sorted(counts.items())}

    def _counts(
        self, executor: Executor, thresholds: Mapping[int, tuple[int, int]], resources: Resources
    ) -> dict[str, float]:
        """Count the rows of each part."""
        totals = np.zeros(len(PARTS), np.int64)
        work = partial(_part_counts, self, thresholds)
        for counts in executor.map(work, range(len(self.reader.shards)), resources=resources):
            totals += counts
        return {name: float(n) for name, n in zip(PARTS, totals, strict=True)}

    def hashes(self, table: pa.Table) -> Hashes:
        """Return the hash (n,) of each row of one shard's table, by its key or its content."""
        if FEATURES not in table.column_names:
            table = self.reader.read(_shard_of(self.reader, table), [LABEL, GROUP, IS_OUTLIER, FEATURES])
        found = content_identities(vectors_to_numpy(table[FEATURES]))
        if self.key is not None and table.num_rows:
            keys, has_value = key_hashes(source_column(self.reader, self.key, table))
            found = np.where(has_value, keys, found)
        return row_hashes(found, self.seed, PURPOSE)

    def hash_of_row(self, row: ExplainedRow) -> int:
        """Return the hash of one row. Of equal rows in a shard it is that of the first."""
        found = content_hashes(vectors_to_numpy(row.table[FEATURES]))
        if self.key is not None:
            keys, has_value = key_hashes(source_column(self.reader, self.key, row.table))
            found = np.where(has_value, keys, found)
        return int(row_hashes(found, self.seed, PURPOSE)[0])

    def parts(
        self, table: pa.Table, thresholds: Mapping[int, tuple[int, int]]
    ) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
        """Return the index (n,) into ``PARTS`` of each row."""
        keys = self.keys(table)
        kept = keys >= 0
        parts = np.full(table.num_rows, DROPPED, np.int8)
        thresholds = self.complete(keys[kept], thresholds)
        if not any(last for _, last in thresholds.values()):
            parts[kept] = TRAIN  # neither validation nor test
        elif table.num_rows:
            parts[kept] = assign_parts(keys[kept], self.hashes(table)[kept], thresholds)
        return parts

    def complete(
        self, keys: Int64, thresholds: Mapping[int, tuple[int, int]]
    ) -> Mapping[int, tuple[int, int]]:
        """Add thresholds at the shares themselves for strata that had no row in ``fit``."""
        missing = set(np.unique(keys).tolist()).difference(thresholds)
        ends = (int(self.shares[0] * END), int(sum(self.shares) * END))
        return {**thresholds, **dict.fromkeys(missing, ends)} if missing else thresholds


def draw_test_rows(params: SplitParams, context: Context) -> Draw:
    """Return the draw of test rows within labels, for methods that do not draw validation rows."""
    shares = (0.0, params.test)
    return Draw(
        context.shards, context.seed, params.drop_outliers, by_label=True, by_group=False, shares=shares
    )


def _keys(draw: Draw, shard: int) -> Int64:
    return draw.keys(draw.reader.read(shard, [LABEL, GROUP, IS_OUTLIER]))


def _hashed(draw: Draw, shard: int) -> tuple[Int64, Hashes]:
    table = draw.reader.read(shard, [LABEL, GROUP, IS_OUTLIER, FEATURES])
    return draw.keys(table), draw.hashes(table)


def _part_counts(draw: Draw, thresholds: Mapping[int, tuple[int, int]], shard: int) -> Int64:
    parts = draw.parts(draw.reader.read(shard, [LABEL, GROUP, IS_OUTLIER, FEATURES]), thresholds)
    return np.bincount(parts, minlength=len(PARTS)).astype(np.int64)


def _shard_of(reader: ShardReader, table: pa.Table) -> int:
    """Return the number of the shard that the rows of a table belong to."""
    shards = sorted(reader.shards, key=lambda shard: shard.first_row)
    firsts = [shard.first_row for shard in shards]
    return shards[bisect_right(firsts, int(table[ROW_ID][0].as_py())) - 1].index
