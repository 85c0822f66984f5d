"""The weight of each row of a shard, from what ``fit`` left."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from operators.base import GROUP, IS_OUTLIER, LABEL
from operators.weights.kernel import Floats, Trust, balance_keys, balanced_weights

COLUMNS = (LABEL, GROUP, IS_OUTLIER)
STATE = "weights.json"
Weigh: TypeAlias = Callable[[pa.Table], tuple[Floats, Floats]]


@dataclass(frozen=True)
class Factors:
    """Weights of other operators, and what the verdict on outliers makes of them."""

    columns: tuple[str, ...] = ()
    """Columns that multiply the weight."""
    marks: tuple[str, ...] = ()
    """Columns in which the operator of such a weight marks outliers, "" for none."""
    drop_outliers: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns to read."""
        return (*self.columns, *filter(None, self.marks))

    def product(self, table: pa.Table) -> Floats:
        """(n,) the factors' product; 0 for rows that are dropped.

        Where an operator marks a row and the verdict keeps it, its weight counts 1: a weight near 0 would
        drop what the other judges call a minority.
        """
        outlier = table.column(IS_OUTLIER).to_numpy().astype(bool)
        product = np.ones(table.num_rows)
        for name, mark in zip(self.columns, self.marks, strict=True):
            weight = table.column(name).to_numpy().astype(np.float64)
            if mark:
                overruled = table.column(mark).to_numpy().astype(bool) & ~outlier
                weight = np.where(overruled, 1.0, weight)
            product *= weight
        return np.where(outlier, 0.0, product) if self.drop_outliers else product


@dataclass(frozen=True)
class Scales:
    """All that decides a weight beside the models."""

    sizes: dict[int, float] | None
    """Sum of the factors' product over each group's rows, where groups are balanced."""
    trust: Trust | None
    scale: float = 1.0
    factors: Factors = Factors()

    def open(self, state: Path) -> Weigh:
        """A function from a shard's rows to their weights (n,), and to the trust (n,) in them."""
        share: Callable[[pa.Table], Floats] | None = None
        if self.trust:
            # Imported here because planning imports this module and must not load torch.
            from operators.weights.cross_fit import open_trust

            share = open_trust(self.trust, state)

        def weigh(table: pa.Table) -> tuple[Floats, Floats]:
            base = self.scale * self.factors.product(table)
            if self.sizes is not None:
                keys = balance_keys(*(table.column(name).to_numpy() for name in COLUMNS))
                base *= balanced_weights(keys, self.sizes)
            trusted = share(table) if share else np.ones(table.num_rows)
            return base * trusted, trusted

        return weigh

    def save(self, state: Path) -> None:
        """Leave ``weights.json``."""
        record = asdict(self) | {"sizes": _pairs(self.sizes)}
        if self.trust:
            record["trust"]["largest"] = _pairs(self.trust.largest)
        (state / STATE).write_text(json.dumps(record), "utf-8")

    @classmethod
    def load(cls, state: Path) -> Scales:
        """Read :meth:`save`'s file."""
        record = json.loads((state / STATE).read_text("utf-8"))
        trust, sizes = record["trust"], record["sizes"]
        factors = record["factors"]
        found = Factors(tuple(factors["columns"]), tuple(factors["marks"]), factors["drop_outliers"])
        if trust is not None:
            trust = Trust(**trust | {"largest": dict(trust["largest"]), "priors": tuple(trust["priors"])})
        sizes = None if sizes is None else dict(sizes)
        return cls(sizes, trust, record["scale"], found)


def _pairs(counts: Mapping[int, float] | None) -> list[tuple[int, float]] | None:
    """As JSON can hold it: its keys are text."""
    return None if counts is None else sorted(counts.items())
