"""Figures of drift: what they are, what chance makes of them, and when they count."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, fisher_exact, norm

from engine.recipe.incremental import DriftSection
from engine.runs.drift import _standardised
from operators.metrics.drift import Shift, column_shift, count_p_value, mmd_shift, rise, share_shift
from tests.on_arrays import mmd


def samples(n: int, m: int, shift: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(size=(n, 3)), rng.normal(size=(m, 3)) + shift]), np.arange(n + m) >= n


def test_the_distance_is_the_mmd() -> None:
    X, mask = samples(60, 40, 0.3, 0)
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    gamma = 1 / np.median(squares[np.triu_indices(len(X), 1)])
    assert mmd_shift(X, mask).value == pytest.approx(mmd(X, mask, gamma=gamma), rel=1e-9)


def test_chance_is_as_often_beyond_the_noise_as_it_says() -> None:
    found = [mmd_shift(*samples(50, 30, 0.0, seed), random_state=seed) for seed in range(60)]
    beyond = np.mean([shift.value > shift.noise for shift in found])
    assert beyond <= 0.15  # 0.05 expected; binomial(60, 0.05) is above 9 once in 1,000
    assert not any(shift.beyond(0.3) for shift in found)


def test_the_excess_does_not_depend_on_the_samples_sizes() -> None:
    sizes = [(100, 100), (400, 100), (400, 400)]
    means = [np.mean([mmd_shift(*samples(n, m, 0.7, seed)).excess for seed in range(5)]) for n, m in sizes]
    assert max(means) - min(means) < 0.05
    assert min(means) > 0.3


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=5), st.lists(st.integers(0, 50), min_size=1, max_size=5)
)
def test_shares_move_by_the_total_variation(then: list[int], now: list[int]) -> None:
    then[0], now[0] = then[0] + 1, now[0] + 1
    found = share_shift(dict(enumerate(then)), dict(enumerate(now)))
    size = max(len(then), len(now))
    p, q = (np.pad(np.array(x, float), (0, size - len(x))) for x in (then, now))
    assert found.value == pytest.approx(np.abs(p / p.sum() - q / q.sum()).sum() / 2)
    assert 0 <= found.excess <= found.value <= 1


def test_shares_of_the_same_size_are_no_drift_and_others_are() -> None:
    assert not share_shift({0: 900, 1: 100}, {0: 92, 1: 8}).beyond(0.0)
    assert share_shift({0: 900, 1: 100}, {0: 50, 1: 50}).beyond(0.1)


@pytest.mark.parametrize(("before", "after"), [((10, 100), (30, 150)), ((400, 1000), (90, 300))])
def test_the_noise_of_a_rise_is_the_quantile_of_a_difference_of_shares(
    before: tuple[int, int], after: tuple[int, int]
) -> None:
    (a, n), (b, m) = before, after
    share = (a + b) / (n + m)
    error = np.sqrt(share * (1 - share) * (1 / n + 1 / m))
    assert rise(before, after).noise == pytest.approx(norm.ppf(0.95) * error, rel=1e-3)
    random = np.random.default_rng(0)
    rises = random.binomial(m, share, 40_000) / m - random.binomial(n, share, 40_000) / n
    assert (rises > rise(before, after).noise).mean() == pytest.approx(0.05, abs=0.01)


def test_a_share_that_falls_is_no_rise() -> None:
    assert rise((10, 100), (30, 100)).beyond(0.05)
    assert not rise((30, 100), (10, 100)).beyond(0.0)
    assert not rise((10, 100), (11, 100)).beyond(0.0)


def test_both_samples_need_rows() -> None:
    for call in (
        lambda: mmd_shift(np.zeros((3, 1)), np.zeros(3, bool)),
        lambda: share_shift({0: 1}, {}),
        lambda: rise((0, 0), (1, 1)),
        lambda: column_shift(np.zeros((3, 1)), np.zeros((0, 1))),
    ):
        with pytest.raises(ValueError, match="need rows"):
            call()
    with pytest.raises(ValueError, match="samples of 1 and 0 rows"):
        share_shift({0: 1}, {})
    assert Shift(0.2, 0.1, 0.15, 0.01).beyond(0.1)
    assert not Shift(0.2, 0.1, 0.15, 0.01).beyond(0.1, level=0.001)
    assert not Shift(0.2, 0.1, 0.05, 0.01).beyond(0.1)


def table(n: int, seed: int, moved: int | None = None) -> np.ndarray:
    """38 columns: 20 normal ones, 6 skewed ones, 6 counts and 6 rare one-hot ones."""
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [
            rng.normal(size=(n, 20)),
            rng.exponential(size=(n, 6)),
            rng.poisson(2, (n, 6)),
            rng.random((n, 6)) < 0.03,
        ]
    )
    if moved is not None:
        X[:, moved] += 1
    return X.astype(np.float32)


LEVEL = DriftSection().level(5)


def test_the_budget_of_false_alarms_is_shared_out_over_nights_and_figures() -> None:
    any_alarm = 1 - (1 - 5 * LEVEL) ** 100
    assert any_alarm == pytest.approx(0.05, rel=0.01)
    assert DriftSection(runs=1, false_alarms=0.1).level(2) == pytest.approx(0.05)
    assert DriftSection.model_validate({"nights": 7}).runs == 7  # the key of earlier recipes


@pytest.mark.slow
def test_a_hundred_nights_without_drift_raise_no_alarm() -> None:
    """Before, 30 nights of 20 to 80 rows raised a false alarm with probability .75 to .96."""
    found = [column_shift(table(1000, 2 * seed), table(80, 2 * seed + 1)) for seed in range(100)]
    assert sum(shift.beyond(0.1, LEVEL) for shift in found) <= 1
    # The test keeps its level, too: 5 expected, more than 13 once in 2,000.
    assert sum(shift.p <= 0.05 for shift in found) <= 13


def test_mmd_keeps_small_levels() -> None:
    nights = [samples(60, 40, 0.0, seed) for seed in range(100)]
    p = np.array([mmd_shift(*night, permutations=100, random_state=s).p for s, night in enumerate(nights)])
    assert (p <= 0.05).sum() <= 13
    assert (p <= 0.001).sum() <= 1
    assert mmd_shift(*samples(200, 100, 1.0, 0), permutations=100).p < 1e-6


def test_one_column_of_38_that_moves_by_one_standard_deviation_is_found() -> None:
    found = [column_shift(table(1000, 2 * seed), table(100, 2 * seed + 1, moved=7)) for seed in range(20)]
    assert all(shift.beyond(0.1, LEVEL) for shift in found)
    assert all(shift.columns[0] == 7 for shift in found)
    assert all((shift.noise, shift.excess) == (0, shift.value) for shift in found)  # p alone is of chance
    X = np.concatenate([table(300, 0), table(100, 1, moved=7)])
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    assert not mmd_shift(scaled, np.arange(400) >= 300).beyond(0.15, LEVEL)  # too little of the whole


def test_counts_are_compared_as_scipy_does() -> None:
    counts = np.array([[400, 300, 200], [60, 20, 40]])
    assert count_p_value(counts) == pytest.approx(chi2_contingency(counts, correction=False).pvalue)
    rare = np.array([[500, 480, 3, 2, 1], [60, 40, 0, 0, 1]])
    joined = np.array([[486, 500], [41, 60]])
    assert count_p_value(rare) == pytest.approx(fisher_exact(joined).pvalue)
    assert count_p_value(np.array([[10], [20]])) == 1.0


def test_constant_columns_and_no_columns_do_not_move() -> None:
    assert column_shift(np.ones((50, 2)), np.ones((9, 2))).p == 1.0
    assert column_shift(np.empty((50, 0)), np.empty((9, 0))).p == 1.0


def test_a_column_of_few_values_moves_by_the_total_variation() -> None:
    before, after = np.repeat([0.0, 1.0], [900, 100])[:, None], np.repeat([0.0, 1.0], [50, 50])[:, None]
    assert column_shift(before, after).value == pytest.approx(0.4)


@pytest.mark.parametrize("value", [0.1, -1e9])
def test_a_feature_that_was_constant_is_centred_alone(value: float) -> None:
    old = np.full((5000, 1), value, np.float32)
    found = _standardised(old, old[:1] + np.float32(256))
    assert np.abs(found).max() == pytest.approx(256, rel=1e-3)
