"""The timed cases, and estimates of a peer's time and memory before it is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from tests.benchmarks.dbscan import rows
from tests.benchmarks.dbscan.peers import PEERS, Setting

Regime: TypeAlias = Literal["tight", "mid", "loose", "noise30", "noise", "raw"]

MIN_SAMPLES = 10
HALF = 0.5  # share of all pairs within eps, as in the best cells of the paper's grid
DIMENSIONS = (16, 64, 512)
SMALL = (5_000, 20_000)
LARGE = (50_000, 100_000)
HUGE = 1_000_000
SKIPPING = ("tight", "mid", "loose", "raw")  # where ours skips most pairs
OUR_POWER = 1.3  # of n that its seconds grow with there


@dataclass(frozen=True)
class Case:
    """One row of the table.

    ``regime`` is the spread within groups ("tight", "mid", "loose"), with half of all pairs within eps; or
    "noise30", tight with an eps too small for 30 % of the rows; "noise", a sphere on which nothing is near;
    "raw", tight, but neither centred nor normalised.
    """

    n: int
    d: int
    regime: Regime

    @property
    def key(self) -> str:
        return f"{self.n}x{self.d}-{self.regime}"

    def build(self) -> tuple[Any, Setting]:
        """The rows and what to cluster them with."""
        if self.regime == "noise":
            X = rows.sphere(self.n, self.d)
            return X, Setting(rows.empty_radius(X), MIN_SAMPLES)
        raw = self.regime == "raw"
        spread = self.regime if self.regime in rows.SPREAD else "tight"
        X = rows.gradient_rows(self.n, self.d, spread, raw=raw)
        if self.regime == "noise30":
            return X, Setting(rows.noise_radius(X, 0.3, MIN_SAMPLES), MIN_SAMPLES)
        return X, Setting(rows.radius(X, HALF), MIN_SAMPLES, unit=not raw)


def cases(large: bool) -> list[Case]:
    """All rows, smaller ones first: what they take tells what larger ones would."""
    sizes = SMALL + (LARGE if large else ())
    found = [Case(n, d, regime) for n in sizes for d in DIMENSIONS for regime in get_args(Regime)]
    if large:
        found += [Case(HUGE, d, regime) for d in (16, 64) for regime in get_args(Regime)]
        found.append(Case(HUGE, 512, "tight"))
    return found


def expected_memory(name: str, case: Case, near: float) -> float:
    """Bytes that a peer would hold for the pairs."""
    peer = PEERS[name]
    return case.n**2 * (peer.bytes_per_pair + near * peer.bytes_per_neighbour)


def expected_seconds(name: str, case: Case, measured: Mapping[str, Any]) -> float | None:
    """CPU seconds by the next smaller n of the same kind that was measured; None if there is none."""
    power = OUR_POWER if name == "ours" and case.regime in SKIPPING else PEERS[name].power
    for n in sorted((*SMALL, *LARGE), reverse=True):
        found = measured.get(Case(n, case.d, case.regime).key, {}).get("peers", {}).get(name, {})
        seconds = found.get("median", found.get("estimate"))
        if n < case.n and seconds is not None:
            return float(seconds * (case.n / n) ** power)
    return None
