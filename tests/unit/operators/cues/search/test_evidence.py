"""Measurements of a shortcut, and the gate that they open."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import get_args

import numpy as np
import pytest

from operators.cues.search import evidence
from operators.cues.search.ramps import Measurement


def test_mistake_confidence_tells_even_scores_from_a_binary_cue():
    rng = np.random.default_rng(6)
    u = rng.random(200_000)  # Calibrated, margin uniform: wrong with chance (1 - u) / 2.
    wrong = rng.random(len(u)) < (1 - u) / 2
    assert abs((u[wrong] ** 2).mean() - 1 / 6) < 0.01


def test_class_correlation_is_the_mean_within_classes():
    rng = np.random.default_rng(7)
    y = rng.integers(0, 2, 400)
    a, b = rng.normal(size=400) + 50 * y, rng.normal(size=400) - 50 * y
    expected = np.mean([np.corrcoef(a[y == c], b[y == c])[0, 1] for c in (0, 1)])
    assert np.isclose(evidence.class_correlation(a, b, y), expected)
    assert evidence.class_correlation(np.ones(400), b, y) == 0.0


GOOD = evidence.Evidence(
    agreement=0.7,
    mistake_confidence=0.5,
    crispness=0.95,
    recovery=0.8,
    error=0.1,
    cost=0.0,
    gain=0.1,
    righted=0.1,
)


def test_one_missing_kind_of_evidence_shuts_the_gate():
    weak = replace(GOOD, error=0.2)  # enough where slices and twins agree
    assert weak.gate() == 1.0
    for name, bad in (
        ("agreement", 0.4),
        ("mistake_confidence", 0.1),
        ("crispness", 0.8),
        ("recovery", 0.0),
        ("error", 0.3),
        ("gain", 0.005),
        ("exchange", 0.05),
        ("cost", 0.18),
        ("share_support", 0.0),
    ):
        found = replace(weak, **{name: bad})
        assert found.gate() == 0.0
        assert found.weakest() == name


def test_a_shortcut_in_no_single_feature_needs_the_other_evidence_to_be_strong():
    spread = replace(GOOD, agreement=0.6, mistake_confidence=0.4, recovery=0.65, cost=0.05, gain=-0.05)
    assert spread.gate() == 1.0
    assert evidence.slice_part(0.1) == 0.0
    assert evidence.slice_part(0.95) == 0.5
    for name, bad in (("mistake_confidence", 0.3), ("crispness", 0.86), ("recovery", 0.5), ("error", 0.2)):
        assert replace(spread, **{name: bad}).gate() == 0.0
        assert replace(spread, **{name: bad, "agreement": 0.7, "gain": 0.1}).gate() > 0.0
    shut = {"righted": 0.01, "gain": -0.3, "agreement": 0.9, "exchange": 0.05, "share_support": 0.0}
    for name, bad in shut.items():
        assert replace(spread, **{name: bad}).gate() == 0.0


def test_hard_rows_of_an_honest_table_are_no_spread_shortcut():
    """Neither do the slices of features agree with the twins, nor does balancing one of them gain much."""
    hard = replace(GOOD, agreement=0.45, mistake_confidence=0.4, recovery=0.65, gain=0.05, exchange=0.4)
    assert hard.gate() == 0.0
    assert replace(hard, gain=0.15).gate() == pytest.approx(0.5)
    assert replace(hard, agreement=0.565, gain=0.0).gate() == pytest.approx(0.5)
    assert replace(hard, classes=3).gate() == pytest.approx(5 / 6)
    assert replace(hard, classes=3, agreement=0.39).gate() == 0.0


def test_a_rotated_shortcut_is_a_crisp_rule_that_costs_more_rows_than_it_gains():
    rotated = replace(GOOD, agreement=0.2, crispness=0.96, recovery=0.8, gain=-0.05, exchange=0.2)
    assert rotated.gate() == 1.0
    assert replace(rotated, crispness=0.93).gate() == 0.0
    assert replace(rotated, exchange=0.36).gate() == 0.0


def test_costly_weights_for_one_feature_shut_the_gate_and_for_a_spread_shortcut_do_not():
    single = replace(GOOD, agreement=0.9, error=0.2)
    assert single.gate() == 1.0
    assert 0 < replace(single, cost=0.14).gate() < 0.6
    assert replace(single, cost=0.18).gate() == 0.0
    assert replace(GOOD, agreement=0.6, recovery=0.6, cost=0.18).gate() == 1.0
    assert replace(GOOD, agreement=0.9, recovery=0.6, cost=0.18).gate() == 0.0


def test_with_many_classes_a_measured_gain_stands_in_for_the_recovery_of_the_worst_class():
    found = replace(GOOD, recovery=0.1)
    assert found.gate() == 0.0
    assert replace(found, classes=5).gate() == 1.0
    assert replace(found, classes=5, gain=0.02).gate() == 0.0


def test_slices_have_a_smaller_part_with_more_classes():
    assert [evidence.slice_part(0.95, C) for C in (2, 4, 5)] == [0.5, 0.25, 0.2]


def test_without_a_strong_slice_few_righted_rows_are_named_as_the_reason():
    shut = replace(GOOD, slice_strength=0.0, exchange=0.1)
    assert (shut.gate(), shut.weakest()) == (0.0, "without_strong_slice")


def test_the_names_of_measurements_are_those_of_the_evidence():
    derived = {"relative_error", "slice_dominance"}
    assert {*get_args(Measurement)} == {one.name for one in fields(evidence.Evidence)} | derived
