"""Explicit features phi of a kernel, computed block by block, with the same bits wherever a row is computed.

A split over shards must equal the split in memory, so nothing may depend on how rows are divided into shards:

- A matrix product may round a row differently at another place in the block. So a row is computed at the
  place ``row_id % BLOCK`` of a block of fixed shape, whoever computes it and whatever its neighbours are.
- Sums depend on their order. So features are rounded to multiples of ``FeatureMap.step``, about float32's own
  rounding; float64 adds up hundreds of millions of those without an error, hence in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from operators.arrays import Float32, Float64, Int64
from operators.distances import evenly_spaced, median_gamma, square_distances
from operators.spread import mean_and_scale

Kernel: TypeAlias = Literal["linear", "rbf"]

BLOCK = 512
"""Rows computed at once. Another number may give other last bits."""
STEP = 2.0**-23
"""Features of the RBF kernel are multiples of it; those of the linear kernel of a power of two times it."""
MIN_EIGENVALUE_SHARE = 1e-6
"""Eigenvalues of the landmarks' kernel below this share of the largest are rounding errors of float32."""
TINY = float(np.finfo(np.float32).tiny)
"""A column with a smaller standard deviation keeps its unit: rows are standardised in float32."""
MIN_SHARE, MAX_SHARE = 1e-3, 0.999
"""A mean kernel value of two rows outside of these limits means that the kernel is degenerate."""


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """phi(x) for one kernel, made from a sample by :func:`make_map`.

    Attributes
    ----------
    mean, scale : (d,) float64: a row is standardised to (x - mean) / scale first.
    gamma : of exp(-gamma |z - z'|^2) on standardised rows; 0 for the linear kernel, whose phi(z) is z.
    landmarks : (q, d) float32, standardised; (0, d) for the linear kernel.
    whiten : (q, r) float32, the inverse square root of the landmarks' kernel matrix.
    step : features are multiples of it.
    """

    mean: Float64
    scale: Float64
    gamma: float
    landmarks: Float32
    whiten: Float32
    step: float

    @property
    def width(self) -> int:
        """Number of entries of phi(x)."""
        return self.whiten.shape[1] if self.gamma else len(self.mean)

    def features(self, X: npt.ArrayLike, row_ids: Int64 | None = None) -> Float32:
        """Compute phi (n, width), float32, of the rows of X (n, d).

        ``row_ids`` (n,) must ascend; the default is 0 to n - 1. Call it within ``limit_threads(1)``,
        because another number of threads may round differently.
        """
        X = np.asarray(X)
        found = np.empty((len(X), self.width), np.float32)
        compute = _Nystrom(self) if self.gamma else _Linear(self)
        z = compute.rows
        # Rows in float32 are centred in float32, which saves a conversion.
        mean = self.mean.astype(np.float32 if X.dtype == np.float32 else np.float64)
        inverse = (1 / self.scale).astype(np.float32)
        centred = np.empty((BLOCK, len(mean)), np.float32)
        for rows, places in blocks(np.arange(len(X)) if row_ids is None else row_ids):
            some = centred[: rows.stop - rows.start]
            np.subtract(X[rows], mean, out=some, casting="same_kind")
            z[places] = np.multiply(some, inverse, out=some)
            np.multiply(compute()[places], np.float32(self.step), out=found[rows])
        return found

    def save(self, path: Path) -> None:
        """Write it as one npz file."""
        np.savez(path, **self.__dict__)

    @classmethod
    def load(cls, path: Path) -> FeatureMap:
        """Read what :meth:`save` wrote."""
        with np.load(path) as found:
            values: dict[str, Any] = {k: float(v) if v.ndim == 0 else v for k, v in found.items()}
        return cls(**values)


class _Linear:
    """phi(z) = z of the rows in ``self.rows``, in multiples of the step."""

    def __init__(self, of: FeatureMap) -> None:
        self.rows = aligned((BLOCK, of.width), np.float32)
        self.rows[:] = 0
        self._per_step = np.float32(1 / of.step)

    def __call__(self) -> Float32:
        found: Float32 = np.rint(self.rows * self._per_step)
        return found


class _Nystrom:
    """phi(z) = k(z, landmarks) V L^(-1/2) for K = V L V', in multiples of the step.

    Its buffers have the size of one block and stay in cache.

    Williams and Seeger (2001), and scikit-learn's ``Nystroem``, multiply by K^(-1/2) = V L^(-1/2) V'. Without
    the last rotation by V' all inner products, hence distances and clusters, are the same, and a column is
    left out with each eigenvalue that is left out.
    """

    def __init__(self, of: FeatureMap) -> None:
        sides = 2 * of.gamma * of.landmarks
        lengths = -of.gamma * np.einsum("ij,ij->i", of.landmarks, of.landmarks, dtype=np.float64)
        # One product gives the whole exponent: [z, |z|^2, 1] . [2 gamma l, -gamma, -gamma |l|^2].
        ends = np.full((len(sides), 1), -of.gamma)
        self._right = np.ascontiguousarray(np.hstack([sides, ends, lengths[:, None]]).T, np.float32)
        self._left = aligned((BLOCK, len(self._right)), np.float32)
        self._left[:, :-1], self._left[:, -1] = 0, 1
        self.rows = self._left[:, :-2]
        self._kernel = aligned((BLOCK, len(sides)), np.float32)
        self._out: Float32 = aligned((BLOCK, of.width), np.float32)
        self._whiten = of.whiten * np.float32(1 / of.step)  # 1 / step is a power of two: nothing is rounded

    def __call__(self) -> Float32:
        np.einsum("ij,ij->i", self.rows, self.rows, out=self._left[:, -2])
        np.matmul(self._left, self._right, out=self._kernel)
        np.exp(self._kernel, out=self._kernel)
        np.matmul(self._kernel, self._whiten, out=self._out)
        np.rint(self._out, out=self._out)
        return self._out


def blocks(row_ids: Int64) -> Iterator[tuple[slice, Any]]:
    """Yield the rows that share a block, as a slice of ``row_ids``, and their places in the block.

    ``row_ids`` (n,) must ascend strictly.
    """
    numbers = row_ids // BLOCK
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(row_ids)]
    for start, stop in pairwise(cuts):
        places = row_ids[start:stop] % BLOCK
        if len(places) and places[-1] - places[0] == len(places) - 1:
            yield slice(start, stop), slice(int(places[0]), int(places[-1]) + 1)
        elif len(places):
            yield slice(start, stop), places


def aligned(shape: tuple[int, int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Allocate an array that starts at a cache line: vectorised loops may round differently elsewhere."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


def make_map(
    sample: npt.ArrayLike,
    kernel: Kernel,
    gamma: float | None = None,
    landmarks: npt.ArrayLike | None = None,
    standardize: bool = True,
) -> FeatureMap:
    """Make the feature map of a kernel from a sample.

    Parameters
    ----------
    sample : (s, d) rows, finite: mean, scale and gamma are taken from them.
    kernel : "linear", <z, z'>, or "rbf", exp(-gamma |z - z'|^2), of standardised rows z.
    gamma : default 1 / median |z - z'|^2 over pairs of the sample.
    landmarks : (q, d) rows as they are, before standardising; only for "rbf", which needs them.
    standardize : False leaves rows as they are.

    Raises
    ------
    ValueError
        The kernel is degenerate: all rows are alike to it, or no two are.
    """
    check_kernel(kernel)
    rows = np.asarray(sample, np.float64)
    mean, scale = centre_and_scale(rows, standardize)
    z = ((rows - mean) / scale).astype(np.float32)
    none, nothing = np.empty((0, rows.shape[1]), np.float32), np.empty((0, 0), np.float32)
    if kernel == "linear":
        largest = float(np.abs(z).max(initial=0))
        if not np.ptp(z, axis=0).any():
            raise ValueError(
                "the linear kernel is degenerate: all rows of the sample are the same, so every split has an "
                "MMD of 0. Check the features, or split at random."
            )
        return FeatureMap(mean, scale, 0.0, none, nothing, STEP * 2.0 ** np.ceil(np.log2(largest)))
    if landmarks is None:
        raise ValueError(
            "the rbf kernel has explicit features only by landmarks: set landmarks, such as 500."
        )
    gamma = check_gamma(z, gamma)
    marks = ((np.asarray(landmarks, np.float64) - mean) / scale).astype(np.float32)
    values, vectors = np.linalg.eigh(np.exp(-gamma * square_distances(marks)))
    kept = values > MIN_EIGENVALUE_SHARE * values[-1]
    whiten = (vectors[:, kept] / np.sqrt(values[kept])).astype(np.float32)
    return FeatureMap(mean, scale, gamma, marks, whiten, STEP)


def centre_and_scale(rows: Float64, standardize: bool = True) -> tuple[Float64, Float64]:
    """Return by which mean and scale (d,) the rows (s, d) are standardised; 0 and 1 where they are not."""
    if not standardize:
        return np.zeros(rows.shape[1]), np.ones(rows.shape[1])
    mean, scale = mean_and_scale(rows)
    scale[scale < TINY] = 1.0  # not constant, but float32 holds no quotient by such a scale
    return mean, scale


def check_kernel(kernel: str) -> None:
    """Raise ValueError for a kernel that does not exist."""
    if kernel not in ("linear", "rbf"):
        raise ValueError(f"kernel is {kernel!r}: there are 'linear' and 'rbf'.")


def check_gamma(z: npt.NDArray[Any], gamma: float | None) -> float:
    """Return gamma, by default :func:`operators.distances.median_gamma` of evenly spaced rows of z (s, d).

    Raises
    ------
    ValueError
        The mean kernel value of two of these rows is below .001 or above .999.
    """
    squares = square_distances(evenly_spaced(z))
    distances = squares[np.triu_indices(len(squares), 1)]
    suggested = median_gamma(squares)
    chosen = suggested if gamma is None else float(gamma)
    value = float(np.exp(-chosen * distances).mean()) if len(distances) else 1.0
    if MIN_SHARE <= value <= MAX_SHARE:
        return chosen
    what = "it takes every row for unlike every other, and any split is as good as a random one"
    if value > MAX_SHARE:
        what = "it takes all rows for alike"
    fix = "Check the features, or set kernel to linear"
    if not distances.any():
        fix = "Check the features: all rows of the sample are the same"
    if gamma is not None and distances.any():
        fix = f"Leave gamma out (the median heuristic gives {suggested:.3g})"
    raise ValueError(
        f"the rbf kernel with gamma = {chosen:.3g} is degenerate: the mean kernel value of two rows is "
        f"{value:.2g}, so {what}. It must lie between {MIN_SHARE} and {MAX_SHARE}. {fix}."
    )
