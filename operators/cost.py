"""The measured cost of an operator, by which time and memory of a run are estimated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Cost:
    """Measured cost of an operator on rows of 64 features, in shards of 50,000 rows.

    Attributes
    ----------
    small, large : CPU seconds per million rows in a table of 10,000 rows, and in one of 100,000 or more.
    mib : peak memory of the process at 100,000 rows, above what it held before, in MiB; 0 is not measured.
    by_features : whether time and memory grow with the number of features; a network reads its column alone.

    Notes
    -----
    The figures are those of tests/benchmarks/README.md: the table "scale-standard" for the operators of a
    recipe that names none, which a test compares, and the table "scale" for the others.
    """

    SMALL: ClassVar[int] = 10_000
    LARGE: ClassVar[int] = 100_000

    small: float
    large: float
    mib: int = 0
    by_features: bool = True

    def per_million(self, n_rows: int) -> float:
        """Return the CPU seconds per million rows in a table of ``n_rows`` rows: linear between the two."""
        share = min(1.0, max(0.0, (n_rows - self.SMALL) / (self.LARGE - self.SMALL)))
        return self.small + share * (self.large - self.small)
