"""Random projections of gradients, drawn from a seed, and the error that they cause in cosines.

Needs NumPy alone, so that planning can import it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from operators.arrays import Float32, Float64

Method: TypeAlias = Literal["gaussian", "tensor_sketch"]
ROWS = 4096
"""Gradient entries per piece of the matrix. Changing it changes every projected value."""
SKETCH = 2**32 - 1
"""Third number in the seed of a count sketch. A seed of the Gaussian matrix has the number of a piece there,
which is smaller, so that no seed is used twice."""


@dataclass(frozen=True)
class Projection:
    """Map p gradient entries to ``dim`` numbers that keep inner products in expectation.

    ``gaussian``: a matrix of independent N(0, 1/dim) entries, so E<Rg, Rh> = <g, h> with variance at most
    2 |g|^2 |h|^2 / dim (Johnson & Lindenstrauss 1984; Dasgupta & Gupta 2003, Lemma 2.2). Parameter
    k's piece j is drawn from a generator seeded by (seed, k, j), so it can be made again anywhere
    and the whole (p, dim) matrix exists nowhere.

    ``tensor_sketch``: a count sketch of each parameter's gradient. That of a linear layer's weight, the
    product of error and activation, is the circular convolution of a sketch of either (Pham & Pagh 2013,
    "Fast and scalable polynomial kernels via explicit feature maps", section 3), so it costs
    O(o + i + dim log dim) a row instead of O(o i dim). Also unbiased, with variance at most
    11 |g|^2 |h|^2 / dim (Avron, Nguyen & Woodruff 2014, "Subspace embeddings for the polynomial kernel");
    on a head of 100 classes its errors equal the Gaussian's, on small layers they are larger.

    Everything random is drawn on the CPU: CPU and GPU actors of one run must agree on it.

    Parameters
    ----------
    dim : length of a projected gradient.
    seed : non-negative.
    method : as above.
    """

    dim: int
    seed: int = 0
    method: Method = "gaussian"

    def __post_init__(self) -> None:
        if self.dim < 1 or self.seed < 0:
            raise ValueError(f"Projection(dim={self.dim}, seed={self.seed}): needs dim >= 1 and seed >= 0")

    def pieces(self, parameter: int, size: int) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Yield pieces of the Gaussian matrix of the ``parameter``-th selected parameter, of ``size``
        entries.

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

    def buckets(
        self, parameter: int, factor: int, size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Count sketch of a vector of ``size`` entries: each entry's place (size,) in 0 .. dim - 1, and sign.

        ``factor`` 0 is of a weight's errors or of a whole gradient, 1 of a weight's activations.
        """
        generator = np.random.default_rng([self.seed, parameter, SKETCH, factor])
        places = generator.integers(0, self.dim, size)
        return places, generator.choice(np.array([-1, 1], np.float32), size)


@dataclass(frozen=True)
class Distortion:
    """Absolute error of the centred cosine over pairs of rows of one class: mean and 99 % quantile.

    Both are 0 if there are no pairs.
    """

    mean: float
    p99: float
    pairs: int


def cosine_distortion(flat: Float32, projected: Float32, y: NDArray[np.integer]) -> Distortion:
    """Compare gradients (n, p) with what a projection made of them (n, dim), labels y (n,).

    All pairs of rows of one class, centred by the sample's class mean before and after, as GRASP compares
    them. Rows at their class mean have no direction and count with cosine 0.
    """
    errors = []
    for label in np.unique(y):
        before, after = (_cosines(part[y == label]) for part in (flat, projected))
        errors.append(np.abs(after - before)[np.triu_indices(len(before), k=1)])
    every = np.concatenate(errors)
    if not len(every):
        return Distortion(0.0, 0.0, 0)
    return Distortion(float(every.mean()), float(np.quantile(every, 0.99)), len(every))


def _cosines(rows: Float32) -> Float64:
    centred = rows.astype(np.float64)
    centred -= centred.mean(axis=0)
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    centred /= np.where(norms > 0, norms, 1)
    product: Float64 = centred @ centred.T
    return product
