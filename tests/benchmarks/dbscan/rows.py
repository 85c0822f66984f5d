"""Rows to time on: per-sample gradients of one class, as group inference sees them, and noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

SPREAD = {"tight": 0.55, "mid": 1.0, "loose": 1.6}
MINORITY = 0.05
OUTLIERS = 0.02
BLOCK = 1 << 15  # rows drawn at once: a million rows of 512 must not need 20 GB
SAMPLE = 2000  # rows that a radius is read from
SEEN, CLOSE = 200, 16  # rows looked at, and neighbours of each, where noise is asked for


def gradient_rows(n: int, d: int, spread: str, seed: int = 0, raw: bool = False) -> Any:
    """(n, d + 1) float32 rows: gradients (p - y)[x, 1] of one class of a logistic probe.

    The probe leans on a spurious direction, which 5 % of rows contradict; of 2 % outliers half have
    flipped labels, half wild features. ``spread`` is that within groups: "tight", "mid" or "loose".
    Rows are centred and brought to length 1, or left as they are if ``raw``.
    """
    rng = np.random.default_rng(seed)
    blocks = _samples(rng, d, SPREAD[spread])
    X, label = next(blocks)
    probe = LogisticRegression(C=0.01, max_iter=200).fit(X, label)
    gradients, done = np.empty((n, d + 1), np.float32), 0
    while done < n:
        X, label = next(blocks)
        X = X[label == 1][: n - done]
        slope = (probe.predict_proba(X)[:, 1] - 1)[:, None]
        gradients[done : done + len(X)] = slope * np.hstack([X, np.ones((len(X), 1))])
        done += len(X)
    if not raw:
        centre = gradients.mean(axis=0, dtype=np.float64).astype(np.float32)
        for start in range(0, n, BLOCK):
            gradients[start : start + BLOCK] = _unit(gradients[start : start + BLOCK] - centre)
    return gradients


def sphere(n: int, d: int, seed: int = 0) -> Any:
    """(n, d) float32 rows, uniform on the unit sphere: nothing to find."""
    return _unit(np.random.default_rng(seed).standard_normal((n, d), np.float32))


def radius(X: Any, share: float) -> float:
    """Euclidean eps that holds this share of all pairs."""
    return float(np.quantile(_distances(X[:SAMPLE]), share))


def empty_radius(X: Any) -> float:
    """Euclidean eps below every distance among a sample of the rows."""
    return 0.9 * float(_distances(X[:SAMPLE]).min())


def noise_radius(X: Any, share: float, min_samples: int) -> float:
    """Euclidean eps at which about this share of the rows is noise.

    A row is noise below the least max(|x - y|, reach of y), y being any row, itself included, and its reach
    the distance of its ``min_samples``-th nearest. Taken over some rows x and their nearest y.
    """
    x = X[:SEEN]
    gaps, y = _nearest(x, X, CLOSE)
    reach = _nearest(X[y.ravel()], X, min_samples)[0].max(axis=1).reshape(y.shape)
    return float(np.quantile(np.maximum(gaps, reach).min(axis=1), 1 - share))


def near_share(X: Any, eps: float) -> float:
    """Share of all pairs within Euclidean eps, by a sample."""
    return float((_distances(X[:SAMPLE]) <= eps).mean())


def _samples(rng: np.random.Generator, d: int, spread: float) -> Iterator[tuple[Any, Any]]:
    """Blocks of features and labels, without end."""
    true, spurious = _unit(rng.normal(size=(2, d)))
    while True:
        y = np.arange(BLOCK) % 2
        cue = np.where(rng.random(BLOCK) < MINORITY, 1 - y, y)
        X = spread * 2 / np.sqrt(d) * rng.standard_normal((BLOCK, d))
        X += np.outer(2 * y - 1, true) + 2 * np.outer(2 * cue - 1, spurious)
        bad = rng.random(BLOCK) < OUTLIERS
        flipped = bad & (rng.random(BLOCK) < 0.5)
        wild = bad & ~flipped
        X[wild] = 6 / np.sqrt(d) * rng.normal(size=(int(wild.sum()), d))
        yield X, np.where(flipped, 1 - y, y)


def _distances(X: Any) -> Any:
    return np.sqrt(_squares(X, X)[np.triu_indices(len(X), 1)])


def _nearest(some: Any, X: Any, k: int) -> tuple[Any, Any]:
    """Distances and positions in X of the k nearest rows, unordered."""
    gaps, found = np.empty((len(some), 0)), np.empty((len(some), 0), np.intp)
    for start in range(0, len(X), 4096):
        block = _squares(some, X[start : start + 4096])
        gaps = np.hstack([gaps, block])
        found = np.hstack([found, np.broadcast_to(np.arange(start, start + block.shape[1]), block.shape)])
        keep = np.argpartition(gaps, k - 1, axis=1)[:, :k]
        gaps, found = np.take_along_axis(gaps, keep, 1), np.take_along_axis(found, keep, 1)
    return np.sqrt(gaps), found


def _squares(X: Any, Y: Any) -> Any:
    """Squared distances; float64, or the rows at distance 0 would be lost to rounding."""
    X, Y = X.astype(np.float64), Y.astype(np.float64)
    gaps = np.einsum("ij,ij->i", X, X)[:, None] + np.einsum("ij,ij->i", Y, Y) - 2 * X @ Y.T
    return np.maximum(gaps, 0)


def _unit(X: Any) -> Any:
    return X / np.linalg.norm(X, axis=1, keepdims=True)
