"""Damage that is planted in known rows: what corrupt rows would look like among the rows at hand."""

from __future__ import annotations

import numpy as np

from operators.outliers.linear import Features, Ints

KINDS = ("flipped", "mixed", "permuted")
"""Kinds of damage: another label; every feature from another row; features permuted within the row."""


def flip_labels(y: Ints, n_classes: int, rng: np.random.Generator) -> Ints:
    """Return (n,) another class for every row, each with the same probability."""
    return np.asarray((y + rng.integers(1, n_classes, len(y))) % n_classes, np.int64)


def mix_columns(Z: Features, rng: np.random.Generator) -> Features:
    """Return (n, d) rows of which every column is drawn from another row.

    The values are plausible one by one and implausible together.
    """
    return np.column_stack([Z[rng.permutation(len(Z)), j] for j in range(Z.shape[1])])


def permute_within(Z: Features, rng: np.random.Generator) -> Features:
    """Return (n, d) standardised rows whose values are permuted within the row."""
    return np.asarray(rng.permuted(Z, axis=1), Z.dtype)
