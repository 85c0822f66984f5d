"""Gain of weights on held-out rows."""

from __future__ import annotations

import numpy as np
import pytest

from operators.cues.search import gain


def _probabilities(predicted, classes, confidence=0.9):
    p = np.full((len(predicted), classes), (1 - confidence) / (classes - 1))
    p[np.arange(len(predicted)), predicted] = confidence
    return p


def test_the_gain_of_a_slice_is_the_rise_of_its_worst_cell_less_its_standard_error():
    y = np.repeat([0, 1], 200)
    side = np.arange(400) % 2 == 0
    wrong = (y == 1) & side & (np.arange(400) % 4 == 0)  # half of the cell (1, above)
    before = _probabilities(np.where(wrong, 0, y), 2)
    still = wrong & (np.arange(400) % 8 == 0)
    after = _probabilities(np.where(still, 0, y), 2)
    # The cell has 100 rows, 50 wrong before and 25 after: a rise of .25 with a paired variance of 3/16.
    expected = 0.25 - np.sqrt(0.25 * 0.75 / 100)
    assert gain.slice_gain(side[None], y, [before] * 2, [before] * 2, [after] * 2) == pytest.approx(expected)
    noise = np.arange(400) % 3 == 0
    both = gain.slice_gain(np.stack([noise, side]), y, [before], [before], [after])
    assert both == pytest.approx(expected)
    assert gain.slice_gain(side[None], y, [after], [after], [before]) < -0.25
    # What beats class balance and not the model without weights is no gain.
    assert gain.slice_gain(side[None], y, [before], [after], [after]) == 0.0
    assert gain.slice_gain(np.zeros((0, 400), bool), y, [before], [before], [after]) == -1.0
    few = np.arange(400) < 0
    assert gain.slice_gain(few[None], y[:1].repeat(400), [before], [before], [after]) == -1.0


def test_mistakes_count_as_put_right_as_far_as_they_are_confident():
    y = np.zeros(300, int)
    before = np.concatenate(
        [_probabilities(np.ones(100, int), 2, 0.95), _probabilities(np.ones(100, int), 2, 0.55)]
    )
    before = np.concatenate([before, _probabilities(np.zeros(100, int), 2)])
    sure, border = 0.9**2, 0.1**2
    right = np.zeros(300, int)
    right[:100] = 1  # confident mistakes stay, those near the border and the last hundred are right
    part = 100 * border / (100 * (sure + border))
    spread = 100 * (sure**2 * max(part**2, 0.05) + border**2 * (1 - part) ** 2) / (100 * (sure + border)) ** 2
    found = gain.righted(y, [before], [_probabilities(right, 2)])
    assert found == pytest.approx(part - 2 * np.sqrt(spread))
    assert found < 0
    assert gain.righted(y, [before], [_probabilities(y, 2)]) > 0.9
    assert gain.righted(y, [_probabilities(y, 2)], [before]) == -1.0


def test_the_exchange_is_rows_put_right_for_each_made_wrong():
    y = np.zeros(100, int)
    before, after = np.zeros(100, int), np.zeros(100, int)
    before[:20] = 1  # 20 wrong rows, of which 6 become right, while 3 others become wrong
    after[6:23] = 1
    pair = [_probabilities(before, 2)], [_probabilities(after, 2)]
    assert gain.exchange(y, *pair) == pytest.approx(6 / 3)
    assert gain.exchange(y, pair[0], pair[0]) == 0.0
