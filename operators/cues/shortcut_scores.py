"""Scores of the shortcuts that are balanced, for operators that must not lean on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from operators.arrays import Float64, Floats
from operators.cues.serialise import load_state


def shortcut_scores(folder: Path, X: Floats) -> Float64:
    """Return a linear function of the features for each column of a balanced shortcut, shape (n, s).

    Shortcuts are those that the recipe names and those of words that were found; s is 0 where none is
    balanced.

    Parameters
    ----------
    folder
        State folder of ``cues``.
    X
        Features (n, d) as the operator reads them.

    """
    state = load_state(folder)
    if state.blend <= 0 or not state.named:
        return np.empty((len(X), 0))
    columns = sorted({column for one in state.named for column in one.columns})
    return np.asarray(state.scaler.apply(X)[:, columns], np.float64)
