"""Principal components of vectors, as point maps for the report."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from scipy.sparse.linalg import eigsh, svds

from operators.arrays import Float64
from operators.base import LABEL, ROW_ID, ReportContext
from operators.columns import vectors_to_numpy
from operators.report.sections import PointMap
from operators.spread import mean_and_scale

LOST = 1e-12
"""Shares of the variance below this one are rounding errors."""
EXACT = 500
"""Largest matrix whose eigenvectors are all computed; only two are computed of larger ones."""


def classes_of(sample: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Split a sample of rows by class."""
    labels = sample.column(LABEL).to_numpy()
    for y in np.unique(labels).tolist():
        yield y, sample.filter(pa.array(labels == y))


def vector_maps(context: ReportContext, column: str, title: str, *, scaled: bool = False) -> list[PointMap]:
    """Project the sampled vectors of each class to their first two principal components.

    Parameters
    ----------
    scaled : standardise each component of the vectors over the sample, where they have different units; else
        the one with the largest numbers decides.
    """
    sample = context.sample([column])
    mean, scale = np.zeros(1), np.ones(1)
    if scaled and sample.num_rows:
        mean, scale = mean_and_scale(vectors_to_numpy(sample.column(column)))
    maps = []
    for y, rows in classes_of(sample):
        vectors = (vectors_to_numpy(rows.column(column)).astype(np.float64) - mean) / scale
        maps.append(point_map(title, y, rows, *principal_plane(vectors)))
    return maps


def point_map(title: str, y: int, rows: pa.Table, points: Float64, explained: Float64) -> PointMap:
    """Make a point map whose axes name the share of variance that each explains."""
    axes = (f"component 1 ({explained[0]:.0%} of variance)", f"component 2 ({explained[1]:.0%})")
    return PointMap(title, y, rows.column(ROW_ID).to_numpy(), points, axes)


def principal_plane(X: Float64) -> tuple[Float64, Float64]:
    """Compute the first two principal components of rows (n, d).

    Returns
    -------
    (n, 2) coordinates, whose signs are fixed by :func:`_of_components`, and (2,) shares of the variance;
    zeros for components that do not exist.
    """
    centred = X - X.mean(axis=0)
    n, d = centred.shape
    scale = float((X**2).sum())
    if min(n, d) > EXACT:
        total = float((centred**2).sum())
        left, lengths, _ = svds(centred, k=2, v0=_start(min(n, d)))
        return _of_components(left[:, ::-1] * lengths[::-1], lengths[::-1] ** 2, total, scale)
    if d > n:
        return plane_of_products(centred @ centred.T, scale)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    return _of_components(centred @ vectors[:, ::-1][:, :2], values[::-1], float(values.sum()), scale)


def plane_of_products(products: Float64, scale: float | None = None) -> tuple[Float64, Float64]:
    """Compute the first two principal components of n rows from their (n, n) inner products alone.

    Kernel principal component analysis (Schölkopf, Smola and Müller 1998) with the linear kernel. Returns
    what :func:`principal_plane` returns.

    Parameters
    ----------
    scale : sum of the rows' squared lengths, against which variance may be a rounding error; default: the
        trace of ``products``.
    """
    means = products.mean(axis=0)
    centred = products - means[:, None] - means + means.mean()
    if len(centred) > EXACT:
        values, vectors = eigsh(centred, k=2, which="LA", v0=_start(len(centred)))
    else:
        values, vectors = np.linalg.eigh(centred)
    values, vectors = values[::-1][:2], vectors[:, ::-1][:, :2]
    lengths = np.sqrt(np.maximum(values, 0.0))
    scale = float(np.trace(products)) if scale is None else scale
    return _of_components(vectors * lengths, values, float(np.trace(centred)), scale)


def _start(n: int) -> Float64:
    """Make the start vector of an iterative solver, the same in every run."""
    return np.random.default_rng(0).random(n)


def _of_components(
    components: Float64, values: Float64, total: float, scale: float
) -> tuple[Float64, Float64]:
    """Fill up to two components, leave out rounding errors, and make each one's largest entry positive."""
    points, explained = np.zeros((len(components), 2)), np.zeros(2)
    for k in range(min(2, len(values)) if total > LOST * scale else 0):
        if values[k] > LOST * total:
            column = components[:, k]
            points[:, k] = column * np.sign(column[np.argmax(np.abs(column))])
            explained[k] = values[k] / total
    return points, explained
