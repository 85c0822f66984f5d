"""The model ``logistic`` in NumPy: one linear layer, after ``(x - mean) / std`` where it standardises.

Importing this module does not import torch. The arrays have the names and values of the torch model that
:func:`operators.models.building.build` makes of the same description.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from operators.arrays import Float32, Float64, Int64, Labels
from operators.models.spec import ModelSpec

CHUNK = 4096
"""Rows that are predicted at a time."""
RESOLUTION = 2.0**-44
"""Standard deviation, by the mean, up to which a column of float32 values has equal values alone."""
WEIGHT, BIAS, MEAN, STD = "head.weight", "head.bias", "standardize.mean", "standardize.std"


def standard_deviations(mean: Float64, std: Float64, blocks: Sequence[int]) -> Float32:
    """Return the numbers (d,) by which features are divided.

    A column whose values are all equal (:mod:`operators.spread`) has the number 1. Its float64 sums are sums
    of float32 values, so that their rounding errors are below ``RESOLUTION`` of the mean, and the standard
    deviation of any other column of up to 2^40 rows is above.

    Parameters
    ----------
    mean, std : (d,) of the rows.
    blocks : widths of consecutive features that share one std, the root mean square of theirs; none: each
        feature has its own.
    """
    if blocks:
        ends = np.cumsum([0, *blocks])
        shared = [np.sqrt(np.mean(np.square(std[start:stop]))) for start, stop in pairwise(ends.tolist())]
        std = np.repeat(shared, blocks)
    found = np.where(std > RESOLUTION * np.abs(mean), std, 1.0).astype(np.float32)
    found[found == 0] = 1
    return found


@dataclass(frozen=True)
class LinearModel:
    """Softmax regression of C classes on d features."""

    weight: Float32
    """(C, d)"""
    bias: Float32
    """(C,)"""
    mean: Float32 | None = None
    """(d,); None: features are used as they are."""
    std: Float32 | None = None
    """(d,) beside ``mean``."""

    @classmethod
    def of(cls, spec: ModelSpec, arrays: Mapping[str, Float32]) -> LinearModel:
        """Return the model of named arrays. Raises ValueError where they do not fit the description."""
        d, n_classes = spec.n_features, spec.n_classes
        shapes: dict[str, tuple[int, ...]] = {WEIGHT: (n_classes, d), BIAS: (n_classes,)}
        if spec.standardize:
            shapes |= {MEAN: (d,), STD: (d,)}
        found = {name: value.shape for name, value in arrays.items()}
        if spec.model != "logistic" or found != shapes:
            raise ValueError(f"arrays of the shapes {found}, where {shapes} are described")
        return cls(arrays[WEIGHT], arrays[BIAS], arrays.get(MEAN), arrays.get(STD))

    def arrays(self) -> dict[str, Float32]:
        """Return the arrays by their names in the file."""
        named = {WEIGHT: self.weight, BIAS: self.bias, MEAN: self.mean, STD: self.std}
        return {name: np.ascontiguousarray(value) for name, value in named.items() if value is not None}

    @property
    def n_parameters(self) -> int:
        """Number of weights and biases."""
        return self.weight.size + self.bias.size

    def predict(self, X: Float32, y: Int64) -> tuple[Labels, Float32]:
        """Return the predicted class (n,), the smallest of equals, and the cross-entropy (n,) in nats.

        Computed in float64 and rounded at the end: other rows beside a row hardly ever change its bits.

        Parameters
        ----------
        X, y : (n, d) features, (n,) class indices.
        """
        prediction, loss = np.empty(len(y), np.int32), np.empty(len(y), np.float32)
        weight, bias = self.weight.T.astype(np.float64), self.bias.astype(np.float64)
        for start in range(0, len(y), CHUNK):
            rows = slice(start, start + CHUNK)
            z = X[rows].astype(np.float64)
            if self.mean is not None and self.std is not None:
                z = (z - self.mean.astype(np.float64)) / self.std.astype(np.float64)
            logits = z @ weight + bias
            log_p = log_softmax(logits)
            prediction[rows] = logits.argmax(axis=1)
            loss[rows] = -log_p[np.arange(len(log_p)), y[rows]]
        return prediction, loss


def log_softmax(logits: Float64) -> Float64:
    """Return the log probabilities (..., C) of logits (..., C)."""
    shifted: Float64 = logits - logits.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted
