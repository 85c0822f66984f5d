"""Losses of base models, round after round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from operators.lpboost import SampleWeightSolver

Array = npt.NDArray[np.float64]

ALPHA = 0.1


@dataclass(frozen=True)
class Game:
    """``kind``: "independent" or "boosted"; ``binary``: 0/1 losses, else one minus a probability."""

    n: int
    kind: str
    binary: bool

    @property
    def key(self) -> str:
        """Name for ``--only``."""
        return f"{self.n}-{self.kind}-{'01' if self.binary else 'real'}"

    def losses(self, rounds: int) -> Array:
        """(n, rounds), from a fixed seed."""
        rng = np.random.default_rng(0)
        made = _independent if self.kind == "independent" else _boosted
        return made(rng, self.n, rounds, self.binary)


def _independent(rng: np.random.Generator, n: int, rounds: int, binary: bool) -> Array:
    """Models that know nothing of each other, and err where rows are hard."""
    hard = rng.normal(-2, 1.5, (n, 1)) + 0.6 * rng.normal(size=(n, 4)) @ rng.normal(size=(4, rounds))
    chance = 1 / (1 + np.exp(-hard))
    return (rng.random((n, rounds)) < chance).astype(float) if binary else chance


def _boosted(rng: np.random.Generator, n: int, rounds: int, binary: bool) -> Array:
    """alpha-LPBoost itself: each model a least squares fit to 400 rows drawn by the weights so far."""
    X = rng.normal(size=(n, 20))
    slope = np.where(X[:, 0] > 1, 3, -0.5)  # a minority follows another rule
    y = np.sign(X @ rng.normal(size=20) / 2 + slope * X[:, 1] + rng.normal(size=n))
    solver, weights = SampleWeightSolver(ALPHA), np.full(n, 1 / n)
    for _ in range(rounds):
        drawn = rng.choice(n, 400, p=weights / weights.sum())
        margin = y * (X @ np.linalg.lstsq(X[drawn], y[drawn], rcond=None)[0])
        loss = (margin <= 0).astype(float) if binary else 1 / (1 + np.exp(np.clip(4 * margin, -50, 50)))
        weights = solver.add(loss)
    return solver.losses_.copy()
