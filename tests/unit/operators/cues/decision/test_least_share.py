"""The least effective share of a class: rules decide at a fifth, weights are published down to the user's."""

from __future__ import annotations

from typing import Any

import numpy as np

from operators.cues import CueSettings, fit
from operators.cues.models.curve_points import point_at
from operators.cues.robust_weights import MEASURED_SHARE

N = 9000
IDS = np.arange(N)


def table(told: float = 0.97) -> tuple[Any, Any]:
    """Features, of which the last tells the label of nearly all rows, and labels."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, N)
    cue = np.where(rng.random(N) < told, y, 1 - y)
    X = rng.normal(size=(N, 5)) + 0.9 * y[:, None]
    return np.column_stack([X, cue]).astype(np.float32), y


def test_a_strong_column_is_balanced_on_fewer_rows_where_no_group_is_worse() -> None:
    X, y = table()
    strict = fit(X, y, IDS, CueSettings(min_effective=MEASURED_SHARE))
    mild = fit(X, y, IDS)
    assert strict.blend == mild.blend == 1.0
    assert strict.effective.min() > MEASURED_SHARE - 0.01
    assert 0.09 < mild.effective.min() < strict.effective.min() - 0.05
    assert mild.limits.trust.min() > strict.limits.trust.min()
    worst = [point_at(state.points, 2.0) for state in (strict, mild)]
    assert worst[1].worst >= worst[0].worst  # type: ignore[union-attr]


def test_the_user_may_ask_for_more() -> None:
    X, y = table()
    assert fit(X, y, IDS, CueSettings(min_effective=0.5)).effective.min() > 0.49
