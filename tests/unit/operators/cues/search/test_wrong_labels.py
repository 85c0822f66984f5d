"""Wrong labels on an honest table: models mistake them, and the weights put them right at a high price."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from operators.cues import fit
from operators.cues.decision.full_weights import tried_in_full
from operators.cues.decision.sample_decision import Sample
from operators.cues.search.evidence import LEAST_AGREEMENT, UNSEEN, Evidence
from operators.cues.search.ramps import NO_STRONG_SLICE, SLICE_VETO

OPEN = Evidence(
    agreement=0.8,
    mistake_confidence=0.5,
    crispness=0.98,
    recovery=0.8,
    error=0.1,
    cost=0.05,
    gain=0.3,
    righted=0.2,
    exchange=NO_STRONG_SLICE["exchange"][1],
)
SHUT = replace(OPEN, exchange=NO_STRONG_SLICE["exchange"][0])


def test_without_a_leading_column_the_weights_have_to_put_many_rows_right() -> None:
    assert (OPEN.gate(), SHUT.gate()) == (1.0, 0.0)
    assert (OPEN.looks_like_wrong_labels(), SHUT.looks_like_wrong_labels()) == (False, True)
    led = replace(SHUT, slice_strength=0.6, slice_ratio=0.9, slice_dependence=0.5, slice_unevenness=1.0)
    assert (led.gate(), led.looks_like_wrong_labels()) == (1.0, False)
    many = replace(SHUT, classes=3)
    assert (many.gate(), many.looks_like_wrong_labels()) == (1.0, False)


@pytest.mark.parametrize(
    ("lead", "strength", "opened"), [(0.0, 0.8, 0), (0.4, 0.8, 0), (0.7, 0.8, 1), (0, 0.6, 1)]
)
def test_the_others_judge_a_column_that_no_slice_shows(lead: float, strength: float, opened: int) -> None:
    honest = replace(OPEN, slice_strength=lead, column_strength=strength, column_support=0.0)
    assert (strength < lead + UNSEEN) == (lead == 0.7)
    assert (strength <= SLICE_VETO[0]) == (strength == 0.6)
    assert honest.gate() == opened
    assert honest.looks_like_wrong_labels() == (not opened)
    assert replace(honest, column_support=1.0).gate() == 1.0


def test_twins_with_which_no_slice_agrees_follow_an_honest_column() -> None:
    honest = replace(OPEN, agreement=LEAST_AGREEMENT - 0.1, column_strength=0.6, column_support=0.0)
    assert honest.gate() == 0.0
    assert honest.looks_like_wrong_labels()
    assert replace(honest, column_support=1.0).gate() > 0.5
    assert replace(honest, agreement=LEAST_AGREEMENT).gate() > 0.5
    assert replace(honest, column_strength=UNSEEN / 2).gate() > 0.5


def test_full_weights_are_not_tried_where_mistakes_look_like_wrong_labels() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 2000)
    X = rng.normal(size=(2000, 4)).astype(np.float32) + y[:, None]
    ids = np.arange(2000, dtype=np.uint64)
    state = fit(X, y, ids)
    sample, settings = Sample(X, y, ids, np.bincount(y)), None
    assert tried_in_full(replace(state, evidence=SHUT), None, sample, settings) == []
