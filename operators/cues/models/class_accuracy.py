"""Accuracy of predictions within the classes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64, Floats, Integers


def class_mean(values: Floats, y: Integers, mask: npt.NDArray[np.bool_], n_classes: int) -> float:
    """Return the mean over the classes of the mean of ``values`` in the masked rows; 0 if there are none."""
    count = np.bincount(y[mask], minlength=n_classes)
    total = np.bincount(y[mask], values[mask], minlength=n_classes)
    return float((total[count > 0] / count[count > 0]).mean()) if count.any() else 0.0


def balanced_loss(before: Floats, after: Floats, y: Integers) -> float:
    """Return by how much the balanced accuracy of predictions falls from ``before`` to ``after``, (n, C)."""
    occurs = np.bincount(y, minlength=before.shape[1]) > 0
    return float((_recalls(before, y) - _recalls(after, y))[occurs].mean())


def balanced_error(p: Floats, y: Integers) -> float:
    """Return the mean over the classes that occur of the error of predictions ``p``, shape (n, C)."""
    return float(1.0 - _recalls(p, y)[np.bincount(y, minlength=p.shape[1]) > 0].mean())


def worst_recall(p: Floats, y: Integers) -> float:
    """Return the accuracy of the worst class that occurs under probabilities ``p``, shape (n, C)."""
    return float(_recalls(p, y)[np.bincount(y, minlength=p.shape[1]) > 0].min())


def _recalls(p: Floats, y: Integers) -> Float64:
    """Return the share of each class's rows that is predicted right, shape (C,); 0 without rows."""
    C = p.shape[1]
    right = np.bincount(y, p.argmax(axis=1) == y, minlength=C)
    return np.asarray(right / np.maximum(np.bincount(y, minlength=C), 1))
