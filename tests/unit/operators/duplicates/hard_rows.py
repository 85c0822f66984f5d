"""Rows that do not suit the search for near duplicates, and all pairs as the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.duplicates.minhash import plain_text, shingles

Matrix = npt.NDArray[Any]
Random = np.random.Generator
LETTERS = np.array(list("etaoinshrdlcumwfgypbvk"))


def scattered(rng: Random) -> Matrix:
    """Rows of which some repeat an older one, nearly or not so nearly."""
    X = rng.normal(size=(200, 6))
    X[120:] = X[rng.integers(0, 120, 80)]
    X[120:] += rng.choice([0, 0.001, 0.3], 80)[:, None] * rng.normal(size=(80, 6))
    return X


def clump(rng: Random) -> Matrix:
    """More rows near each other than an index of nearest rows would be asked for."""
    return np.concatenate([rng.normal(size=(40, 6)), [2, -1, 1, 3, 0, 1] + 0.03 * rng.normal(size=(600, 6))])[
        rng.permutation(640)
    ]


def arc(rng: Random) -> Matrix:
    """Each row is near the next ones alone: being near is not transitive."""
    angles = rng.permutation(np.linspace(0, 6, 700))
    return np.column_stack([np.cos(angles), np.sin(angles)]) * rng.lognormal(0, 3, 700)[:, None]


def at_the_limit(rng: Random) -> Matrix:
    """Pairs whose distance is 0.001, but for rounding."""
    angles = rng.uniform(0, 6, 200)
    turned = angles + np.arccos(1 - 0.001) * rng.choice([1, 1 + 1e-6, 1 - 1e-6], 200)
    both = np.concatenate([angles, turned])
    return np.column_stack([np.cos(both), np.sin(both)])


def few_values(rng: Random) -> Matrix:
    """Rows of zeros have no direction; of the others many are equal."""
    return rng.integers(-1, 2, (500, 4)) * rng.choice([1e-20, 1, 1e18], 500)[:, None]


def many_columns(rng: Random) -> Matrix:
    """More columns than rows."""
    X = rng.normal(size=(300, 400))
    X[150:] = X[rng.permutation(150)] + 0.045 * rng.normal(size=(150, 400))
    return X


VECTORS = (scattered, clump, arc, at_the_limit, few_values, many_columns)


def nearest_older(X: Matrix, distance: float) -> list[int]:
    """The oldest near row of each vector, by comparing all pairs in float64."""
    wide = X.astype(np.float64)
    length = np.linalg.norm(wide, axis=1, keepdims=True)
    unit = np.divide(wide, length, out=np.zeros_like(wide), where=length > 0)
    near = np.tril(1 - unit @ unit.T <= distance, -1)
    return np.where(near.any(axis=1), near.argmax(axis=1), -1).tolist()


def words(rng: Random, n: int) -> list[str]:
    return ["".join(rng.choice(LETTERS, rng.integers(2, 9))) for _ in range(n)]


def changed(rng: Random, text: Sequence[str], share: float) -> list[str]:
    """The words of a text, of which each is another with some probability."""
    other = words(rng, len(text))
    return [
        new if change else old
        for old, new, change in zip(text, other, rng.random(len(text)) < share, strict=True)
    ]


def with_copies(rng: Random, made: list[list[str]], share: float) -> list[str]:
    """Texts, and as many copies of them with some words changed, in any order."""
    copies = [changed(rng, made[row], share) for row in rng.integers(0, len(made), len(made))]
    both = [" ".join(one) for one in (*made, *copies)]
    return [both[row] for row in rng.permutation(len(both))]


def plain(rng: Random, n: int) -> list[str]:
    """Texts of 40 words that have nothing in common, and copies."""
    return with_copies(rng, [words(rng, 40) for _ in range(n // 2)], 0.02)


def boilerplate(rng: Random, n: int) -> list[str]:
    """Forms: nine words in ten are the same everywhere, so that any two are nearly near."""
    form = words(rng, 54)
    return with_copies(rng, [form + words(rng, 6) for _ in range(n // 2)], 0.01)


def borderline(rng: Random, n: int) -> list[str]:
    """Copies whose similarity lies about the threshold."""
    return with_copies(rng, [words(rng, 60) for _ in range(n // 2)], 0.06)


def names(rng: Random, n: int) -> list[str]:
    """Texts of a few characters, fewer than a shingle has in part."""
    return with_copies(rng, [words(rng, 2) for _ in range(n // 2)], 0.3)


def few_texts(rng: Random, n: int) -> list[str]:
    """A few texts over and over."""
    known = [" ".join(words(rng, 5)) for _ in range(20)]
    return [known[row] for row in rng.integers(0, 20, n)]


TEXTS = (plain, boilerplate, borderline, names, few_texts)


def older_by_sets(texts: Sequence[str], threshold: float, size: int) -> list[int]:
    """The oldest near row of each text, by the sets of shingles of all pairs."""
    sets = [frozenset(shingles(plain_text(text), size)) for text in texts]
    numbers: dict[str, int] = {}
    for one in sets:
        for shingle in one:
            numbers.setdefault(shingle, len(numbers))
    holds = np.zeros((len(sets), len(numbers)), np.float32)
    for row, one in enumerate(sets):
        holds[row, [numbers[shingle] for shingle in one]] = 1.0
    both, size_of = holds @ holds.T, holds.sum(axis=1)
    either = size_of[:, None] + size_of[None, :] - both
    near = np.tril((both >= threshold * either) & (either > 0), -1)
    return np.where(near.any(axis=1), near.argmax(axis=1), -1).tolist()
