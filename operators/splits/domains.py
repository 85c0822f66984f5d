"""The domain of each row: a column of the source, or the inferred group."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.base import GROUP, IS_OUTLIER, LABEL, ROW_ID, Executor, OperatorError, Resources, ShardReader
from operators.splits.hashing import Ints

MOST_VALUES = 10_000
Kept: TypeAlias = Callable[[pa.Table], npt.NDArray[np.bool_]]


@dataclass(frozen=True)
class Domains:
    """The domain of each row, as text. Picklable."""

    reader: ShardReader
    column: str
    """A source column; ``group``: the inferred groups, noise being in no domain."""

    def __call__(self, table: pa.Table) -> Any:
        """Domain of each row of one shard's table; null where it has none."""
        if self.column == GROUP:
            groups = pc.cast(table[GROUP], pa.string()).combine_chunks()
            return pc.if_else(pc.equal(groups, "-1"), pa.scalar(None, pa.string()), groups)
        ids = table[ROW_ID].to_numpy()
        if not len(ids):
            return pa.nulls(0, pa.string())
        shards = sorted(self.reader.shards, key=lambda shard: shard.first_row)
        shard = shards[bisect_right([one.first_row for one in shards], int(ids[0])) - 1]
        found = self.reader.read_source(shard.index, [self.column])[self.column]
        if pa.types.is_dictionary(found.type):
            found = found.cast(found.type.value_type)
        return pc.cast(found, pa.string()).combine_chunks().take(pa.array(ids - shard.first_row))

    def sizes(self, executor: Executor, kept: Kept, resources: Resources) -> Counter[str]:
        """Rows of each domain among those kept. Raises OperatorError for more than 10,000 domains."""
        sizes: Counter[str] = Counter()
        shards = range(len(self.reader.shards))
        for found in executor.map(partial(_count, self, kept), shards, resources=resources):
            sizes.update(found)
            if len(sizes) > MOST_VALUES:
                raise OperatorError(
                    f"operators.split.domain: {self.column!r} has more than {MOST_VALUES:,} values, so it "
                    "names no domains. Name a column such as the site or the camera of each row."
                )
        return sizes


def _count(domains: Domains, kept: Kept, shard: int) -> dict[str, int]:
    table = domains.reader.read(shard, [LABEL, GROUP, IS_OUTLIER])
    counts = pc.value_counts(domains(table).filter(pa.array(kept(table))).drop_null())
    return {entry["values"]: entry["counts"] for entry in counts.to_pylist()}


@dataclass(frozen=True)
class Codes:
    """The place of each row's domain in ``values``, -1 where it has none. Picklable."""

    domains: Domains
    values: tuple[str, ...]

    def __call__(self, table: pa.Table) -> Ints:
        """Return the codes (n,) of the rows of a table."""
        found = pc.index_in(self.domains(table), pa.array(self.values, pa.string()))
        return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), np.int64)
