"""Sums of weights over shards, from which scale, metrics and warning are computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from operators.arrays import Float64
from operators.base import ShardReader
from operators.weights.row_weights import Scales

PRODUCT = "product"
LOW = 0.1
"""Effective share of the kept rows below which weights are called very unequal."""


@dataclass
class Totals:
    """Sums over some shards. ``sums`` has the sum of weights and that of their squares for each factor."""

    kept: int = 0
    doubted: int = 0
    largest: float = 0.0
    sums: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, other: Totals) -> None:
        """Add the sums of another shard."""
        self.kept += other.kept
        self.doubted += other.doubted
        self.largest = max(self.largest, other.largest)
        for name, (weight, square) in other.sums.items():
            before = self.sums.get(name, (0.0, 0.0))
            self.sums[name] = before[0] + weight, before[1] + square

    def effective(self, name: str = PRODUCT) -> float:
        """Return Kish's effective sample size (sum w)^2 / sum w^2; 0 if nothing weighs."""
        weight, square = self.sums.get(name, (0.0, 0.0))
        return weight**2 / square if square else 0.0

    @property
    def scale(self) -> float:
        """Factor that makes the mean weight of the kept rows 1."""
        weight = self.sums.get(PRODUCT, (0.0, 0.0))[0]
        return self.kept / weight if weight else 1.0


def sum_shard(reader: ShardReader, columns: Sequence[str], scales: Scales, state: Path, shard: int) -> Totals:
    """Add up one shard: each factor by itself as well as the product, all over kept rows."""
    table = reader.read(shard, columns)
    weights, trusted = scales.open(state)(table)
    kept = scales.factors.kept(table)
    found = {name: table.column(name).to_numpy().astype(np.float64)[kept] for name in scales.factors.columns}
    return Totals(
        kept=int(kept.sum()),
        doubted=int(np.count_nonzero(trusted < 1)),
        largest=float(weights.max(initial=0.0)),
        sums={PRODUCT: _sums(weights), **{name: _sums(own) for name, own in found.items()}},
    )


def sum_totals(parts: Iterable[Totals]) -> Totals:
    """Add up the sums of all shards, in the given order."""
    whole = Totals()
    for part in parts:
        whole.add(part)
    return whole


def rests_on_few_rows(effective: float, kept: int, by_classes: float) -> bool:
    """Return whether weights with an effective sample size of ``effective`` of ``kept`` rows are too unequal.

    They are if it is below a tenth of the rows and below half of the effective sample size under class
    balance alone (``by_classes``; 0 where classes are not balanced), which a rare class makes small already.
    """
    return effective < LOW * kept and (not by_classes or effective < 0.5 * by_classes)


def warning(whole: Totals, by_classes: float = 0.0) -> str:
    """Return a warning if the weights rest on few rows, else an empty text.

    ``by_classes`` is the effective sample size of class balance alone, 0 where classes are not balanced.
    """
    ess = whole.effective()
    if not rests_on_few_rows(ess, whole.kept, by_classes):
        return ""
    text = (
        f"operators.weights: the weights are worth {ess:,.0f} of {whole.kept:,} rows (effective sample "
        "size), so that models trained with them rest on few rows."
    )
    factors = [name for name in whole.sums if name != PRODUCT]
    if not factors:
        return f"{text} Set operators.weights.method to uniform, or check the smallest groups."
    worst = min(factors, key=whole.effective)
    name = worst.removesuffix("_weight")
    return (
        f"{text} {name} alone is worth {whole.effective(worst):,.0f}: make its weights more equal, or leave "
        "it out with operators.weights.factors."
    )


def few_rows_warnings(metrics: Mapping[str, float]) -> tuple[str, ...]:
    """Return what a run and its version say of weights that rest on few rows, from the metrics of ``fit``."""
    ess, share = metrics.get("effective_sample_size", 0.0), metrics.get("effective_share", 0.0)
    kept = round(ess / share) if share else 0
    if not kept or not rests_on_few_rows(ess, kept, metrics.get("class_effective_share", 0.0) * kept):
        return ()
    return (
        f"the weights are worth {share:.1%} of the rows, {ess:,.0f} of {kept:,} (effective sample size): "
        "models that are trained with them rest on few rows. `max_mean_loss: 0.02` of a training takes "
        "milder ones; with `cues`, `rowsieve cues OUTPUT` lists the accuracies and the effective share of "
        "each strength.",
    )


def _sums(weights: Float64) -> tuple[float, float]:
    return float(weights.sum()), float(weights @ weights)
