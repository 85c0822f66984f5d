"""``split`` by leaving one domain out: validation is all rows of one value of a column."""

from __future__ import annotations

import difflib
import json
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.base import (
    GROUP,
    IS_OUTLIER,
    LABEL,
    ROW_ID,
    Apply,
    Context,
    Executor,
    OperatorError,
    OperatorParams,
    ShardReader,
)
from operators.splits.at_random import Draw
from operators.splits.hashing import TRAIN, VALIDATION
from operators.splits.operator import Split, split_column
from operators.splits.params import DomainParams
from operators.splits.shift import measure

STATE = "domain.json"
MOST_VALUES = 10_000


class ByDomain(Split[DomainParams]):
    """Validation is one domain, whole: the way of WILDS and DomainBed, which needs metadata."""

    Params: ClassVar[type[OperatorParams]] = DomainParams

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Count the domains and choose one; leaves ``domain.json``. Returns rows by part, and the shift.

        Raises
        ------
        OperatorError
            The column has no such value, one value alone, or more than 10,000.
        """
        params = self.params
        draw = self._draw(context)
        test, counts = draw.thresholds(executor, params, 0.0, params.test)
        domains = Domains(context.shards, params.domain)
        sizes: Counter[str] = Counter()
        count = partial(_count, draw, domains, test)
        for found in executor.map(count, range(len(context.shards.shards)), resources=params.resources):
            sizes.update(found)
            if len(sizes) > MOST_VALUES:
                raise OperatorError(
                    f"operators.split.domain: {params.domain!r} has more than {MOST_VALUES:,} values, so it "
                    "names no domains. Name a column such as the site or the camera of each row."
                )
        chosen = self._choose(sizes)
        state = {"domain": chosen, "test": sorted(test.items())}
        (context.state / STATE).write_text(json.dumps(state), "utf-8")
        taken = float(sizes[chosen])
        counts |= {"validation": taken, "train": counts["train"] - taken, "domains": float(len(sizes))}
        return counts | measure(self, context, executor)

    def open(self, context: Context) -> Apply:
        """Load which domain it is."""
        state = json.loads((context.state / STATE).read_text("utf-8"))
        test = {key: (first, last) for key, (first, last) in state["test"]}
        return partial(
            _apply, self._draw(context), Domains(context.shards, self.params.domain), test, state["domain"]
        )

    def _choose(self, sizes: Counter[str]) -> str:
        column, wanted = self.params.domain, self.params.leave_out
        if len(sizes) < 2:
            raise OperatorError(
                f"operators.split.domain: {column!r} has {len(sizes)} values among the rows kept; one domain "
                "can only be left out of two or more. Name another column, or take method cluster."
            )
        if wanted is None:
            share = self.params.validation * sum(sizes.values())
            return min(sorted(sizes), key=lambda name: abs(sizes[name] - share))
        if wanted not in sizes:
            near = difflib.get_close_matches(wanted, sizes, n=1) or sorted(sizes)[:5]
            raise OperatorError(
                f"operators.split.leave_out: no row kept has {wanted!r} in {column!r}. There are: "
                f"{', '.join(near)}."
            )
        return wanted

    def _draw(self, context: Context) -> Draw:
        return Draw(context.shards, context.seed, self.params.drop_outliers, by_label=True, by_group=False)


@dataclass(frozen=True)
class Domains:
    """The domain of each row, as text. Picklable."""

    reader: ShardReader
    column: str

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


def _count(draw: Draw, domains: Domains, test: dict[int, tuple[int, int]], shard: int) -> dict[str, int]:
    table = draw.reader.read(shard, [LABEL, GROUP, IS_OUTLIER])
    kept = domains(table).filter(pa.array(draw.parts(table, test) == TRAIN))
    counts = pc.value_counts(kept.drop_null())
    return {entry["values"]: entry["counts"] for entry in counts.to_pylist()}


def _apply(
    draw: Draw, domains: Domains, test: dict[int, tuple[int, int]], chosen: str, table: pa.Table
) -> pa.Table:
    parts: npt.NDArray[np.int8] = draw.parts(table, test)
    inside = pc.fill_null(pc.equal(domains(table), chosen), False).to_numpy(zero_copy_only=False)
    parts[(parts == TRAIN) & inside] = VALIDATION
    return split_column(parts)
