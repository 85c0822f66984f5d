import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog

from operators.metrics import cvar

losses = arrays(np.float64, st.integers(1, 25), elements=st.floats(0, 1))
alphas = st.floats(0.001, 1)


@given(losses, alphas)
def test_cvar_is_the_worst_reweighting(values, alpha):
    n = len(values)
    best = linprog(-values, A_eq=np.ones((1, n)), b_eq=[1], bounds=(0, max(1 / n, 1 / (alpha * n))))
    assert cvar(values, alpha) == pytest.approx(-best.fun, abs=1e-9)


@given(losses, alphas, st.integers(0, 2**32 - 1))
def test_weighted_cvar_is_the_worst_reweighting(values, alpha, seed):
    weights = np.random.default_rng(seed).integers(0, 4, len(values)).astype(float)
    weights[0] = 5.0  # they are not all equal, and not all 0
    if len(values) == 1:
        assert cvar(values, alpha, sample_weight=weights) == pytest.approx(values[0], abs=1e-9)
        return
    most = weights / weights.sum() / alpha
    best = linprog(-values, A_eq=np.ones((1, len(values))), b_eq=[1], bounds=[(0, one) for one in most])
    assert cvar(values, alpha, sample_weight=weights) == pytest.approx(-best.fun, abs=1e-9)


@given(losses, alphas)
def test_cvar_of_zero_one_losses(values, alpha):
    wrong = np.round(values)
    expected = min(1, wrong.mean() / alpha) if alpha * len(wrong) >= 1 else wrong.max()
    assert cvar(wrong, alpha) == pytest.approx(expected)


def test_fractional_tail_and_its_ends():
    values = [0.0, 1.0, 0.5, 0.2]
    assert cvar(values, 0.375) == pytest.approx((1 + 0.5 * 0.5) / 1.5)  # one row and a half
    assert cvar(values, 1) == pytest.approx(np.mean(values))
    assert cvar(values, 0.01) == 1.0  # below one row: the worst


def test_five_models_that_share_their_errors():
    """Zhai et al., section 2: each at 90 %, every row right for four of five: 10 %-CVaR 1 alone, .2 mixed."""
    models = np.zeros((50, 5))
    for model in range(5):
        models[model * 5 : model * 5 + 5, model] = 1
    assert [cvar(model, 0.1) for model in models.T] == [1.0] * 5
    assert cvar(models.mean(axis=1), 0.1) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("values", "alpha", "message"),
    [
        ([], 0.1, "at least one row"),
        ([[0.1, 0.2]], 0.1, "shape"),
        ([0.1, np.nan], 0.1, "1 of 2 losses are not finite"),
        ([0.1], 0, "alpha is 0"),
        ([0.1], 1.5, "alpha is 1.5"),
    ],
)
def test_bad_input_is_named(values, alpha, message):
    with pytest.raises(ValueError, match=message):
        cvar(values, alpha)
