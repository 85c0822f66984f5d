"""Sides of a shortcut that the user names."""

from __future__ import annotations

import numpy as np

from operators.cues.models import linear
from operators.cues.named import named_sides as named


def test_balance_table_leaves_empty_sides_and_lone_sides_alone():
    table = named.balance_table(np.array([[30.0, 10.0, 0.0], [5.0, 0.0, 0.0]]))
    assert np.allclose(table, [[40 / 60, 2.0, 1.0], [1.0, 1.0, 1.0]])


def test_levels_of_a_category_stand_for_classes():
    y = np.repeat([0, 1, 2], 100)
    block = (y[:, None] == np.array([2, 0, 1])).astype(np.float32)
    Z = linear.Scaler.from_rows(block).apply(block)
    sides = named.fit_sides(named.Named((0, 1, 2)), Z, y, 3, 0.0)
    assert sides.level_side[1:].tolist() == [2, 0, 1]
