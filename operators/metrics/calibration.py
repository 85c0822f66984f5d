"""Reliability diagram and expected calibration error of predicted probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64


@dataclass(frozen=True)
class Calibration:
    """Reliability diagram: rows in bins of equal width by the probability of their predicted class."""

    edges: Float64
    """(bins + 1,) from 0 to 1."""
    rows: npt.NDArray[np.int64]
    """(bins,) rows in each."""
    confidence: Float64
    """(bins,) mean probability of the predicted class; NaN where a bin has no rows."""
    accuracy: Float64
    """(bins,) share of right predictions; NaN where a bin has no rows."""

    @property
    def ece(self) -> float:
        """Expected calibration error: mean |accuracy - confidence| over rows; NaN without rows."""
        if not self.rows.sum():
            return float("nan")
        gaps = np.abs(self.accuracy - self.confidence)
        return float(np.nansum(gaps * self.rows) / self.rows.sum())


def calibration(probabilities: npt.ArrayLike, y: npt.ArrayLike, bins: int = 15) -> Calibration:
    """Compute the reliability diagram (Guo, Pleiss, Sun & Weinberger 2017, section 2).

    Parameters
    ----------
    probabilities : (n, C), rows sum to 1.
    y : (n,) class indices.
    bins : of equal width; a value on an edge falls into the bin above it, 1 into the last.

    Raises
    ------
    ValueError : shapes differ, or bins < 1.
    """
    p, y = np.asarray(probabilities, np.float64), np.asarray(y)
    if p.ndim != 2 or y.shape != (len(p),) or bins < 1:
        raise ValueError(
            f"calibration: probabilities have shape {p.shape}, y has shape {y.shape}, bins is {bins}; give "
            "(n, C), (n,) and at least 1 bin"
        )
    top = p.max(axis=1) if len(p) else np.zeros(0)
    right = p.argmax(axis=1) == y if len(p) else np.zeros(0, bool)
    place = (top * bins).astype(np.int64).clip(0, bins - 1)
    rows = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        confidence, accuracy = (np.bincount(place, v, minlength=bins) / rows for v in (top, right))
    return Calibration(np.linspace(0, 1, bins + 1), rows, confidence, accuracy)
