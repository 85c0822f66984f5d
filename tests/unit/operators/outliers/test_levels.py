"""The level at which flips hold among rows that contradict their labels most surely."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from operators.outliers.levels import NONE, fit_levels, needed_log_ratio, posteriors_by_kind
from operators.outliers.mixture import Ratios


def log_ratios(share: float, n: int = 5000, far: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Observed rows, of which a share is flipped and most of the others are far from flips; flipped ones."""
    rng = np.random.default_rng(0)
    flipped = rng.random(n) < share
    observed = rng.normal(np.where(flipped, far, 0.0), 1.0)
    return observed, rng.normal(far, 1.0, n)


def posterior(levels: np.ndarray, at: float) -> float:
    ratios = Ratios(np.array([0]), np.zeros(1), np.ones(1), np.ones((1, 1)), np.zeros(1), np.zeros(1), levels)
    return float(posteriors_by_kind(ratios, np.array([[at]]), np.zeros(1))[0, 0])


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1])
def test_rows_at_the_level_are_mostly_flips_and_others_are_not(share: float) -> None:
    levels = fit_levels(*log_ratios(share), share)
    assert 0.65 < posterior(levels, 4.0) <= 1.0
    assert posterior(levels, 0.0) == 0.0
    assert (np.diff(levels[:, 0]) > 0).all()
    assert (np.diff(levels[:, 1]) >= 0).all()


def test_rows_without_flips_have_no_level() -> None:
    observed, flipped = log_ratios(0.0)
    assert posterior(fit_levels(observed, flipped, 0.01), 3.0) < 0.5


def test_ambiguity_that_falls_on_is_no_level() -> None:
    rng = np.random.default_rng(0)
    flipped = rng.normal(3.0, 1.0, 5000)
    observed = np.r_[rng.normal(-1.0, 1.0, 4600), rng.normal(2.0, 1.0, 400)]
    assert len(fit_levels(observed, flipped, 0.05)) == 0


def test_a_level_counts_only_where_flips_are_far_from_most_rows() -> None:
    observed, flipped = log_ratios(0.1, far=1.2)
    assert len(fit_levels(observed, flipped, 0.1)) == 0


@pytest.mark.parametrize("prevalence", [0.0, 0.05])
def test_without_flips_or_rows_there_is_nothing(prevalence: float) -> None:
    observed, flipped = log_ratios(0.05)
    few = observed[:10] if prevalence else observed
    np.testing.assert_array_equal(fit_levels(few, flipped, prevalence), NONE)


def test_posteriors_are_at_least_those_of_the_line_and_sum_to_at_most_one() -> None:
    levels = np.array([[0.0, 0.2], [1.0, 0.9]])
    line = Ratios(np.array([0]), np.zeros(1), np.ones(1), np.array([[1.0], [0.5]]), np.zeros(2), np.zeros(2))
    E, prevalence = np.linspace(-2, 4, 50)[:, None], np.array([0.05, 0.3])
    alone, both = (posteriors_by_kind(r, E, prevalence) for r in (line, replace(line, levels=levels)))
    assert (both[:, 0] >= alone[:, 0] - 1e-12).all()
    np.testing.assert_array_equal(both[:, 1], alone[:, 1])
    assert both.sum(axis=1).max() <= 1 + 1e-12
    assert both[E[:, 0] < 0, 0] == pytest.approx(alone[E[:, 0] < 0, 0])


def test_no_row_below_the_needed_log_ratio_reaches_the_threshold() -> None:
    levels = np.array([[0.0, 0.2], [1.0, 0.6], [2.0, 0.9]])
    needed = needed_log_ratio(levels, 0.7)
    assert posterior(levels, needed - 1e-9) < 0.7
    assert posterior(levels, 2.0) >= 0.7
    assert needed_log_ratio(levels, 0.95) == np.inf
    assert needed_log_ratio(NONE, 0.5) == np.inf
