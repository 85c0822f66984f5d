"""Seeded Gaussian random projection, generated piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ROWS = 4096
"""Gradient entries per piece of the matrix. Changing it changes every projected value."""


@dataclass(frozen=True)
class Projection:
    """Map p gradient entries to ``dim`` numbers that keep inner products in expectation.

    The matrix has independent N(0, 1/dim) entries, so E<Rg, Rh> = <g, h> with variance at most
    2 |g|^2 |h|^2 / dim (Johnson & Lindenstrauss 1984; Dasgupta & Gupta 2003, Lemma 2.2). Parameter
    k's piece j is drawn from a generator seeded by (seed, k, j), so it can be made again anywhere
    and the whole (p, dim) matrix exists nowhere. It is always drawn on the CPU: CPU and GPU actors
    of one run must agree on it.

    Parameters
    ----------
    dim : length of a projected gradient.
    seed : non-negative.
    """

    dim: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dim < 1 or self.seed < 0:
            raise ValueError(f"Projection(dim={self.dim}, seed={self.seed}): needs dim >= 1 and seed >= 0")

    def pieces(self, parameter: int, size: int) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Pieces of the matrix of the ``parameter``-th selected parameter, which has ``size`` entries.

        Yields the entries covered and an (entries, dim) float32 matrix, already scaled by 1/sqrt(dim).
        """
        scale = np.float32(1 / np.sqrt(self.dim))
        for number, start in enumerate(range(0, size, ROWS)):
            entries = slice(start, min(start + ROWS, size))
            generator = np.random.default_rng([self.seed, parameter, number])
            shape = (entries.stop - entries.start, self.dim)
            piece = generator.standard_normal(shape, dtype=np.float32)
            piece *= scale
            yield entries, piece
