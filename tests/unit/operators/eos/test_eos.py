"""The kernel of EOS: closed-form weights, monotone descent, learners against scikit-learn, the estimator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.cluster import KMeans as LloydKMeans
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge

from operators.eos import SPA, EntropicOutlierSparsification, Gaussian, KMeans, LeastSquares, Logistic
from operators.eos.descent import Descent, from_sums
from operators.eos.kernel import (
    BLOCK,
    collect_statistics,
    merged,
    random_rows,
    random_weights,
    statistics_of_losses,
)
from operators.eos.losses import FixedLosses, GaussianModel
from operators.eos.memory import SAMPLE, collect, fitted, losses, rows_of, step, weights
from tests.on_arrays import closed_form_weights

Floats = npt.NDArray[np.float64]
LEARNERS = [Gaussian(), KMeans(4), LeastSquares(), LeastSquares(0.1), Logistic(), SPA(4)]
numbers = st.lists(st.floats(-50, 50), min_size=1, max_size=30)


def problem(learner: Any, n: int = 300, d: int = 4, seed: int = 0) -> tuple[Floats, Any]:
    """Rows with a tenth of outliers, and targets of the kind that the learner needs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 3 * rng.integers(0, 2, (n, 1))
    X[: n // 10] = rng.uniform(6, 12, (n // 10, d))
    y = {"none": None, "class": (X[:, 0] + rng.normal(size=n) > 2).astype(int), "number": X @ np.arange(d)}
    y["number"] += rng.normal(size=n)
    y["number"][: n // 20] += 30
    return X, y[learner.target]


@given(found=numbers, alpha=st.floats(0.05, 20), data=st.data())
def test_weights_are_a_softmax(found: list[float], alpha: float, data: st.DataObject) -> None:
    g = np.array(found)
    prior = np.array(data.draw(st.lists(st.floats(0.1, 5), min_size=len(g), max_size=len(g))))
    np.testing.assert_allclose(closed_form_weights(g, alpha), softmax(-g / alpha), rtol=1e-9, atol=1e-300)
    expected = softmax(-g / alpha + np.log(prior))
    np.testing.assert_allclose(closed_form_weights(g, alpha, prior), expected, rtol=1e-9, atol=1e-300)
    total = statistics_of_losses(g, prior, alpha)
    np.testing.assert_allclose(total.objective, -alpha * logsumexp(-g / alpha, b=prior), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(total.effective_sample_size, 1 / (expected @ expected), rtol=1e-9)
    np.testing.assert_allclose(
        np.exp(total.log_weights(g)) * prior / prior.sum(), expected, rtol=1e-9, atol=1e-300
    )


def test_weights_solve_the_problem() -> None:
    g, alpha = np.random.default_rng(0).normal(size=6), 0.7

    def value(logits: Floats) -> float:
        w = softmax(logits)
        return float(w @ g + alpha * w @ np.log(w))

    found = minimize(value, np.zeros(6), tol=1e-12)
    np.testing.assert_allclose(softmax(found.x), closed_form_weights(g, alpha), atol=1e-5)
    assert found.fun == pytest.approx(statistics_of_losses(g, np.ones(6), alpha).objective)


@given(found=numbers, cuts=st.lists(st.integers(0, 30), max_size=4), alpha=st.sampled_from([1e-3, 0.5, 1e6]))
def test_parts_merge_to_the_whole(found: list[float], cuts: list[int], alpha: float) -> None:
    g = np.array(found)
    prior = np.arange(1.0, len(g) + 1)
    parts = [part for part in np.split(np.arange(len(g)), sorted(min(c, len(g)) for c in cuts)) if len(part)]
    total = merged(
        statistics_of_losses(g[part], prior[part], alpha, lambda w, part=part: np.array([w @ g[part]]))
        for part in parts
    )
    whole = statistics_of_losses(g, prior, alpha, lambda w: np.array([w @ g]))
    assert total.low == whole.low
    assert total.prior == whole.prior
    for name in ("mass", "square", "sums"):
        np.testing.assert_allclose(getattr(total, name), getattr(whole, name), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_part_of_smaller_losses_rescales_those_before_it(order: tuple[int, ...]) -> None:
    parts = [np.array([2.0, 3.0]), np.array([0.5, 4.0]), np.array([1.0, 1.5])]
    total = merged(statistics_of_losses(parts[k], np.ones(2), 0.7) for k in order)
    w = softmax(-np.concatenate(parts) / 0.7)
    assert total.effective_sample_size == pytest.approx(1 / (w @ w))
    assert total.objective == pytest.approx(-0.7 * logsumexp(-np.concatenate(parts) / 0.7))


def test_far_losses_do_not_overflow() -> None:
    w = closed_form_weights(np.array([-1e8, 0.0, 1e8]), 1e-3)
    assert w.tolist() == pytest.approx([1, 0, 0])
    total = merged(statistics_of_losses(np.array([g]), np.ones(1), 1e-3) for g in (1e8, -1e8, 0.0))
    assert (total.mass, total.low) == (1, -1e8)


def test_given_losses_are_weighed_in_one_step() -> None:
    """Weights and objective are those of the closed form (SciPy), as no parameter can lower the losses."""
    g = np.random.default_rng(2).gamma(2.0, size=2500)
    rows = rows_of(g[:, None])
    fit = fitted(rows, FixedLosses(), 0.7, tol=1e-9, max_iter=100)
    np.testing.assert_allclose(weights(fit.model, fit.statistics, rows), softmax(-g / 0.7), rtol=1e-9)
    np.testing.assert_allclose(fit.objective, -0.7 * logsumexp(-g / 0.7), rtol=1e-12)
    assert fit.converged


@pytest.mark.parametrize("learner", LEARNERS, ids=repr)
@pytest.mark.parametrize("alpha", [0.1, 0.5, 3.0])
@pytest.mark.parametrize("draw", [None, 5])
def test_objective_is_that_of_alternating_minimisation(learner: Any, alpha: float, draw: int | None) -> None:
    """Steps made one by one, with the weights by SciPy: none raises L, and fit records their values."""
    X, y = problem(learner)
    rows = rows_of(X, y)
    fit = fitted(rows, learner, alpha, draws=[draw], tol=1e-9, max_iter=100)
    assert len(fit.objective) > 1
    start = learner.start(X, y, rows.prior, 0)
    model, values = step(start, collect(start, rows, np.inf, draw), rows, draw), list[float]()
    for _ in fit.objective:
        g = losses(model, X, y)
        values.append(float(-alpha * logsumexp(-g / alpha) + model.penalty))
        model = step(model, collect(model, rows, alpha), rows, None)
    np.testing.assert_allclose(fit.objective, values, rtol=1e-9, atol=1e-9)
    # The solver of the logistic loss stops at a tolerance; the others are exact.
    rounding = 1e-6 if isinstance(learner, Logistic) else 1e-9
    assert np.diff(values).max() <= rounding * max(1, abs(values[0]))
    w = weights(fit.model, fit.statistics, rows)
    assert w.sum() == pytest.approx(1)
    positive = w[w > 0]
    by_definition = w @ losses(fit.model, X, y) + alpha * positive @ np.log(positive) + fit.model.penalty
    assert by_definition == pytest.approx(fit.objective[-1], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("learner", LEARNERS, ids=repr)
def test_a_fit_is_the_best_for_its_weights(learner: Any) -> None:
    """A second theta-step with the same weights changes nothing, nor does a step in any direction help."""
    X, y = problem(learner)
    rows = rows_of(X, y, np.random.default_rng(1).uniform(0.1, 2, len(X)))
    model = learner.start(X, y, np.ones(len(X)), 0)
    value = np.inf
    for _ in range(60):
        model = step(model, collect(model, rows, np.inf), rows, None)
        now = rows.prior @ losses(model, X, y) / rows.prior.sum() + model.penalty
        assert now <= value + 1e-8
        value = now
    again = step(model, collect(model, rows, np.inf), rows, None)
    np.testing.assert_allclose(losses(again, X, y), losses(model, X, y), rtol=1e-3, atol=1e-6)


def test_the_ridge_of_many_targets_is_that_of_scikit_learn() -> None:
    """(1/M) |y - B'x - b|^2 averaged over n rows, plus l2 |B|^2: Ridge with alpha = l2 n M."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 4)) * [1, 10, 0.1, 3] + 5
    y = X @ rng.normal(size=(4, 3)) + rng.normal(size=(60, 3))
    rows, learner = rows_of(X, y), LeastSquares(l2=0.3)
    model = learner.start(X, y, rows.prior, 0)
    model = step(model, collect(model, rows, np.inf), rows, None)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    expected = Ridge(alpha=0.3 * 60 * 3, tol=1e-12).fit(Z, y)
    np.testing.assert_allclose(model.coefficients[:-1], expected.coef_.T, rtol=1e-8)
    np.testing.assert_allclose(model.predict(X), expected.predict(Z), rtol=1e-8)
    assert model.penalty == pytest.approx(0.3 * np.square(expected.coef_).sum())


def test_the_regularised_covariance_minimises_loss_and_penalty() -> None:
    """The theta-step is a stationary point: no other V, by SciPy's search over Cholesky factors, is lower."""
    X = np.random.default_rng(3).normal(size=(40, 2)) * [1.0, 3.0]
    rows = rows_of(X)
    start = Gaussian(regularization=0.5).start(X, None, rows.prior, 0)
    model = step(start, collect(start, rows, np.inf), rows, None)

    def value(entries: Floats) -> float:
        factor = np.array([[entries[0], 0.0], [entries[1], entries[2]]])
        other = GaussianModel(model.mean, factor, model.ridge)
        return float(losses(other, X, None).mean() + other.penalty)

    here = np.array([model.factor[0, 0], model.factor[1, 0], model.factor[1, 1]])
    found = minimize(value, here * 1.3, method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12})
    assert value(here) <= found.fun + 1e-9
    np.testing.assert_allclose(found.x, here, rtol=1e-4)
    np.testing.assert_allclose(model.covariance, np.cov(X.T, ddof=0) + 0.5 * np.diag(X.var(axis=0)))
    traced = np.trace(np.diag(model.ridge) @ np.linalg.inv(model.covariance)) / (2 * 2)
    assert model.penalty == pytest.approx(traced)


@pytest.mark.parametrize(("rise", "converged"), [(0.5, False), (1e-10, True)])
def test_a_step_that_raises_the_objective_is_undone(rise: float, converged: bool) -> None:
    def found(low: float) -> Any:
        return statistics_of_losses(np.full(3, low), np.ones(3), 1.0)

    @dataclass
    class Model:
        name: str
        penalty: float = 0.0
        rows_needed: int = 1

    descent = Descent(Model("first"), 1.0, tol=0.0, started=True)
    descent.advance(found(2.0), lambda model, statistics: Model("second"))
    descent.advance(found(1.0), lambda model, statistics: Model("third"))
    descent.advance(found(1.0 + rise), lambda model, statistics: Model("fourth"))
    assert descent.done
    assert descent.best.converged == converged
    assert descent.best.model.name == "second"
    np.testing.assert_allclose(descent.best.objective, [2 - np.log(3), 1 - np.log(3)])


def test_gaussian_is_the_weighted_moments() -> None:
    X, _ = problem(Gaussian(), n=BLOCK + 77, d=5)
    X = X * [1e-2, 1, 100, 1, 1] + 1e3
    s = np.random.default_rng(1).uniform(0, 2, len(X))
    learner = Gaussian(regularization=0.0)
    start = learner.start(X[:50], None, np.ones(50), 0)
    model = from_sums(start, collect_statistics(start, X, None, s, np.inf))
    np.testing.assert_allclose(model.mean, np.average(X, axis=0, weights=s), rtol=1e-12)
    np.testing.assert_allclose(model.covariance, np.cov(X.T, aweights=s, ddof=0), rtol=1e-9, atol=1e-9)
    from scipy.stats import multivariate_normal

    expected = -multivariate_normal(model.mean, model.covariance).logpdf(X) / 5
    np.testing.assert_allclose(losses(model, X, None), expected, rtol=1e-7)


def test_gaussian_fixed_point_is_the_shrunken_covariance() -> None:
    X = np.random.default_rng(0).normal(size=(200_000, 2))
    model = EntropicOutlierSparsification(alpha=2.0).fit(X)  # kappa = D alpha = 4
    np.testing.assert_allclose(model.model_.covariance, 0.75 * np.eye(2), atol=0.02)
    assert model.effective_sample_size_ / len(X) == pytest.approx(1 - 1 / 16, abs=0.005)


def test_kmeans_is_weighted_lloyd() -> None:
    X, _ = problem(KMeans())
    s = np.random.default_rng(1).uniform(0, 2, len(X))
    learner = KMeans(5, standardize=False)
    model = learner.start(X, None, np.ones(len(X)), 3)
    first = model.centres
    for _ in range(100):
        model = from_sums(model, collect_statistics(model, X, None, s, np.inf))
    expected = LloydKMeans(5, init=first, n_init=1, max_iter=100, tol=0).fit(X, sample_weight=s)
    np.testing.assert_allclose(model.centres, expected.cluster_centers_, rtol=1e-9)
    found = rows_of(X, None, s)
    assert s @ losses(model, X, None) * X.shape[1] == pytest.approx(expected.inertia_)
    assert len(found) == 300


def test_least_squares_is_weighted_regression() -> None:
    X, y = problem(LeastSquares())
    X[:, 3] = X[:, 2]  # rank deficient
    s = np.random.default_rng(1).uniform(0, 2, len(X))
    start = LeastSquares().start(X[:50], y[:50], np.ones(50), 0)
    model = from_sums(start, collect_statistics(start, X, y, s, np.inf))
    expected = LinearRegression().fit(X, y, sample_weight=s).predict(X)
    np.testing.assert_allclose(model.predict(X)[:, 0], expected, rtol=1e-7, atol=1e-7)


def test_rows_without_weight_are_in_no_sample() -> None:
    rows = replace(rows_of(np.arange(3.0)[:, None]), prior=np.array([1.0, 1.0, 0.0]))
    assert rows.sample(0).ids.tolist() == [0, 1]


def test_the_first_fit_of_a_logistic_does_not_depend_on_the_mass_of_the_rows() -> None:
    """The penalty is relative to a mass of 1, as in scikit-learn with C = 1 / l2 and weights of sum 1."""
    X, y = problem(Logistic())
    rows, Z = rows_of(X, y), (X - X.mean(axis=0)) / X.std(axis=0)
    start = Logistic(l2=0.1).start(X, y, rows.prior, 0)
    model = step(start, collect(start, rows, np.inf), rows, None)
    equal = np.full(len(X), 1 / len(X))
    expected = LogisticRegression(C=10, tol=1e-10).fit(Z, y, sample_weight=equal).predict_proba(Z)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-5)


def test_logistic_is_scikit_learns() -> None:
    X, y = problem(Logistic())
    s = np.random.default_rng(1).uniform(0, 2, len(X))
    s /= s.sum()
    start = Logistic(l2=0.1).start(X, y, np.ones(len(X)), 0)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    expected = LogisticRegression(C=10, tol=1e-10).fit(Z, y, sample_weight=s).predict_proba(Z)
    np.testing.assert_allclose(start.refitted(X, y, s).predict_proba(X), expected, atol=1e-5)


def test_spa_follows_its_definition() -> None:
    X, y = problem(SPA())
    learner = SPA(3, label_weight=2.0, smoothing=0.01, standardize=False)
    model = learner.start(X, y, np.ones(len(X)), 0)
    s = np.random.default_rng(1).uniform(0, 2, len(X))
    for _ in range(3):
        cost = np.array(
            [
                [
                    ((x - c) ** 2).mean() - 2.0 / 2 * np.log(model.shares[label, k])
                    for k, c in enumerate(model.centres)
                ]
                for x, label in zip(X, y, strict=True)
            ]
        )
        np.testing.assert_allclose(losses(model, X, y), cost.min(axis=1), rtol=1e-9, atol=1e-9)
        box = cost.argmin(axis=1)
        model = from_sums(model, collect_statistics(model, X, y, s, np.inf))
        for k in range(3):
            np.testing.assert_allclose(model.centres[k], np.average(X[box == k], axis=0, weights=s[box == k]))
            share = np.array([s[(box == k) & (y == label)].sum() / s.sum() + 0.01 for label in (0, 1)])
            np.testing.assert_allclose(model.shares[:, k], share / share.sum())
    np.testing.assert_allclose(model.predict_proba(model.centres), model.shares.T, atol=1e-3)
    between = model.predict_proba(0.25 * model.centres[:1] + 0.75 * model.centres[1:2])[0]
    np.testing.assert_allclose(between, 0.25 * model.shares[:, 0] + 0.75 * model.shares[:, 1], atol=1e-3)


def test_an_empty_box_stays() -> None:
    model = KMeans(2, standardize=False).start(np.array([[0.0], [9.0]]), None, np.ones(2), 0)
    again = from_sums(model, collect_statistics(model, np.zeros((5, 1)), None, np.ones(5), np.inf))
    assert sorted(again.centres[:, 0]) == [0, 9]


@given(n=st.integers(1, 40), cut=st.integers(0, 40), size=st.integers(1, 12), seed=st.integers(0, 9))
def test_samples_of_parts_make_the_sample_of_all(n: int, cut: int, size: int, seed: int) -> None:
    ids = np.random.default_rng(seed).permutation(1000)[:n]
    parts = np.concatenate([part[random_rows(part, size, seed)] for part in (ids[:cut], ids[cut:])])
    whole = ids[random_rows(ids, size, seed)]
    assert parts[random_rows(parts, size, seed)].tolist() == whole.tolist()


def test_random_weights_are_exponential_and_know_their_row() -> None:
    w = random_weights(np.arange(100_000), 3)
    assert w.min() > 0
    assert w.mean() == pytest.approx(1, abs=0.02)
    assert w.var() == pytest.approx(1, abs=0.05)
    np.testing.assert_array_equal(random_weights(np.arange(500, 600), 3), w[500:600])
    assert (random_weights(np.arange(100), 4) != w[:100]).all()


@pytest.mark.parametrize("learner", LEARNERS, ids=repr)
def test_sample_weights_count_rows(learner: Any) -> None:
    X, y = problem(learner, n=120)
    counts = np.random.default_rng(2).integers(0, 4, len(X))
    repeated = np.repeat(X, counts, axis=0), None if y is None else np.repeat(y, counts, axis=0)
    start = learner.start(X, y, np.ones(len(X)), 0)

    class Same:
        target = learner.target

        def start(self, *_: Any) -> Any:
            return start

    options: dict[str, Any] = {"loss": Same(), "alpha": 3.0, "random_state": 0}
    weighted = EntropicOutlierSparsification(**options).fit(X, y, sample_weight=counts)
    plain = EntropicOutlierSparsification(**options).fit(*repeated)
    assert weighted.objective_[-1] == pytest.approx(plain.objective_[-1], rel=1e-6)
    np.testing.assert_allclose(
        np.repeat(weighted.weights_ / np.maximum(counts, 1), counts), plain.weights_, rtol=1e-3, atol=1e-9
    )


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("alpha", [3.0, "auto"])
@pytest.mark.parametrize("learner", LEARNERS, ids=repr)
def test_rows_of_weight_0_change_nothing(learner: Any, alpha: Any) -> None:
    X, y = problem(learner, n=120)
    far = 1e3 if isinstance(learner, Logistic) else 1e200  # scikit-learn computes with rows of weight 0
    X = np.vstack([X, X[-1:], np.full((1, X.shape[1]), far)])
    y = None if y is None else np.append(y, y[-2:])
    counts = np.append(np.ones(120), [0, 0])
    options: dict[str, Any] = {"loss": learner, "alpha": alpha, "random_state": 0}
    found = EntropicOutlierSparsification(**options).fit(X, y, sample_weight=counts)
    plain = EntropicOutlierSparsification(**options).fit(X[:120], None if y is None else y[:120])
    assert found.objective_[-1] == pytest.approx(plain.objective_[-1], rel=1e-9)
    np.testing.assert_allclose(found.weights_, np.append(plain.weights_, [0, 0]), rtol=1e-5, atol=1e-12)


@pytest.mark.filterwarnings("ignore:EOS weights have collapsed")
def test_a_row_of_weight_0_may_fit_far_better_than_all_others() -> None:
    """Weights are relative to the least loss of a row that counts: else that of all others is 0."""
    found = statistics_of_losses(np.array([0.0, 1000.0, 1001.0]), np.array([0.0, 1.0, 1.0]), 1.0)
    assert (found.low, found.prior) == (1000.0, 2.0)
    assert found.mass == pytest.approx(1 + np.exp(-1))
    assert statistics_of_losses(np.array([np.nan, 1.0]), np.array([0.0, 1.0]), 1.0).objective == 1.0
    x = np.append(np.linspace(0, 1, 50), 0.5)[:, None]
    y = np.append(np.where(np.arange(50) % 2, 1000.0, -1000.0), 0.0)
    counts = np.append(np.ones(50), 0)
    model = EntropicOutlierSparsification("least_squares", alpha=1e3).fit(x, y, sample_weight=counts)
    assert model.weights_.sum() == pytest.approx(1)
    assert model.weights_[50] == 0
    assert np.isfinite(model.objective_).all()


def test_restarts_keep_the_lowest() -> None:
    X, _ = problem(KMeans())
    options: dict[str, Any] = {"loss": KMeans(6), "alpha": 0.3, "random_state": 0}
    one = EntropicOutlierSparsification(**options).fit(X)
    many = EntropicOutlierSparsification(**options, n_init=8).fit(X)
    assert many.objective_[-1] <= one.objective_[-1]
    draws = [EntropicOutlierSparsification(**options, start="random").fit(X).objective_ for _ in range(2)]
    assert draws[0] == draws[1] != one.objective_


def test_scores_of_the_rows_learnt_from_are_their_weights() -> None:
    X, y = problem(SPA())
    names = np.array(["no", "yes"])[y]
    model = EntropicOutlierSparsification("spa", alpha=0.3, random_state=1).fit(X, names)
    np.testing.assert_allclose(np.exp(model.score_samples(X, names)) / len(X), model.weights_)
    np.testing.assert_array_equal(model.predict(X, names) == -1, model.outlier_mask_)
    np.testing.assert_array_equal(model.outlier_mask_, model.weights_ < 0.01 / len(X))
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1)
    with pytest.raises(ValueError, match=r"labels \['maybe'\], which fit has not seen"):
        model.predict(X, np.full(len(X), "maybe"))


def test_collapse_is_warned_of() -> None:
    X = np.random.default_rng(0).normal(size=(300, 6))
    with pytest.warns(UserWarning, match=r"collapsed: at alpha = 0.01 .* of 300 rows, .* needs 7"):
        EntropicOutlierSparsification(alpha=0.01).fit(X)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"loss": "hinge"}, "loss is 'hinge'"),
        ({"alpha": 0}, "alpha == 0"),
        ({"alpha": np.inf}, "alpha == inf"),
        ({"start": "zero"}, "start is 'zero'"),
        ({"threshold": 1.0}, "threshold == 1.0"),
        ({"n_init": 0}, "n_init == 0"),
        ({"loss": "spa"}, "needs y"),
        ({"loss": "logistic"}, "needs y"),
        ({"loss": "least_squares"}, "needs y"),
    ],
)
def test_bad_parameters_are_named(options: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        EntropicOutlierSparsification(**options).fit(np.eye(5))


def test_bad_rows_are_named() -> None:
    model = EntropicOutlierSparsification(alpha=0.5)
    with pytest.raises(ValueError, match="no row has a positive sample weight"):
        merged([])
    with pytest.raises(ValueError, match="no row has a positive sample weight"):
        merged([statistics_of_losses(np.ones(1), np.zeros(1), 0.1)])
    with pytest.raises(ValueError, match="negative entries"):
        model.fit(np.eye(3), sample_weight=[-1, 1, 1])
    with pytest.raises(ValueError, match="y has 2 entries for 3 rows"):
        EntropicOutlierSparsification("spa", alpha=0.5).fit(np.eye(3), [0, 1])
    with pytest.raises(ValueError, match="3 of 3 rows have a loss that is not finite"):
        statistics_of_losses(np.full(3, np.nan), np.ones(3), 1.0)


@pytest.mark.parametrize("loss", ["spa", "logistic"])
@pytest.mark.parametrize("missing", [0, 2])
def test_a_class_that_the_sample_misses_is_learnt(loss: str, missing: int) -> None:
    n, seed = 5000, int(np.random.RandomState(0).randint(2**31 - 1))
    left_out = np.setdiff1d(np.arange(n), random_rows(np.arange(n), SAMPLE, seed))
    y = np.arange(n) % 2 + (missing == 0)
    y[left_out[0]] = missing
    X = np.random.default_rng(0).normal(size=(n, 2)) + 4 * y[:, None]
    model = EntropicOutlierSparsification(loss, alpha=2.0, random_state=0, max_iter=3).fit(X, y)
    assert model.weights_.shape == (n,)
    assert model.predict_proba(X).shape == (n, 3)
