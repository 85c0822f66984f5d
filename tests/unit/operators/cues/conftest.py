"""A generated table with a cue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


@pytest.fixture(scope="session")
def cue_problem() -> Any:
    """Labels, a core of 4 columns, noise, and a cue in column 6 that holds in 93 % of the rows; 3 % flips."""
    rng = np.random.default_rng(3)
    n = 6000
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 8)).astype(np.float32)
    X[:, :4] += (2 * y[:, None] - 1) * 0.7
    cue = np.where(rng.random(n) < 0.93, y, 1 - y)
    X[:, 6] = cue * 2.0 + 0.1 * rng.normal(size=n)
    X[:, 7] = 5.0
    label = np.where(rng.random(n) < 0.03, 1 - y, y)
    return X, label, y, cue, np.arange(n)
