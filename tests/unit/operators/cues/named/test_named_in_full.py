"""A named shortcut is balanced in full where 85 % leave the worst group clearly worse on held-out rows."""

from __future__ import annotations

import numpy as np

from operators.cues import CueSettings, fit
from operators.cues.models.weight_path import CLASS_BALANCE, FULL
from operators.cues.settings import Named
from operators.cues.state import CueState


def state_of(max_named_cost: float) -> CueState:
    """Return the state of a table whose first column goes along with the label in 95 % of the rows.

    Another column tells the first, so that nothing is balanced without the name.
    """
    r, n = np.random.default_rng(0), 3000
    y = r.integers(0, 2, n)
    attribute = np.where(r.random(n) < 0.95, y, 1 - y)
    related = attribute + 0.4 * r.normal(size=n)
    X = np.column_stack([attribute, 0.8 * y + r.normal(size=n), related, r.normal(size=n)])
    X = X.astype(np.float32)
    assert fit(X, y, np.arange(n)).blend == 0.0
    return fit(X, y, np.arange(n), CueSettings(spurious=(Named((0,)),), max_named_cost=max_named_cost))


def test_full_strength_where_it_is_better():
    state = state_of(1.0)
    worst = {point.strength: point.worst for point in state.points}
    assert worst[FULL] > worst[CLASS_BALANCE + 0.85] + 0.1
    assert state.blend == 1.0


def test_no_more_than_85_percent_where_the_cost_is_limited():
    assert state_of(0.5).blend == 0.85
