"""Limits that keep row weights safe: a capped ratio to class balance and a least effective sample size
per class.

Factors are relative to class balance: within each class of the fitted sample their mean is 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from operators.arrays import Float64, Floats, Integers

MAX_FACTOR = 20.0
"""Largest factor of a row relative to the others of its class."""


@dataclass(frozen=True)
class Limits:
    """Normalisation and shrinkage per class, measured on a sample and applied to any row.

    Attributes
    ----------
    mean
        Mean of the raw factor per class after the cap, shape (C,).
    trust
        Blend lambda per class in [0, 1]: 1 keeps the factors, 0 is plain class balance, shape (C,).
    cap
        Largest factor.

    """

    mean: Floats
    trust: Floats
    cap: float

    @classmethod
    def of_class_balance(cls, n_classes: int, cap: float) -> Limits:
        """Return the limits under which every factor is 1."""
        return cls(np.ones(n_classes), np.zeros(n_classes), cap)

    def shrinkage(self) -> float:
        """Return 1 - trust of the class that is shrunk most, in [0, 1).

        Classes without trust are left out: they have no factors that could be shrunk.
        """
        trusted = self.trust[self.trust > 0]
        return float(1.0 - trusted.min()) if len(trusted) else 0.0

    def apply(self, factor: Floats, y: Integers) -> Float64:
        """Return factors, shape (n,), finite, in [0, cap], with class means near 1."""
        capped = np.minimum(np.nan_to_num(factor, nan=1.0, posinf=self.cap, neginf=0.0), self.cap)
        scaled = np.minimum(np.maximum(capped, 0.0) / self.mean[y], self.cap)
        trust = self.trust[y]
        return np.asarray(1.0 - trust + trust * scaled)


def fit_limits(factor: Floats, y: Integers, n_classes: int, *, cap: float, min_effective: float) -> Limits:
    """Choose the largest blend per class that keeps the effective sample size.

    Parameters
    ----------
    factor
        Raw factors of the sample, shape (n,).
    y
        Labels, shape (n,).
    cap
        Largest factor, at least 1.
    min_effective
        Least effective sample size of a class as a share of its rows, in (0, 1].

    Notes
    -----
    The effective share of weights 1 - t + t f with mean 1 is 1 / (1 + t^2 var f). It is at least s exactly if
    t <= sqrt((1 / s - 1) / var f).

    """
    capped = np.clip(np.nan_to_num(factor, nan=1.0, posinf=cap, neginf=0.0), 0.0, cap)
    mean, trust = np.ones(n_classes), np.zeros(n_classes)
    for c in np.unique(y):
        f = capped[y == c]
        if f.mean() <= 0:
            continue
        mean[c], trust[c] = f.mean(), 1.0
        variance = float(np.minimum(f / f.mean(), cap).var())
        if variance > 0:
            trust[c] = min(1.0, float(np.sqrt((1.0 / min_effective - 1.0) / variance)))
    return Limits(mean, trust, cap)


def effective_share(w: Floats, y: Integers, n_classes: int) -> Float64:
    """Return Kish's (sum w)^2 / (n sum w^2) per class, shape (C,); 1 for a class without rows."""
    count = np.bincount(y, minlength=n_classes)
    first, second = np.bincount(y, w, minlength=n_classes), np.bincount(y, w * w, minlength=n_classes)
    return np.asarray(np.where(second > 0, first**2 / np.maximum(count * second, 1e-300), 1.0))
