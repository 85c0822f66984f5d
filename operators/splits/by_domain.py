"""The domain of each row, and ``split`` with ``method: leave_one_domain_out``.

A domain is a value of a source column, or an inferred group. The method ``cluster`` uses :class:`Domains`
too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connectors.foundation.messages import nearest
from operators.arrays import Int64
from operators.base import (
    GROUP,
    IS_OUTLIER,
    LABEL,
    Apply,
    Context,
    Executor,
    OperatorError,
    OperatorParams,
    Resources,
    ShardReader,
)
from operators.bounded_json import read_json
from operators.row_identity import key_texts, source_column
from operators.splits.adaptor import Split, split_column
from operators.splits.at_random import Draw, draw_test_rows
from operators.splits.hashed_split import TRAIN, VALIDATION
from operators.splits.params import DomainParams
from operators.splits.shift import measure

MAX_VALUES = 10_000
RowFilter: TypeAlias = Callable[[pa.Table], npt.NDArray[np.bool_]]


@dataclass(frozen=True)
class Domains:
    """The domain of each row, as text. Picklable."""

    reader: ShardReader
    column: str
    """A source column, or ``group`` for the inferred groups. Rows of the group -1 are in no domain."""

    def __call__(self, table: pa.Table) -> Any:
        """Return the domain of each row of one shard's table; null for rows in no domain, as of NaN."""
        if self.column == GROUP:
            groups = pc.cast(table[GROUP], pa.string()).combine_chunks()
            return pc.if_else(pc.equal(groups, "-1"), pa.scalar(None, pa.string()), groups)
        if not table.num_rows:
            return pa.nulls(0, pa.string())
        return key_texts(source_column(self.reader, self.column, table))

    def sizes(self, executor: Executor, kept: RowFilter, resources: Resources) -> Counter[str]:
        """Count the rows of each domain among those kept. Raises OperatorError for over 10,000 domains."""
        sizes: Counter[str] = Counter()
        shards = range(len(self.reader.shards))
        for found in executor.map(partial(_count, self, kept), shards, resources=resources):
            sizes.update(found)
            if len(sizes) > MAX_VALUES:
                raise OperatorError(
                    f"operators.split.domain: column {self.column!r} has more than {MAX_VALUES:,} values, "
                    "which is too many for domains. Name a column such as the site or the camera of each row."
                )
        return sizes


def _count(domains: Domains, kept: RowFilter, shard: int) -> dict[str, int]:
    table = domains.reader.read(shard, [LABEL, GROUP, IS_OUTLIER])
    counts = pc.value_counts(domains(table).filter(pa.array(kept(table))).drop_null())
    return {entry["values"]: entry["counts"] for entry in counts.to_pylist()}


@dataclass(frozen=True)
class Codes:
    """Index of each row's domain in ``values``, or -1 if it is not there. Picklable."""

    domains: Domains
    values: tuple[str, ...]

    def __call__(self, table: pa.Table) -> Int64:
        """Return the codes (n,) of the rows of a table."""
        found = pc.index_in(self.domains(table), pa.array(self.values, pa.string()))
        return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), np.int64)


STATE = "domain.json"


class ByDomain(Split[DomainParams]):
    """Takes all rows of one domain for validation, as WILDS and DomainBed do; domains must be known."""

    Params: ClassVar[type[OperatorParams]] = DomainParams

    def fit_rule(self, context: Context, executor: Executor) -> dict[str, float]:
        """Count the domains and choose one; leaves ``domain.json``. Returns rows by part, and the shift.

        Raises
        ------
        OperatorError
            The column does not hold the value ``leave_out``, has a single value, or more than 10,000.
        """
        params = self.params
        draw = draw_test_rows(self.params, context)
        test, counts = draw.thresholds(executor, params, 0.0, params.test)
        domains = Domains(context.shards, params.domain)
        sizes = domains.sizes(executor, RemainingRows(draw, test), params.resources)
        chosen = self._choose(sizes)
        state = {"domain": chosen, "test": sorted(test.items())}
        (context.state / STATE).write_text(json.dumps(state), "utf-8")
        taken = float(sizes[chosen])
        counts |= {"validation": taken, "train": counts["train"] - taken, "domains": float(len(sizes))}
        return counts | measure(self, context, executor)

    def open_rule(self, context: Context) -> Apply:
        """Return a function that splits the rows of a table by the chosen domain."""
        state = read_json(context.state / STATE)
        test = {key: (first, last) for key, (first, last) in state["test"]}
        return partial(
            _apply,
            draw_test_rows(self.params, context),
            Domains(context.shards, self.params.domain),
            test,
            state["domain"],
        )

    def _choose(self, sizes: Counter[str]) -> str:
        column, wanted = self.params.domain, self.params.leave_out
        if len(sizes) < 2:
            raise OperatorError(
                f"operators.split.domain: column {column!r} has {len(sizes)} values among the rows that are "
                "split, but leaving one domain out needs at least two. Name another column, or set method to "
                "cluster."
            )
        if wanted is None:
            # The sizes lack the test rows, while the share is one of all rows.
            share = self.params.validation / (1 - self.params.test) * sum(sizes.values())
            return min(sorted(sizes), key=lambda name: abs(sizes[name] - share))
        if wanted not in sizes:
            hint = nearest(wanted, sizes) or f" There are: {', '.join(sorted(sizes)[:5])}."
            raise OperatorError(
                f"operators.split.leave_out: no row that is split has {wanted!r} in column {column!r}.{hint}"
            )
        return wanted


@dataclass(frozen=True)
class RemainingRows:
    """Filter for the rows that are neither dropped nor test rows. Picklable."""

    draw: Draw
    test: dict[int, tuple[int, int]]

    @classmethod
    def stored(cls, draw: Draw, record: Mapping[str, Any]) -> RemainingRows:
        """Return the filter by a state's record, whose key ``test`` lists the test rows of each stratum."""
        return cls(draw, {key: (first, last) for key, (first, last) in record["test"]})

    def __call__(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        """Return whether each row of a table takes part (n,)."""
        return np.asarray(self.draw.parts(table, self.test) == TRAIN)


def _apply(
    draw: Draw, domains: Domains, test: dict[int, tuple[int, int]], chosen: str, table: pa.Table
) -> pa.Table:
    parts: npt.NDArray[np.int8] = draw.parts(table, test)
    inside = pc.fill_null(pc.equal(domains(table), chosen), False).to_numpy(zero_copy_only=False)
    parts[(parts == TRAIN) & inside] = VALIDATION
    return split_column(parts)
