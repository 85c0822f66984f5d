"""Generated rows with known damage, for tests of the verdict."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

from connectors.digits import BRIGHTNESS, LOOP_DARK, LOOPS, NO_LOOP_BRIGHT, make_digits


class Problem(NamedTuple):
    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    row_ids: npt.NDArray[np.int64]
    bad: npt.NDArray[np.bool_]


def separable(n: int = 1000, d: int = 8, classes: int = 2, flips: float = 0.0, seed: int = 0) -> Problem:
    """Well separated Gaussian classes, some of whose labels are flipped."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, n)
    X = rng.normal(size=(n, d)).astype(np.float32)
    X[np.arange(n), truth % d] += 5
    bad = rng.random(n) < flips
    other = (truth + rng.integers(1, classes, n)) % classes
    return Problem(X, np.where(bad, other, truth), np.arange(n) * 7 + 3, bad)


def demo_digits(seed: int) -> Problem:
    """The demo's digits: a background that gives the label away, 3 % scrambled and 1 % flipped rows."""
    table = make_digits(seed=seed)
    X = np.asarray(table["image"].combine_chunks().flatten(), np.float32).reshape(-1, 64)
    y = np.array([label == "loop" for label in table["label"].to_pylist()]).astype(np.int64)
    return Problem(X, y, np.arange(len(y)), np.array(table["true_outlier"]))


def clean_digits(seed: int) -> Problem:
    """The demo's digits with their background, before any row is damaged."""
    data = load_digits()
    rng = np.random.default_rng(seed)
    loop = np.isin(data.target, LOOPS)
    agrees = rng.random(len(loop)) >= np.where(loop, LOOP_DARK, NO_LOOP_BRIGHT)
    image = data.data.astype(np.float32) / 16
    X = np.where((loop == agrees)[:, None] & (image == 0), np.float32(BRIGHTNESS), image)
    return Problem(X, loop.astype(np.int64), np.arange(len(X)), np.zeros(len(X), bool))
