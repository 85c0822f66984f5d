"""Generated tables for the study of ``operators/cues``: cues of several classes, and binary attributes.

``binary_attributes`` stands in for tables of people's attributes, such as those of photographs: 38 correlated
binary columns, a rare label that hardly occurs on one side of a hidden attribute, and honest columns (colours
of hair that exclude the label) beside those that only tell the attribute.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from operators.cues.settings import SourceColumn

Array = npt.NDArray[Any]
PEOPLE = (
    # share with the attribute unset, share with it set, loadings on (style, age, face, smile)
    (0.80, 0.006, -0.8, 0, 0, 0),
    (0.66, 0.003, -1.04, 0, 0, 0),
    (0.999, 0.60, 0, 0, 0, 0),
    (0.34, 0.017, -0.56, 0, 0, 0),
    (0.43, 0.045, -0.4, 0, 0, 0),
    (0.68, 0.28, -0.8, 0.5, 0, 0),
    (0.001, 0.26, 0, 0, 0.4, 0),
    (0.0005, 0.15, 0, 0, 0.5, 0),
    (0.0005, 0.10, 0, 0, 0.6, 0),
    (0.0005, 0.13, 0, 0, 0.6, 0),
    (0.001, 0.17, 0, -0.3, 0, 0),
    (0.20, 0.01, -0.32, 0, 0, 0),
    (0.001, 0.055, 0, -0.6, 0, 0),
    (0.45, 0.13, -0.24, 0, 0, 0),
    (0.88, 0.64, 0, 0.9, 0, 0),
    (0.09, 0.42, 0, 0, 0.2, 0),
    (0.09, 0.25, 0, -0.3, 0, 0),
    (0.01, 0.14, 0, -0.7, 0, 0),
    (0.01, 0.11, 0, -0.7, 0, 0),
    (0.06, 0.27, 0, -0.3, 0, 0),
    (0.22, 0.20, 0, 0, 0.4, 0),
    (0.25, 0.24, 0, 0, 0.3, 0),
    (0.54, 0.39, 0, 0, 0, 1.5),
    (0.54, 0.42, 0, 0, 0, 1.5),
    (0.54, 0.38, 0, 0, 0, 1.2),
    (0.05, 0.03, 0.2, 0, 0, 0),
    (0.03, 0.12, 0, -0.3, 0, 0),
    (0.02, 0.10, 0, 0, 0, 0),
    (0.18, 0.12, 0, 0.2, 0, 0),
    (0.35, 0.20, -0.24, 0, 0, 0),
    (0.29, 0.27, -0.24, 0, 0, 0),
    (0.06, 0.03, 0, 0, 0, 0),
    (0.10, 0.01, -0.24, 0, 0, 0),
    (0.15, 0.15, 0, 0, 0, 0),
    (0.05, 0.05, 0, 0, 0, 0),
)
SET, LABEL_SHARES = 0.42, (0.24, 0.02)


@dataclass(frozen=True)
class Problem:
    """Rows to train on and to test on, the hidden attribute of each, and columns with class shares."""

    X: Array
    y: Array
    hidden: Array
    X_test: Array
    y_test: Array
    hidden_test: Array
    kind: str
    columns: tuple[SourceColumn, ...] = ()

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(max(self.y.max(), self.y_test.max())) + 1


def binary_attributes(
    name: str,
    seed: int,
    *,
    rows: int = 20_000,
    lean: float = 1.0,
    style: float = 1.0,
    noise: float = 0.06,
    hair: float = 1.0,
    shares: tuple[float, float] = LABEL_SHARES,
    dropped: int = 0,
) -> Problem:
    """Return a table of 38 binary columns with a hidden attribute of 42 % and a label of 15 %.

    Parameters
    ----------
    name, seed
        Decide the draws.
    rows
        Rows to train on; as many, and 20,000 at most, to test on.
    lean
        How far the columns lean on the attribute, 1 as in photographs of celebrities.
    style
        Scale of the correlation among the columns that go with the attribute.
    noise
        Share of the colours of hair that are not recorded.
    hair
        How often another colour of hair rules the label out; 0 leaves no honest columns.
    shares
        Share of the label with the attribute unset and set.
    dropped
        So many of the columns that lean most are left out.

    """
    rng = np.random.default_rng(zlib.crc32(name.encode()) + seed)
    draw = partial(_people, rng, lean=lean, style=style, noise=noise, hair=hair, shares=shares)
    X, y, hidden = draw(rows)
    X_test, y_test, hidden_test = draw(min(rows, 20_000))
    return Problem(X[:, dropped:], y, hidden, X_test[:, dropped:], y_test, hidden_test, "binary")


def _people(
    rng: np.random.Generator,
    n: int,
    *,
    lean: float,
    style: float,
    noise: float,
    hair: float,
    shares: tuple[float, float],
) -> tuple[Array, Array, Array]:
    hidden = (rng.random(n) < SET).astype(np.int64)
    factors = rng.normal(size=(n, 4))
    factors[:, 1] += 0.5 * hidden
    share = np.where(hidden == 1, shares[1], shares[0])
    blond = 0.12 * -factors[:, 0] + 0.05 * factors[:, 1] + rng.normal(size=n)
    y = (blond < np.sqrt(1 + 0.12**2 + 0.05**2) * norm.ppf(share)).astype(np.int64)
    columns = [_column(rng, hidden, factors, lean, style, spec) for spec in PEOPLE]
    colour = np.where(hidden == 1, 1, 0)
    limits = np.cumsum(np.array([[0.29, 0.34, 0.02], [0.28, 0.15, 0.08]])[colour], axis=1) * hair
    drawn = (rng.random(n)[:, None] > limits / (1 - share)[:, None]).sum(axis=1)
    drawn = np.where(y == 1, 3, drawn)
    for k in range(3):
        seen = (drawn == k) & (rng.random(n) > noise) | (y == 0) & (rng.random(n) < noise / 2)
        columns.append(seen | (k == 1) & (y == 1) & (rng.random(n) < 0.04))
    return np.column_stack(columns).astype(np.float32), y, hidden


def _column(
    rng: np.random.Generator,
    hidden: Array,
    factors: Array,
    lean: float,
    style: float,
    spec: tuple[float, ...],
) -> Array:
    unset, given, *loadings = spec
    load = np.array(loadings) * np.array([style, 1, 1, 1])
    middle = (unset + given) / 2
    share = middle + (np.where(hidden == 1, given, unset) - middle) * lean
    score = factors @ load + rng.normal(size=len(hidden))
    return np.asarray(score < np.sqrt(1 + load @ load) * norm.ppf(np.clip(share, 1e-4, 1 - 1e-4)))


BINARY: dict[str, Callable[[int], Problem]] = {
    "people": partial(binary_attributes, "people"),
    "people, lean .8": partial(binary_attributes, "people, lean .8", lean=0.8),
    "people, noisy hair": partial(binary_attributes, "people, noisy hair", noise=0.15),
    "people, no hair": partial(binary_attributes, "people, no hair", hair=0.0),
    "people, styled": partial(binary_attributes, "people, styled", style=1.9),
    "people, four columns fewer": partial(binary_attributes, "people, four", dropped=4),
    "people, rare noise": partial(binary_attributes, "people, rare noise", noise=0.03),
    "people, .22 and .06": partial(binary_attributes, "people, .22", shares=(0.22, 0.06)),
}
"""Design problems."""


def cue_table(
    name: str,
    seed: int,
    *,
    classes: int,
    how: str,
    rows: int,
    accuracy: float = 0.92,
    flips: float = 0.04,
    separation: float = 0.8,
    width: int = 16,
    with_cue: bool = True,
) -> Problem:
    """Return Gaussian classes and a cue that points to the right one in ``accuracy`` of the rows.

    ``how`` the cue is shown: "onehot", "column" (its number), "rotated" (into all columns) or "spread" (eight
    noisy columns). Test rows show every class with every value of the cue alike. Without a cue the hidden
    attribute is noise.
    """
    fixed = np.random.default_rng(zlib.crc32(name.encode()))
    rng = np.random.default_rng(zlib.crc32(name.encode()) + 1 + seed)
    directions = fixed.normal(size=(classes, width))
    directions *= 2 * separation / np.sqrt(((directions[0] - directions[1]) ** 2).sum() / 4)
    codes = np.linalg.qr(fixed.normal(size=(max(8, classes), max(8, classes))))[0][:classes]
    turn = np.linalg.qr(fixed.normal(size=(width + codes.shape[1],) * 2))[0]

    def draw(n: int, test: bool) -> tuple[Array, Array, Array]:
        y = rng.integers(0, classes, n)
        wrong = (y + rng.integers(1, classes, n)) % classes
        cue = np.where(rng.random(n) < accuracy, y, wrong)
        if test or not with_cue:
            cue = rng.integers(0, classes, n)
        X = directions[y] + rng.normal(size=(n, width))
        if not with_cue:
            return X.astype(np.float32), y, cue
        shown = {
            "onehot": lambda: np.eye(classes)[cue],
            "column": lambda: 2.0 * cue[:, None] + 0.15 * rng.normal(size=(n, 1)),
            "rotated": lambda: 2.0 * codes[cue] + 0.2 * rng.normal(size=(n, codes.shape[1])),
            "spread": lambda: 2.0 * codes[cue] + 0.6 * rng.normal(size=(n, codes.shape[1])),
        }[how]()
        X = np.column_stack([X, shown])
        return (X @ turn if how == "rotated" else X).astype(np.float32), y, cue

    X, y, cue = draw(rows, False)
    X_test, y_test, cue_test = draw(max(4000, 80 * classes**2), True)
    flipped = np.where(rng.random(rows) < flips, (y + rng.integers(1, classes, rows)) % classes, y)
    return Problem(X, flipped, cue, X_test, y_test, cue_test, "cue" if with_cue else "no cue")
