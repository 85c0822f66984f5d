"""Alpha: why sum log w cannot pick it, what the label-free rule finds, and the validation grid."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import chi2
from sklearn.datasets import load_breast_cancer

from operators.eos import EntropicOutlierSparsification, Gaussian, KMeans, LeastSquares, alpha, memory
from operators.eos.alpha import (
    AlphaPoint,
    alpha_sample,
    choose_alpha,
    effective_sample_size_curve,
    least_rows,
)
from operators.eos.losses import FixedLosses
from operators.eos.memory import fitted, rows_of
from tests.on_arrays import closed_form_weights


def contaminated(
    n: int, d: int, share: float, seed: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """The paper's synthetic rows: standard normal, and outliers uniform on [1, 6]^d."""
    rng = np.random.default_rng(seed)
    is_outlier = np.arange(n) >= round((1 - share) * n)
    return np.where(is_outlier[:, None], rng.uniform(1, 6, (n, d)), rng.normal(size=(n, d))), is_outlier


def test_the_papers_likelihood_has_no_finite_maximum() -> None:
    g = np.random.default_rng(0).exponential(size=500)
    sums = [np.log(closed_form_weights(g, alpha)).sum() for alpha in np.geomspace(0.1, 1e6, 40)]
    assert np.all(np.diff(sums) > 0)
    assert sums[-1] == pytest.approx(-500 * np.log(500))


@pytest.mark.parametrize("d", [3, 10, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("share", [0.05, 0.3])
def test_auto_finds_the_papers_outliers(d: int, share: float) -> None:
    X, is_outlier = contaminated(1000, d, share, seed=100)
    found = EntropicOutlierSparsification(random_state=0).fit(X).outlier_mask_
    assert (found & is_outlier).sum() >= 0.95 * found.sum()
    assert (found & is_outlier).sum() >= (0.8 if d == 3 else 0.99) * is_outlier.sum()


@pytest.mark.parametrize("d", [3, 10, pytest.param(40, marks=pytest.mark.slow)])
def test_auto_leaves_clean_rows_alone(d: int) -> None:
    X, _ = contaminated(1000, d, 0.0, seed=101)
    model = EntropicOutlierSparsification(random_state=0).fit(X)
    assert model.outlier_mask_.mean() <= 0.005
    assert model.effective_sample_size_ >= 0.7 * len(X)


def test_units_and_axes_of_the_features_do_not_matter() -> None:
    X, _ = contaminated(500, 4, 0.1, seed=102)
    moved = X @ np.random.default_rng(0).normal(size=(4, 4)) * 1e3 + 1e4
    found = [EntropicOutlierSparsification(random_state=0).fit(rows) for rows in (X, moved)]
    assert found[0].alpha_ == pytest.approx(found[1].alpha_, rel=1e-3)
    np.testing.assert_array_equal(found[0].outlier_mask_, found[1].outlier_mask_)


def test_the_gaussian_curve_is_the_closed_form() -> None:
    d, threshold = 4, 0.01
    X = np.random.default_rng(0).normal(size=(20_000, d))
    for point in effective_sample_size_curve(rows_of(X), Gaussian()):
        kappa = d * point.alpha
        if kappa < 1.5 or point.effective_share < 0.4:
            continue
        assert point.effective_share == pytest.approx((1 - kappa**-2) ** (d / 2), abs=0.02)
        cut = (kappa - 1) * (-2 * np.log(threshold) + d * np.log(kappa / (kappa - 1)))
        assert point.flagged_share == pytest.approx(
            chi2.sf(cut, d), abs=4 * np.sqrt(chi2.sf(cut, d) / len(X)) + 1e-4
        )


def test_the_flagged_shares_are_those_of_each_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares of the prior weight, over all rows and of the worst class; class 1 of 0, 1, 2 has no row."""
    flagged = np.array([True, False, False, False, True, True, False, False])
    prior = np.array([2.0, 1.0, 1.0, 1.0, 1.0, 0.5, 1.5, 2.0])
    statistics = SimpleNamespace(log_weights=lambda found: -found)
    fit: Any = SimpleNamespace(model=None, statistics=statistics)
    monkeypatch.setattr(alpha, "losses", lambda *_: np.where(flagged, 5.0, 4.0))
    X, y = np.zeros((8, 1)), np.array([0, 0, 0, 0, 2, 2, 2, 2])
    threshold = np.exp(-4.5)
    all_rows, of_class = 3.5 / 10, {0: 2 / 5, 2: 1.5 / 5}
    found = alpha.flagged_shares(fit, rows_of(X, y, prior), threshold)
    assert found == pytest.approx((all_rows, max(of_class.values())))
    # What has no classes is one: no target, a target of numbers, several targets.
    for target in (None, y.astype(float), np.stack([y, y], axis=1)):
        assert alpha.flagged_shares(fit, rows_of(X, target, prior), threshold) == pytest.approx((0.35, 0.35))


def test_regression_outliers_are_found() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 5))
    y = X @ np.arange(5) + rng.normal(size=800)
    y[:80] += 15
    model = EntropicOutlierSparsification(LeastSquares(), random_state=0).fit(X, y)
    assert model.outlier_mask_[:80].all()
    assert model.outlier_mask_[80:].mean() <= 0.05


def test_the_least_efficient_enough_alpha_is_taken() -> None:
    values = ((4, 0.99, 0), (3, 0.6, 0), (2, 0.7, 0.2), (1, 0.5, 0.2), (0.5, 0.3, 0.7))
    curve = [AlphaPoint(alpha, share, flagged, flagged) for alpha, share, flagged in values]
    assert choose_alpha(curve, 0.75) == 2
    assert choose_alpha(curve, 0.9) == 4
    assert choose_alpha(curve, 0.4) == 1
    assert choose_alpha(curve, 0.999) == 4
    flagged = [AlphaPoint(4, 0.95, 0.02, 0.02), AlphaPoint(2, 0.9, 0.08, 0.08), AlphaPoint(1, 0.8, 0.3, 0.3)]
    assert [choose_alpha(flagged, 0.75, most) for most in (0.5, 0.1, 0.01)] == [1, 2, 4]
    assert choose_alpha([curve[0], AlphaPoint(1, 0.9, 0.3, 0.8)], 0.75) == 4  # most of a class is flagged


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["logistic", "spa"])
def test_auto_keeps_both_classes(loss: str) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    wrong = np.random.default_rng(0).random(len(y)) < 0.1
    model = EntropicOutlierSparsification(loss, random_state=0).fit(X, np.where(wrong, 1 - y, y))
    for label in (0, 1):
        assert model.outlier_mask_[y == label].mean() < 0.5
    assert model.weights_[wrong].mean() < model.weights_[~wrong].mean()


@pytest.mark.parametrize(("learner", "d"), [(Gaussian(), 40), (KMeans(8), 5)])
def test_a_model_that_follows_every_row_flags_none(learner: Any, d: int) -> None:
    for n in (3, 9, 12, 30, 41):
        if n >= least_rows(learner.start(np.eye(50, d), None, np.ones(50), 0)):
            continue
        X = np.random.default_rng(0).normal(size=(n, d))
        assert effective_sample_size_curve(rows_of(X), learner) == []
        with pytest.warns(UserWarning, match=f"{n} rows are too few to choose alpha: the model needs"):
            model = EntropicOutlierSparsification(learner, random_state=0).fit(X)
        assert model.alpha_ == np.inf
        assert not model.outlier_mask_.any()
        np.testing.assert_allclose(model.weights_, 1 / n)
        assert model.predict(X + 100).tolist() == [1] * n


@pytest.mark.parametrize(("learner", "d"), [(Gaussian(), 10), (Gaussian(), 40), (KMeans(8), 5)])
def test_from_the_least_number_of_rows_on_few_clean_ones_are_flagged(learner: Any, d: int) -> None:
    n = least_rows(learner.start(np.eye(50, d), None, np.ones(50), 0))
    flagged = [
        EntropicOutlierSparsification(learner, random_state=0)
        .fit(np.random.default_rng(seed).normal(size=(n, d)))
        .outlier_mask_.mean()
        for seed in range(4)
    ]
    assert np.mean(flagged) <= 0.03


def test_alpha_is_chosen_on_as_many_rows_as_the_model_needs() -> None:
    rows = rows_of(np.random.default_rng(0).normal(size=(5000, 1100)).astype(np.float32))
    assert len(alpha_sample(rows, Gaussian(), 0)) == 2 * (2 * 1101 + 20) > memory.SAMPLE


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_the_unit_of_losses_does_not_matter_where_most_are_equal(unit: float) -> None:
    losses = np.where(np.arange(1000) < 970, 0.0, 1.0)[:, None] * unit
    curve = effective_sample_size_curve(rows_of(losses), FixedLosses())
    fit = fitted(rows_of(losses), FixedLosses(), choose_alpha(curve), tol=1e-6, max_iter=10)
    assert alpha.flagged_shares(fit, rows_of(losses), 0.01)[0] == pytest.approx(0.03)
    assert choose_alpha(curve) / unit < 0.1


@pytest.mark.parametrize("offset", [1e6, 1e8])
@pytest.mark.parametrize("loss", ["kmeans", "spa"])
def test_distances_do_not_depend_on_the_origin(loss: str, offset: float) -> None:
    X, y = np.random.default_rng(0).normal(size=(300, 3)), np.arange(300) % 2
    X[:5] += 20
    here = EntropicOutlierSparsification(loss, random_state=0).fit(X, y)
    there = EntropicOutlierSparsification(loss, random_state=0).fit(X + offset, y)
    assert there.converged_
    assert there.alpha_ == pytest.approx(here.alpha_, rel=1e-4)
    np.testing.assert_array_equal(there.outlier_mask_, here.outlier_mask_)


def test_rows_that_are_all_alike_have_equal_weights() -> None:
    (point,) = effective_sample_size_curve(rows_of(np.ones((30, 2))), Gaussian())
    assert (point.effective_share, point.flagged_share, point.worst_share) == (1, 0, 0)
    model = EntropicOutlierSparsification(random_state=0).fit(np.ones((30, 2)))
    np.testing.assert_allclose(model.weights_, 1 / 30)
    assert not model.outlier_mask_.any()
