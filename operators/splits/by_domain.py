"""``split`` by leaving one domain out: validation is all rows of one value of a column."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.base import (
    Apply,
    Context,
    Executor,
    OperatorError,
    OperatorParams,
)
from operators.splits.adaptor import Split, split_column
from operators.splits.at_random import Draw
from operators.splits.domains import Domains
from operators.splits.hashing import TRAIN, VALIDATION
from operators.splits.params import DomainParams
from operators.splits.shift import measure

STATE = "domain.json"


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
        sizes = domains.sizes(executor, Rest(draw, test), params.resources)
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
        drop, shares = self.params.drop_outliers, (0.0, self.params.test)
        return Draw(context.shards, context.seed, drop, by_label=True, by_group=False, shares=shares)


@dataclass(frozen=True)
class Rest:
    """Rows that are neither dropped nor test. Picklable."""

    draw: Draw
    test: dict[int, tuple[int, int]]

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
