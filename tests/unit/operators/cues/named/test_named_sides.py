"""Sides of a shortcut that the user names."""

from __future__ import annotations

import numpy as np

from operators.cues.models import linear
from operators.cues.named import named_sides as named


def test_levels_of_a_category_stand_for_classes():
    y = np.repeat([0, 1, 2], 100)
    block = (y[:, None] == np.array([2, 0, 1])).astype(np.float32)
    Z = linear.Scaler.from_rows(block).apply(block)
    sides = named.fit_sides(named.Named((0, 1, 2)), Z, y, 3, 0.0)
    assert sides.level_side[1:].tolist() == [2, 0, 1]
