"""The share of flipped labels and the scale of their log ratio."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from operators.outliers import flip_share
from operators.outliers.assessment import assess
from operators.outliers.flip_share import (
    _loss,
    checkable_classes,
    fit_flip_share,
    separation,
    share_bound,
    share_of_label,
    unmixed_separation,
)
from operators.outliers.verdict import Config, fit

Floats = npt.NDArray[np.float64]


def scores(n: int, share: float, classes: int, seed: int) -> tuple[Floats, Floats]:
    """Log ratios of observed rows and of planted flips, up to their scale: half of the true ones, shifted."""
    rng = np.random.default_rng(seed)
    wrong = rng.random(n) < share
    returns = wrong & (rng.random(n) < 1 / (classes - 1))
    # Of N(1.5, 1) to N(-1.5, 1) the log ratio at t is 3 t.
    observed = rng.normal(np.where(wrong, 1.5, -1.5), 1)
    planted = rng.normal(np.where(returns, -1.5, 1.5), 1)
    return 1.5 * observed + 0.4, 1.5 * planted + 0.4


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.2])
def test_share_and_scale_of_a_known_mixture_are_recovered(share: float, classes: int) -> None:
    found = [fit_flip_share(*scores(4000, share, classes, seed), classes, 0.3) for seed in range(4)]
    assert [one.share for one in found] == pytest.approx([share] * 4, abs=0.006 + 0.12 * share)
    assert np.mean([one.slope for one in found]) == pytest.approx(2, abs=0.3)
    assert np.mean([one.shift for one in found]) == pytest.approx(-0.8, abs=0.3)


def test_the_share_is_bounded_where_the_most_suspicious_planted_rows_have_no_company() -> None:
    observed, planted = scores(4000, 0.0, 5, 0)
    observed[:120] = np.quantile(planted, 0.5)
    assert share_bound(observed, planted) < 0.01
    assert fit_flip_share(observed, planted, 5, 0.3).share < 0.01
    assert share_bound(*scores(4000, 0.05, 5, 0)) > 0.045


def test_the_gradient_is_that_of_the_loss() -> None:
    rng = np.random.default_rng(0)
    x, is_observed = rng.normal(size=300), np.arange(300) < 150
    weights = np.where(is_observed, 1.4, 0.6)
    for parameters, right, back in (([1.5, 0.2, 0.05], 0.0, 1.0), ([3.0, -1.0, 0.2], 0.1, 0.5)):
        at, args = np.array(parameters), (x, is_observed, weights, right, back)
        by_step = [(_loss(at + h, *args)[0] - _loss(at - h, *args)[0]) / 2e-6 for h in 1e-6 * np.eye(3)]
        np.testing.assert_allclose(_loss(at, *args)[1], by_step, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("classes", [2, 4])
def test_wrong_labels_in_both_samples_are_taken_out_of_the_separation(classes: int) -> None:
    without = separation(*scores(20_000, 0.0, classes, 0))
    mixed = separation(*scores(20_000, 0.15, classes, 1))
    assert mixed < without - 0.05
    assert unmixed_separation(mixed, 0.15, 0.15 / (classes - 1)) == pytest.approx(without, abs=0.01)


def test_a_rare_label_alone_does_not_make_rows_wrong() -> None:
    # Observed rows and planted flips of class 1 look alike; those of class 0 do not, with 5 % wrong labels.
    rng = np.random.default_rng(0)
    y = (rng.random(4000) < 0.1).astype(np.int64)
    wrong = (y == 0) & (rng.random(4000) < 0.05)
    told = (rng.normal(np.where(wrong, 2.0, -2.0)), rng.normal(np.where(wrong, -2.0, 2.0)))
    seen = np.where(y == 1, 3 + rng.normal(size=4000), told[0])
    planted = np.where(y == 0, 3 + rng.normal(size=4000), told[1])  # labelled 1 - y
    for flipped, found in ((y == 1, [False, False]), (wrong, [True, False])):
        posterior = np.where(flipped, 0.95, 0.01)
        checked = checkable_classes((seen, planted), (y, 1 - y), posterior, 2, 0.8)
        assert checked.tolist() == found
    assert checkable_classes((seen, planted), (y, 1 - y), np.ones(4000), 2, 0.8).tolist() == [False, False]


@pytest.mark.parametrize(("wrong", "right"), [(0.0, 0.02), (0.4, 0.02), (0.7, 0.0)])
def test_the_share_of_wrong_labels_of_one_label_counts_rows_that_stand_apart(
    wrong: float, right: float
) -> None:
    rng = np.random.default_rng(0)
    observed = rng.normal(np.where(np.arange(300) < 300 * wrong, 2.0, -2.0))
    planted = rng.normal(np.where(rng.random(3000) < right, -2.0, 2.0))
    # Another shift, as a rare label brings, changes nothing.
    for shift in (0.0, 5.0):
        assert share_of_label(observed + shift, planted + shift, right) == pytest.approx(wrong, abs=0.07)
    # Rows that are merely hard to tell are a shift of the whole, not a part that stands apart.
    assert share_of_label(rng.normal(-0.5, 1, 300), rng.normal(0.5, 1, 3000), 0.0) <= 0.1


def test_a_posterior_that_calls_most_rows_of_a_label_wrong_does_not_make_it_checkable() -> None:
    rng = np.random.default_rng(0)
    y, planted_y = np.repeat([0, 1], [3000, 200]), np.repeat([1, 0], [3000, 200])
    seen = np.concatenate([rng.normal(-2, 1, 3000), rng.normal(3, 1, 200)])
    planted = np.concatenate([rng.normal(3.7, 1, 3000), rng.normal(2, 1, 200)])
    posterior = np.where(y == 1, 0.65, 0.01)
    checked = checkable_classes((seen, planted), (y, planted_y), posterior, 2, 0.8)
    assert checked.tolist() == [True, False]


@pytest.mark.slow
def test_the_marked_share_hardly_depends_on_the_draw() -> None:
    # Among these draws, recalls went from 0 to .88 while shares came from a fixed number of rounds.
    recall, precision, stated = [], [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        truth = rng.integers(0, 2, 1200)
        X = rng.normal(size=(1200, 8)).astype(np.float32)
        X[:, 0] += 2 * (2 * truth - 1)
        shown = np.where(rng.random(1200) < 0.93, truth, 1 - truth)
        X[:, 1] += 3 * (2 * shown - 1)
        bad, ids = rng.random(1200) < 0.2, np.arange(1200)
        y = np.where(bad, 1 - truth, truth)
        state = fit(X, y, ids, seed=seed, config=Config(max_calibration=1200))
        marked = assess(state, X, y, ids).is_outlier
        recall.append(marked[bad].mean())
        precision.append(bad[marked].mean())
        stated.append(state.estimates.precision)
    assert min(recall) >= 0.6
    assert min(precision) >= 0.9
    assert np.abs(np.array(stated) - precision).max() <= 0.1


def test_the_share_of_a_label_is_fitted_only_where_it_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hundreds of classes the fits took longer than all models."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 500)
    seen, planted = (
        rng.normal(size=1000),
        rng.normal(3 * (1 - y), 1.0),
    )  # class 0 stands out, class 1 does not
    posterior = np.full(1000, 0.1)
    expected = checkable_classes((seen, planted), (y, y), np.zeros(1000), 2, 0.8)
    fitted = list[float]()

    def counted(observed: Floats, planted: Floats, right: float) -> float:
        fitted.append(right)
        return 0.0

    monkeypatch.setattr(flip_share, "share_of_label", counted)
    assert checkable_classes((seen, planted), (y, y), posterior, 2, 0.8).tolist() == expected.tolist()
    assert expected.tolist() == [True, False]
    assert not fitted
    checkable_classes((seen, planted / 3), (y, y), np.full(1000, 0.4), 2, 0.8)
    assert fitted
