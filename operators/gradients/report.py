"""The operator's part of the report: the gradients of each class, projected to a plane."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from operators.arrays import Float64
from operators.base import FACTORS, GRADIENT, ReportContext
from operators.columns import vectors_to_numpy
from operators.factored import FactoredGradients, unpack
from operators.factored.packed_rows import read_parts
from operators.planes import LOST, classes_of, plane_of_products, point_map, principal_plane
from operators.report import PointMap, ReportSection

TITLE = "Gradient space"


def gradient_section(context: ReportContext, column: str) -> ReportSection:
    """Make the maps of gradient space; ``column`` holds flat or factored gradients."""
    maps = [_gradient_map(context, column, y, rows) for y, rows in classes_of(context.sample([column]))]
    return ReportSection(TITLE, point_maps=maps)


def _gradient_map(context: ReportContext, column: str, y: int, rows: pa.Table) -> PointMap:
    """Project a class's gradients, centred by the class mean and normalised.

    Small groups are sampled more densely than large ones, so the mean weighs each row by the number of rows
    that it represents.
    """
    weights = rows.column("represents").to_numpy()
    if column == FACTORS:
        factors = unpack(vectors_to_numpy(rows.column(FACTORS)), read_parts(context.state))
        return point_map(TITLE, y, rows, *plane_of_products(centred_cosines(factors, weights)))
    gradients = vectors_to_numpy(rows.column(GRADIENT)).astype(np.float64)
    gradients -= np.average(gradients, axis=0, weights=weights)
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    gradients /= np.where(norms > 0, norms, 1)
    return point_map(TITLE, y, rows, *principal_plane(gradients))


def centred_cosines(gradients: FactoredGradients, weights: Float64) -> Float64:
    """Compute inner products of factored gradients that are centred by their mean and normalised.

    Parameters
    ----------
    weights : (n,) weights of the mean, with a positive sum.

    Returns
    -------
    (n, n) centred cosines; zero for rows that equal the mean, as they have no direction.
    """
    products = gradients.products(gradients)
    toward = np.average(products, axis=1, weights=weights)
    products -= toward[:, None] + toward - np.average(toward, weights=weights)
    squares = np.diagonal(products).copy()
    squares[squares <= LOST * squares.max(initial=0.0)] = np.inf
    lengths = np.sqrt(squares)
    products /= lengths[:, None] * lengths
    return products
