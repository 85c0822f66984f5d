"""A column of two classes whose gain wrong labels hide is balanced, and an honest one is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from operators.cues import CueSettings, fit, weights
from operators.cues import robust_weights as module
from operators.cues.decision import right_label_gain
from operators.cues.models.curve_points import point_at

N = 4000
IDS = np.arange(N)


def table(told: float = 0.94, flips: float = 0.05) -> tuple[Any, Any, Any, Any]:
    """Features, labels, true labels and the column, by which many rows that break it have wrong labels."""
    rng = np.random.default_rng(1)
    true = (rng.random(N) < 0.5).astype(int)
    cue = np.where(rng.random(N) < told, true, 1 - true)
    X = rng.normal(size=(N, 40))
    X[:, :6] += 0.8 * (2 * true - 1)[:, None]
    y = np.where(rng.random(N) < flips, 1 - true, true)
    return np.column_stack([cue, X]).astype(np.float32), y, true, cue


def test_the_gain_counts_rows_by_how_probable_a_right_label_is(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, true, cue = table()
    state = fit(X, y, IDS)
    assert state.evidence is not None
    assert state.evidence.gate() < 0.5
    assert state.blend == 1.0
    assert state.class_column is not None
    assert state.class_column.columns == (0,)
    reached, without = (point_at(state.points, strength) for strength in (2.0, 1.0))
    assert reached is not None
    assert without is not None
    assert reached.worst >= without.worst + right_label_gain.LEAST_RISE
    assert reached.mean >= without.mean - right_label_gain.MOST_COST
    w, breaks = weights(state, X, y, IDS), cue != y
    assert w[breaks & (y == true)].mean() > 3 * w[breaks & (y != true)].mean()
    monkeypatch.setattr(module, "follow_right_labels", lambda search, _, decision, *__: (search, decision))
    assert fit(X, y, IDS).blend == 0.0


def test_nothing_more_is_followed_without_wrong_labels() -> None:
    X, y, _, _ = table(told=0.995, flips=0.0)
    state = fit(X, y, IDS)
    assert state.judged_labels == ()
    assert state.blend == 0.0


@pytest.mark.parametrize("name", ["LEAST_RISE", "MOST_COST"])
def test_a_small_rise_or_a_high_price_leaves_class_balance(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(right_label_gain, name, {"LEAST_RISE": 0.9, "MOST_COST": -0.5}[name])
    X, y, _, _ = table()
    assert fit(X, y, IDS, CueSettings()).blend == 0.0
