"""A column that few rows of a rare class break is balanced where both classes need it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from operators.cues import fit
from operators.cues.decision import rare_class
from operators.cues.decision.rare_class import is_surely_better
from operators.cues.models.curve_points import point_at
from operators.cues.models.trade_off import TradeOffPoint

N = 3000
RARE = 240


def table(told: float = 0.9) -> tuple[Any, Any, Any]:
    """Features, labels and ids: a class of 8 %, three informative columns, and one that tells so many."""
    rng = np.random.default_rng(0)
    y = (np.arange(N) < RARE).astype(int)
    X = rng.normal(size=(N, 6)).astype(np.float32)
    X[:, :3] += 0.7 * (2 * y[:, None] - 1)
    X[:, 5] = np.where(rng.random(N) < told, y, 1 - y)
    return X, y, np.arange(N)


def broken(X: Any, y: Any) -> Any:
    return X[:, 5] != y


def test_the_column_is_balanced_though_few_rows_of_the_rare_class_break_it() -> None:
    X, y, ids = table()
    assert 5 <= np.count_nonzero(broken(X, y) & (y == 1)) < 50
    state = fit(X, y, ids)
    assert state.blend == 1.0
    assert [one.columns for one in state.class_columns] == [(5,)]
    base, full = point_at(state.points, 1.0), point_at(state.points, 2.0)
    assert base is not None
    assert full is not None
    assert full.worst > base.worst + 0.15


def test_the_rule_is_what_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rare_class, "is_surely_better", lambda _: False)
    assert fit(*table()).blend == 0.0


def test_below_five_rows_nothing_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rare_class, "LEAST_ROWS", 49)
    assert fit(*table()).blend == 0.0


def points(worst: float, rows: int) -> tuple[TradeOffPoint, ...]:
    one = TradeOffPoint(0.0, 0.9, 0.9, 0.9, 0.4, 0.3, 0.5, (1,), 400, 1.0)
    return one, replace(one, strength=1.0), replace(one, strength=2.0, worst=worst, group=(3,), rows=rows)


@pytest.mark.parametrize(
    ("worst", "rows", "better"),
    [(0.6, 30, True), (0.6, 5, False), (0.54, 300, False), (1.0, 5, True), (0.3, 300, False)],
)
def test_the_rise_is_large_and_more_than_a_standard_error(worst: float, rows: int, better: bool) -> None:
    assert is_surely_better(points(worst, rows)) is better
