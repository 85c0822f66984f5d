"""Tables of scikit-learn's generator with and without a cue, fixed before the trees of the expected gain.

Numbers 0 to 119 were run once with trees that had seen no such table, and are among those of today's trees;
120 to 239 were run once with these. ``UNSEEN_CLASSES`` has three to eight classes: fixed before the trees for
more than two classes, which have seen none of it, and run once.

``make_classification`` draws classes of several clusters, redundant features, wrong labels and unequal
classes, and turns the features, none of which earlier problems had together. Half of the problems have a cue
in one to six more columns; in the others the hidden attribute is the side of an honest feature.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
from sklearn.datasets import make_classification

from tests.paper.real.generated import Problem

FIRST_SEED = 610_000
TEST_ROWS = 4000
FORMS = ("binary", "one-hot", "number", "rotated", "several")
N_PROBLEMS, FIRST_FRESH = 240, 120
FIRST_SEED_OF_CLASSES, N_OF_CLASSES = 720_000, 80
FORMS_OF_CLASSES = ("one-hot", "number", "number", "several", "rotated")
Array = npt.NDArray[np.float64]


def unseen(seed: int, number: int) -> Problem:
    """Return a problem; those of an even number have a cue."""
    rng = np.random.default_rng(FIRST_SEED + number + 1_000_003 * seed)
    rows, rare = int(rng.choice([3000, 8000, 20000])), float(rng.choice([0.5, 0.5, 0.25]))
    wrong, accuracy = float(rng.choice([0.0, 0.02, 0.05])), float(rng.choice([0.88, 0.93, 0.97]))
    form, width = str(rng.choice(FORMS)), int(rng.choice([8, 15, 30]))
    X, y = make_classification(
        n_samples=rows + TEST_ROWS,
        n_features=width,
        n_informative=max(4, width // 3),
        n_redundant=width // 4,
        n_clusters_per_class=int(rng.choice([1, 2])),
        weights=[1.0 - rare, rare],
        flip_y=0.0,
        class_sep=float(rng.uniform(0.6, 1.4)),
        random_state=int(rng.integers(2**31)),
    )
    if number % 2:
        column = X[:, rng.integers(width)]
        hidden, kind = (column > np.median(column)).astype(np.int64), "no cue"
    else:
        train = np.arange(len(y)) < rows
        hidden = np.where(train & (rng.random(len(y)) < accuracy), y, rng.integers(0, 2, len(y)))
        X, kind = _shown(X, hidden, form, rng), f"cue, {form}, {accuracy:g}, {wrong:g} wrong"
    label = np.where(rng.random(rows) < wrong, 1 - y[:rows], y[:rows])
    X = X.astype(np.float32)
    return Problem(X[:rows], label, hidden[:rows], X[rows:], y[rows:], hidden[rows:], kind)


def _shown(X: Array, cue: npt.NDArray[np.int64], form: str, rng: np.random.Generator) -> Array:
    """Return the features with columns that show the cue."""
    noise = rng.normal(size=(len(cue), 6))
    if form == "one-hot":
        level = 3 * cue + rng.integers(0, 3, len(cue))
        return np.column_stack([X, np.eye(6)[level]])
    if form == "several":
        return np.column_stack([X, 2.0 * cue[:, None] + noise])
    shown = np.column_stack([X, cue + (0.3 * noise[:, 0] if form != "binary" else 0.0)])
    return _rotated(shown, rng) if form == "rotated" else shown


def _rotated(X: Array, rng: np.random.Generator) -> Array:
    """Return the features of unit variance, turned at random."""
    return np.asarray(X / X.std(axis=0) @ np.linalg.qr(rng.normal(size=(X.shape[1],) * 2))[0])


def unseen_classes(seed: int, number: int) -> Problem:
    """Return a problem of three to eight classes; those of an even number have a cue.

    The hidden attribute says whether the cue names another class than the row's; without a cue it is the side
    of an honest feature. In test rows the cue is drawn independently of the class.
    """
    rng = np.random.default_rng(FIRST_SEED_OF_CLASSES + number + 1_000_003 * seed)
    rows, C = int(rng.choice([4000, 8000, 20000])), int(rng.integers(3, 9))
    width = int(rng.choice([10, 15, 30]))
    wrong, accuracy = float(rng.choice([0.0, 0.02, 0.05])), float(rng.choice([0.88, 0.93, 0.97]))
    form = str(rng.choice(FORMS_OF_CLASSES))
    X, y = make_classification(
        n_samples=rows + TEST_ROWS,
        n_features=width,
        n_informative=max(6, width // 2),
        n_redundant=width // 5,
        n_classes=C,
        n_clusters_per_class=1,
        weights=rng.dirichlet(np.full(C, 20.0)).tolist(),
        flip_y=0.0,
        class_sep=float(rng.uniform(0.8, 1.8)),
        random_state=int(rng.integers(2**31)),
    )
    if number % 2:
        column = X[:, rng.integers(width)]
        hidden, kind = (column > np.median(column)).astype(np.int64), "no cue"
    else:
        told = (np.arange(len(y)) < rows) & (rng.random(len(y)) < accuracy)
        cue = np.where(told, y, rng.integers(0, C, len(y)))
        X, hidden = _shown_of_classes(X, cue, C, form, rng), (cue != y).astype(np.int64)
        kind = f"cue, {form}, {C} classes, {accuracy:g}, {wrong:g} wrong"
    label = np.where(rng.random(rows) < wrong, rng.integers(0, C, rows), y[:rows])
    X = X.astype(np.float32)
    return Problem(X[:rows], label, hidden[:rows], X[rows:], y[rows:], hidden[rows:], kind)


def _shown_of_classes(
    X: Array, cue: npt.NDArray[np.int64], C: int, form: str, rng: np.random.Generator
) -> Array:
    """Return the features with columns that show the cue of C classes."""
    if form == "one-hot":
        return np.column_stack([X, np.eye(2 * C)[2 * cue + rng.integers(0, 2, len(cue))]])
    if form == "several":
        return np.column_stack([X, 1.5 * rng.normal(size=(C, 6))[cue] + rng.normal(size=(len(cue), 6))])
    shown = np.column_stack([X, rng.permutation(C)[cue] + 0.2 * rng.normal(size=len(cue))])
    return _rotated(shown, rng) if form == "rotated" else shown


UNSEEN_CLASSES: dict[str, Callable[[int], Problem]] = {
    f"made {number}": partial(unseen_classes, number=number) for number in range(N_OF_CLASSES)
}
UNSEEN: dict[str, Callable[[int], Problem]] = {
    f"made {number}": partial(unseen, number=number) for number in range(N_PROBLEMS)
}
SEEN = {name: make for number, (name, make) in enumerate(UNSEEN.items()) if number < FIRST_FRESH}
