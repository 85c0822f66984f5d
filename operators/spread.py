"""Mean and scale of columns, and the rule by which a column is constant: all of its values are equal.

A rule by the standard deviation would depend on the unit of a column (below 1e-12, say), on the type in which
it is computed (a column of .1 has a float32 deviation of 4e-6), or on the mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64


def usable_scale(scale: Float64, low: npt.ArrayLike, high: npt.ArrayLike, constant: float = 1.0) -> Float64:
    """Return scales (d,) by which columns can be divided.

    Parameters
    ----------
    scale : (d,) standard deviations.
    low, high : (d,) least and largest value of each column.
    constant : scale of a column of equal values, and of one whose deviation is 0 in float64.
    """
    return np.where((np.asarray(high) > np.asarray(low)) & (scale > 0), scale, constant)


def mean_and_scale(rows: npt.NDArray[Any], weight: Float64 | None = None) -> tuple[Float64, Float64]:
    """Return mean and standard deviation (d,), in float64, of the columns of ``rows`` (n, d), n >= 1.

    Parameters
    ----------
    rows : numbers of any type.
    weight : (n,) weights of the rows, with a positive sum. By default all rows count alike.

    Returns
    -------
    mean, scale : a column whose values are all equal has the scale 1.

    Notes
    -----
    Deviations are squared in units of a power of two near the largest one: no unit of a column makes squares
    overflow or vanish, and no digit differs from that of the plain formula.
    """
    rows = rows.astype(np.float64)
    low, high = rows.min(axis=0), rows.max(axis=0)
    mean = np.average(rows, axis=0, weights=weight)
    rows -= mean
    exponent = np.frexp(np.abs(rows).max(axis=0))[1]
    np.ldexp(rows, -exponent, out=rows)
    variance = np.average(np.square(rows, out=rows), axis=0, weights=weight)
    return mean, usable_scale(np.ldexp(np.sqrt(variance), exponent), low, high)
