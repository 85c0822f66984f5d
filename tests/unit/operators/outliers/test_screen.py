"""Rows whose neighbours are not looked up: none of them could be marked, and the others keep every bit."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from operators.outliers.assessment import assess
from operators.outliers.screen import COLUMNS
from operators.outliers.verdict import VerdictState, fit
from tests.unit.operators.outliers.problems import Problem, separable


@cache
def learnt() -> tuple[VerdictState, Problem]:
    """A verdict from the first 1,000 of 3,000 rows."""
    problem = separable(n=3000, flips=0.08)
    return fit(problem.X[:1000], problem.y[:1000], problem.row_ids[:1000]), problem


def test_marks_are_those_of_a_full_search_and_few_scores_are_estimated() -> None:
    state, (X, y, ids, _) = learnt()
    assert state.screen is not None
    found, full = assess(state, X, y, ids), assess(replace(state, screen=None), X, y, ids)
    assert full.is_outlier[1000:].sum() > 50
    np.testing.assert_array_equal(found.is_outlier, full.is_outlier)
    np.testing.assert_array_equal(found.kind, full.kind)
    same = found.score == full.score
    assert same[:1000].all()
    assert same[found.is_outlier].all()
    assert 0.1 < same[1000:].mean() < 0.5
    assert np.corrcoef(found.score[~same], full.score[~same])[0, 1] > 0.9
    assert found.score[~same].max() < full.score[found.is_outlier].min()


def test_no_votes_could_mark_a_row_that_is_left_out() -> None:
    state, (X, y, ids, _) = learnt()
    screen = state.screen
    assert screen is not None
    everyone = replace(state, screen=replace(screen, cut=np.inf))
    only_bound, full = assess(everyone, X, y, ids), assess(replace(state, screen=None), X, y, ids)
    np.testing.assert_array_equal(only_bound.is_outlier, full.is_outlier)
    assert (only_bound.score[1000:] == full.score[1000:]).mean() < 0.5
    assert (screen.least < screen.largest).all()
    assert len(COLUMNS) == 2
