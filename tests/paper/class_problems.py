"""Class problems on which rules of selection are compared: gradients of one class and its true groups.

In every data set a cue agrees with the label except in a minority of 3 to 12 % of each class; up to 5 %
of the rows are damaged, three quarters by scrambling their features, the rest by flipping their label.
Rows of one class fall into: majority, minority or minorities, scrambled, flipped. The shares are drawn
from the problem's own seed. A logistic probe is trained on all rows; the gradients are those of its
softmax cross-entropy, which GRASP clusters class by class.

``DESIGN`` and ``FRESH`` were written down before any score was looked at: rules were made on the first
alone. ``FRESH`` has two data sets and two digit tasks that ``DESIGN`` has not, and other seeds.
``REPEAT`` was added after the one look at ``FRESH``, with the rule as it was: both lists with new seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.preprocessing import scale

from operators.gradients import per_sample_gradients
from operators.models import ModelSpec
from operators.probe.settings import Settings
from tests.on_arrays import train_on_arrays
from tests.paper.synthetic import synthetic
from tests.paper.test_grasp_synthetic import train_probe

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]

MINORITY = (0.03, 0.12)
DAMAGED = (0.0, 0.05)
FLIPPED = 0.25  # of the damaged rows
L2 = (0.05, 0.2)
SCRAMBLED_GROUP, FLIPPED_GROUP = 8, 9

TASKS = {
    "loop": (0, 6, 8, 9),
    "odd": (1, 3, 5, 7, 9),
    "high": (5, 6, 7, 8, 9),
    "prime": (2, 3, 5, 7),
    "straight": (1, 4, 7),
}
CUES = ("background", "corner", "stripe")


@dataclass(frozen=True)
class Name:
    """Name of a problem: data set, variant (task and cue, or none), seed and l2 of the probe."""

    data: str
    variant: str
    seed: int
    l2: float

    def __str__(self) -> str:
        return f"{self.data} {self.variant} seed={self.seed} l2={self.l2:g}"


@dataclass(frozen=True)
class ClassProblem:
    """(n, p) float32 gradients of one class and the (n,) true groups of its rows."""

    name: Name
    value: int
    gradients: npt.NDArray[np.float32]
    group: Int


def _names(data: str, variants: list[str], seeds: tuple[int, ...]) -> list[Name]:
    return [Name(data, v, s, l2) for v, s, l2 in product(variants, seeds, L2)]


def _digits(tasks: tuple[str, ...], seed: int) -> list[Name]:
    return _names("digits", [f"{task}/{cue}" for task in tasks for cue in CUES], (seed,))


def _synthetic(seeds: tuple[int, ...]) -> list[Name]:
    # The paper's probe: stopped early, no penalty.
    return [Name("synthetic", v, s, 0.0) for v in ("clean", "contaminated") for s in seeds]


DESIGN: tuple[Name, ...] = (
    *_digits(("loop", "odd", "high"), 0),
    *_names("cancer", [""], (0, 1)),
    *_names("gaussians", [""], (0, 1, 2)),
    *_synthetic((123,)),
)
FRESH: tuple[Name, ...] = (
    *_digits(("prime", "straight"), 1),
    *_names("cancer", [""], (10, 11)),
    *_names("gaussians", [""], (10, 11, 12)),
    *_names("wine", [""], (10, 11)),
    *_names("classification", [""], (10, 11, 12)),
    *_synthetic((0, 1, 2)),
)
REPEAT: tuple[Name, ...] = tuple(replace(name, seed=name.seed + 100) for name in DESIGN + FRESH)


def class_problems(name: Name) -> Iterator[ClassProblem]:
    """The problem of each class, in class order."""
    if name.data == "synthetic":
        data = synthetic(name.seed, contaminated=name.variant == "contaminated")
        model = train_probe(data.train, 0)
        X, y, group = data.inferred.X, data.inferred.y, data.inferred.group
    else:
        X, y, group = _rows(name)
        spec = ModelSpec(n_features=X.shape[1], n_classes=int(y.max()) + 1, standardize=False)
        model = train_on_arrays(X, y, spec=spec, settings=Settings(l2=name.l2)).model
    gradients = per_sample_gradients(model, X.astype(np.float32), y)
    for value in np.unique(y).tolist():
        rows = y == value
        yield ClassProblem(name, value, gradients[rows], group[rows])


def _rows(name: Name) -> tuple[Float, Int, Int]:
    """Features with the cue, labels and groups of every row, damage included."""
    rng = np.random.default_rng(name.seed)
    if name.data == "gaussians":
        X, y, group = _gaussians(rng)
    else:
        X, y = _features(name)
        group = np.zeros(len(y), np.int64)
        for value in np.unique(y):
            members = np.flatnonzero(y == value)
            group[rng.choice(members, max(3, _count(rng, MINORITY, len(members))), replace=False)] = 1
        # A minority row shows the cue of the next class.
        shown = (y + group) % (y.max() + 1)
        X = _cue_on_digits(X, shown, name.variant) if name.data == "digits" else _cue_column(X, shown, rng)
    return _damage(X, y, group, rng)


def _features(name: Name) -> tuple[Float, Int]:
    if name.data == "digits":
        images, digit = load_digits(return_X_y=True)
        return images / 16.0, np.isin(digit, TASKS[name.variant.split("/")[0]]).astype(np.int64)
    if name.data == "classification":
        X, y = make_classification(
            1000, 20, n_informative=6, n_redundant=2, class_sep=1.0, random_state=name.seed
        )
    else:
        X, y = (load_wine if name.data == "wine" else load_breast_cancer)(return_X_y=True)
    return scale(X), y.astype(np.int64)


def _cue_on_digits(X: Float, shown: Int, variant: str) -> Float:
    """Bright background, a bright corner, or a bright left edge, where class 1 is shown."""
    X, lit = X.copy(), shown == 1
    cue = variant.split("/")[1]
    if cue == "background":
        return np.where(lit[:, None] & (X == 0), 0.5, X)
    pixels = X.reshape(-1, 8, 8)
    pixels[lit, : 2 if cue == "corner" else 8, : 3 if cue == "corner" else 1] = 1.0
    return X


def _cue_column(X: Float, shown: Int, rng: np.random.Generator) -> Float:
    """One column a class (one in all for two), at +3 where shown and -3 elsewhere, with some noise."""
    n_columns = 1 if shown.max() == 1 else shown.max() + 1
    signs = np.where(shown[:, None] == np.arange(shown.max() + 1 - n_columns, shown.max() + 1), 3.0, -3.0)
    return np.concatenate([X, signs + 0.3 * rng.normal(size=signs.shape)], axis=1)


def _gaussians(rng: np.random.Generator) -> tuple[Float, Int, Int]:
    """Two classes in 10-d, each of a majority and two rare groups that lie near the other class."""
    d, parts = 10, []
    centres = 2.0 * rng.normal(size=(2, d))
    for value in (0, 1):
        n = int(rng.integers(300, 900))
        rare = [_count(rng, MINORITY, n) for _ in range(2)]
        for group, size in enumerate([n - sum(rare), *rare]):
            centre = centres[value] if group == 0 else centres[1 - value] + 1.0 * rng.normal(size=d)
            rows = centre + rng.normal(size=(size, d))
            parts.append((rows, np.full(size, value), np.full(size, group)))
    X, y, group = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = rng.permutation(len(y))
    return X[order], y[order], group[order]


def _damage(X: Float, y: Int, group: Int, rng: np.random.Generator) -> tuple[Float, Int, Int]:
    n_damaged = _count(rng, DAMAGED, len(y))
    damaged = rng.choice(len(y), n_damaged, replace=False)
    flipped, scrambled = np.split(damaged, [round(FLIPPED * n_damaged)])
    X, y, group = X.copy(), y.copy(), group.copy()
    X[scrambled] = rng.permuted(X[scrambled], axis=1)
    group[scrambled] = SCRAMBLED_GROUP
    y[flipped] = (y[flipped] + 1) % (y.max() + 1)
    group[flipped] = FLIPPED_GROUP
    return X, y, group


def _count(rng: np.random.Generator, share: Any, n: int) -> int:
    return round(rng.uniform(*share) * n)
