"""The weight of each row of a shard, computed from the state that ``fit`` stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from operators.arrays import Float64, Mask
from operators.base import GROUP, IS_OUTLIER, LABEL, SPLIT
from operators.bounded_json import read_json
from operators.explanations import Fact
from operators.weights.class_limits import ClassLimits
from operators.weights.kernel import Keys, LabelTrust, balance_keys, balanced_weights

COLUMNS = (LABEL, GROUP, IS_OUTLIER)
STATE = "weights.json"
Weigh: TypeAlias = Callable[[pa.Table], tuple[Float64, Float64]]


@dataclass(frozen=True)
class Factors:
    """Weights of other operators that multiply the weight, and how the verdict on outliers changes them."""

    columns: tuple[str, ...] = ()
    """Columns that multiply the weight."""
    marks: tuple[str, ...] = ()
    """Columns in which the operator of such a weight marks outliers, "" for none."""
    drop_outliers: bool = False
    final: tuple[str, ...] = ()
    """Those of ``columns`` whose 0 stays 0, whatever the limits: that of near duplicates."""
    drop_split: bool = False
    """Whether rows that ``split`` drops weigh 0: it drops near duplicates of rows in other splits."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns that weighing reads."""
        return (*self.columns, *filter(None, self.marks), *((SPLIT,) if self.drop_split else ()))

    def product(self, table: pa.Table) -> Float64:
        """Return the factors' product (n,); 0 for rows that are dropped.

        If an operator marks a row as an outlier and the verdict keeps the row, that operator's weight counts
        as 1. Its weight near 0 would drop the row all the same.
        """
        outlier = table.column(IS_OUTLIER).to_numpy().astype(bool)
        product = np.ones(table.num_rows)
        for name, mark in zip(self.columns, self.marks, strict=True):
            weight = table.column(name).to_numpy().astype(np.float64)
            if mark:
                overruled = table.column(mark).to_numpy().astype(bool) & ~outlier
                weight = np.where(overruled, 1.0, weight)
            product *= weight
        return np.where(self.kept(table), product, 0.0)

    def kept(self, table: pa.Table) -> Mask:
        """Return the rows that are not dropped, shape (n,)."""
        kept: Mask = np.ones(table.num_rows, np.bool_)
        if self.drop_outliers:
            kept &= ~table.column(IS_OUTLIER).to_numpy().astype(bool)
        if self.drop_split:
            kept &= pc.not_equal(table.column(SPLIT).cast(pa.string()), "dropped").to_numpy()
        return kept

    def counted(self, table: pa.Table) -> Mask:
        """Return the rows that count for the limits, shape (n,): kept ones that no final factor excludes."""
        return self.kept(table) & ~self.excluded(table)

    def excluded(self, table: pa.Table) -> Mask:
        """Return the rows that weigh 0 by a final factor, shape (n,)."""
        found: Mask = np.zeros(table.num_rows, np.bool_)
        for name in self.final:
            found |= table.column(name).to_numpy() == 0
        return found


@dataclass(frozen=True)
class Scales:
    """Everything that a weight is computed from, apart from the trained models."""

    sizes: dict[int, float] | None
    """Sum of the factors' product over each group's rows, where groups are balanced."""
    trust: LabelTrust | None
    scale: float = 1.0
    factors: Factors = Factors()
    limits: ClassLimits | None = None
    """Limits of each class, for ``method: robust``."""
    by_class: bool = False
    """Whether ``sizes`` are of classes rather than of groups."""
    marked_at_most: float | None = None
    """Largest weight of a row that is marked as an outlier, ahead of ``scale``; None for no such limit."""

    def open(self, state: Path) -> Weigh:
        """Return a function from a shard's rows to their weights (n,), and to the trust (n,) in them."""
        share: Callable[[pa.Table], Float64] | None = None
        if self.trust:
            # Imported here because planning imports this module and must not load torch.
            from operators.weights.cross_fit import open_trust

            share = open_trust(self.trust, state)

        def weigh(table: pa.Table) -> tuple[Float64, Float64]:
            base = self.factors.product(table)
            if self.limits is not None:
                base = self.limits.apply(base, table.column(LABEL).to_numpy(), self.factors.kept(table))
                base = self._limit_marked(np.where(self.factors.excluded(table), 0.0, base), table)
            if self.sizes is not None:
                base *= balanced_weights(read_keys(table, by_class=self.by_class), self.sizes)
            base *= self.scale
            trusted = share(table) if share else np.ones(table.num_rows)
            return base * trusted, trusted

        return weigh

    def _limit_marked(self, weight: Float64, table: pa.Table) -> Float64:
        """Return weights (n,) of which those of marked rows are ``marked_at_most`` at most."""
        if self.marked_at_most is None:
            return weight
        outlier = table.column(IS_OUTLIER).to_numpy().astype(bool)
        return np.where(outlier, np.minimum(weight, self.marked_at_most), weight)

    def explain(self, table: pa.Table, state: Path) -> list[Fact]:
        """Return the parts of the weight of one row: factors, limits, group balance, scale and trust."""
        names = self.factors.columns
        facts = [Fact(f"factor {name}", float(table.column(name)[0].as_py())) for name in names]
        base = self.factors.product(table)
        if names:
            note = "of the factors; a factor counts 1 where its mark as an outlier was overruled"
            facts.append(Fact("product", float(base[0]), note))
        if self.limits is not None:
            y = table.column(LABEL).to_numpy()
            c, before = int(y[0]), base
            base = self.limits.apply(base, y, self.factors.kept(table))
            facts += self.limits.explain(c, float(before[0]), float(base[0]))
            if self.factors.excluded(table)[0]:
                note = "a factor of 0 that stays 0, whatever the limits: the row is a near duplicate"
                facts.append(Fact("weight of an excluded row", 0.0, note))
            if (limited := self._limit_marked(base, table))[0] < base[0]:
                note = "at most that of a row of the largest class, as the row is marked as an outlier"
                facts.append(Fact("weight of a marked row", float(limited[0]), note))
        if self.sizes is not None:
            balance = balanced_weights(read_keys(table, by_class=self.by_class), self.sizes)
            of = "class" if self.by_class else "group"
            fewer = ", except that one of few rows weighs less" if self.by_class else ""
            note = f"every {of} weighs the same in sum{fewer}"
            facts.append(Fact(f"{of} balance", float(balance[0]), note))
        facts.append(Fact("scale", self.scale, "brings the mean weight of the kept rows to 1"))
        trusted = float(self.open(state)(table)[1][0])
        if self.trust:
            facts.append(Fact("trust", trusted, "min(1, p / prior) of the label by held-out classifiers"))
        return facts

    def save(self, state: Path) -> None:
        """Write ``weights.json`` into the state folder."""
        record = asdict(self) | {"sizes": _pairs(self.sizes)}
        if self.limits is not None:
            record["limits"] = {name: _as_json(value) for name, value in vars(self.limits).items()}
        if self.trust:
            record["trust"]["largest"] = _pairs(self.trust.largest)
        (state / STATE).write_text(json.dumps(record), "utf-8")

    @classmethod
    def load(cls, state: Path) -> Scales:
        """Read the file that :meth:`save` wrote."""
        record = read_json(state / STATE)
        trust, sizes = record["trust"], record["sizes"]
        factors = record["factors"]
        found = Factors(
            tuple(factors["columns"]),
            tuple(factors["marks"]),
            factors["drop_outliers"],
            tuple(factors.get("final", ())),
            factors.get("drop_split", False),
        )
        if trust is not None:
            trust = LabelTrust(
                **trust | {"largest": dict(trust["largest"]), "priors": tuple(trust["priors"])}
            )
        sizes = None if sizes is None else dict(sizes)
        limits = record.get("limits")
        if limits is not None:
            by_name = {name: dict(value) for name, value in limits.items() if name != "cap"}
            limits = ClassLimits(**by_name, cap=limits["cap"])
        by_class, marked = record.get("by_class", False), record.get("marked_at_most")
        return cls(sizes, trust, record["scale"], found, limits, by_class, marked)


def read_keys(table: pa.Table, *, by_class: bool) -> Keys:
    """Return the class or the group (``balance_keys``) of each row, shape (n,)."""
    y, group, is_outlier = (table.column(name).to_numpy() for name in COLUMNS)
    return y.astype(np.int64) if by_class else balance_keys(y, group, is_outlier)


def _as_json(value: Any) -> Any:
    return _pairs(value) if isinstance(value, Mapping) else value


def _pairs(counts: Mapping[int, float] | None) -> list[tuple[int, float]] | None:
    """Return a mapping as pairs, since JSON's keys are text."""
    return None if counts is None else sorted(counts.items())
