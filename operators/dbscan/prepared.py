"""What the search needs to know of rows, in whatever form they are."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from operators.dbscan.distances import Float64, Index, Mask, Matrix, Metric
from operators.dbscan.operand import Operand


class Prepared(Protocol):
    """Rows prepared for one metric; see :class:`operators.dbscan.distances.Points` for the names."""

    n: int
    metric: Metric

    @property
    def depth(self) -> int: ...  # noqa: D102
    @property
    def half(self) -> Matrix: ...  # noqa: D102
    @property
    def size(self) -> Matrix: ...  # noqa: D102
    def limit(self, eps: float) -> float: ...  # noqa: D102
    def operand(self, dtype: Any) -> tuple[Operand, Matrix]: ...  # noqa: D102
    def coordinates(self, rows: Index, random: np.random.Generator) -> Float64: ...  # noqa: D102
    def within(self, rows: Index, cols: Index, eps: float) -> Mask: ...  # noqa: D102
    def pairs_within(self, i: Index, j: Index, eps: Float64) -> Mask: ...  # noqa: D102
