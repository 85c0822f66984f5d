"""Rows to time on: per-sample gradients of one class, as group inference sees them, and noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

SPREAD = {"tight": 0.55, "mid": 1.0, "loose": 1.6}
MINORITY = 0.05
OUTLIERS = 0.02


def gradient_rows(n: int, d: int, regime: str, seed: int = 0) -> Any:
    """(n, d + 1) float32 unit rows: gradients (p - y)[x, 1] of one class of a logistic probe, centred.

    The probe leans on a spurious direction, which 5 % of rows contradict; of 2 % outliers half have
    flipped labels, half wild features. ``regime`` is the spread within groups; "noise" is a uniform
    sphere.
    """
    rng = np.random.default_rng(seed)
    if regime == "noise":
        return _unit(rng.normal(size=(n, d))).astype(np.float32)
    total = 2 * n + n // 10 + 100
    y = np.arange(total) % 2
    cue = np.where(rng.random(total) < MINORITY, 1 - y, y)
    true, spurious = _unit(rng.normal(size=(2, d)))
    noise = SPREAD[regime] * 2 / np.sqrt(d) * rng.normal(size=(total, d))
    X = np.outer(2 * y - 1, true) + 2 * np.outer(2 * cue - 1, spurious) + noise
    bad = rng.random(total) < OUTLIERS
    flipped = bad & (rng.random(total) < 0.5)
    wild = bad & ~flipped
    X[wild] = 6 / np.sqrt(d) * rng.normal(size=(int(wild.sum()), d))
    label = np.where(flipped, 1 - y, y)
    some = rng.choice(total, min(total, 20_000), replace=False)
    probe = LogisticRegression(C=0.01, max_iter=200).fit(X[some], label[some])
    rows = np.flatnonzero(label == 1)[:n]
    slope = (probe.predict_proba(X[rows])[:, 1] - 1)[:, None]
    gradients = slope * np.hstack([X[rows], np.ones((n, 1))])
    return _unit(gradients - gradients.mean(axis=0)).astype(np.float32)


def radius(X: Any, share: float) -> float:
    """Cosine eps that holds a share of all pairs, by 2,000 rows; .2 where that would be none."""
    some = X[:2000]
    gaps = 1 - (some @ some.T)[np.triu_indices(len(some), 1)]
    return float(np.quantile(gaps, share)) if share else 0.2


def _unit(X: Any) -> Any:
    return X / np.linalg.norm(X, axis=1, keepdims=True)
