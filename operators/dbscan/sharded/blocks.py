"""Cutting a class into blocks: its mean, its frame, its prepared rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from operators.dbscan.distances import SPAN, Float64, Matrix, power_of_two_above, span_sum
from operators.dbscan.distances import blocks as pieces_of
from operators.dbscan.sharded.layout import Layout
from operators.dbscan.sharded.points import prepare

Source: TypeAlias = Callable[[int, int], Matrix]
"""(start, stop) -> rows start .. stop - 1 of the class, C order, always of one dtype. Picklable."""


def spans(n: int) -> range:
    """Fixed spans of rows whose sums make the mean, whatever the blocks."""
    return range(-(-n // SPAN))


def sum_span(source: Source, n: int, span: int) -> tuple[Float64, bool]:
    """Sum of a span's rows, less the first row of all each; and whether all of them equal that row."""
    first = source(0, 1)[0]
    X = source(span * SPAN, min((span + 1) * SPAN, n))
    return span_sum(X, first.astype(np.float64)), bool((first == X).all())


def mean_of(source: Source, n: int, sums: list[Float64]) -> Float64:
    """The mean row, to the bit that of ``distances.mean_row``."""
    return np.asarray(source(0, 1)[0].astype(np.float64) + sum(sums) / n)


def largest_entry(source: Source, n: int, centre: Float64, span: int) -> float:
    """Largest absolute entry of a span's rows less ``centre``."""
    X = source(span * SPAN, min((span + 1) * SPAN, n))
    return max(float(np.abs(X[rows] - centre).max()) for rows in pieces_of(len(X)))


def unit_of(largest: float, n_features: int) -> float:
    """What Euclidean rows are divided by, as in ``distances.Points``."""
    return power_of_two_above(largest) * power_of_two_above(np.sqrt(n_features))


def write_block(layout: Layout, source: Source, block: int) -> None:
    """Store a block's rows, raw and prepared."""
    start = block * layout.block_rows
    raw = source(start, min(start + layout.block_rows, layout.n))
    vectors, half = prepare(raw, layout.frame)
    layout.save("raw", block, raw)
    layout.save("vectors", block, vectors)
    layout.save("half", block, half)
