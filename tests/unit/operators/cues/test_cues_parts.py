"""The parts against independent references."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from operators.cues import limits
from operators.cues.models import draws, linear
from operators.cues.models import twins as environments
from operators.cues.named import named_sides as named
from operators.cues.search import evidence, gain, slices


def test_flip_draws_depend_on_the_id_alone_and_are_uniform():
    ids = np.arange(20_000)
    u = draws.flip_draws(ids, 1, 0, 0)
    assert np.array_equal(draws.flip_draws(ids[::-1], 1, 0, 0)[::-1], u)
    assert np.abs(np.histogram(u, 10, (0, 1))[0] / 2000 - 1).max() < 0.1
    for other in (
        draws.flip_draws(ids, 1, 0, 1),
        draws.flip_draws(ids, 1, 1, 0),
        draws.flip_draws(ids, 2, 0, 0),
    ):
        assert abs(np.corrcoef(u, other)[0, 1]) < 0.03


def test_quotas_keep_small_classes():
    assert draws.sample_quotas([10, 20], 100) == [10, 20]
    assert draws.sample_quotas([90_000, 700, 30, 0], 10_000) == [9919, 500, 30, 0]


def test_two_splits_have_independent_halves():
    ids = np.arange(20_000)
    table = np.bincount(2 * draws.halves(ids, 0, 0) + draws.halves(ids, 0, 1))
    assert np.abs(table / 5000 - 1).max() < 0.05


@pytest.mark.parametrize("classes", [2, 4])
def test_fit_softmax_agrees_with_scikit_learn(classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 5)).astype(np.float32)
    y = (X[:, :classes] + rng.normal(size=(500, classes))).argmax(axis=1)
    w = rng.uniform(0.2, 3, 500)
    l2 = 0.01
    ours = linear.predict(linear.fit_softmax(X, y, w, classes, l2=l2, max_iter=500), X)
    # scikit-learn minimises sum w loss + ||b||^2 / (2 C). For two classes its one logit is the
    # difference of our two,
    # b = v - (-v), so that our penalty l2 * ||v||^2 is l2 / 4 * ||b||^2: half of its own.
    strength = w.sum() * l2 * (0.5 if classes == 2 else 1.0)
    reference = LogisticRegression(C=1 / strength, tol=1e-8, max_iter=5000).fit(X, y, sample_weight=w)
    assert np.abs(ours - reference.predict_proba(X)).max() < 5e-3


def test_scaler_turns_a_constant_column_into_zeros():
    X = np.array([[1.0, 7.0], [3.0, 7.0]], np.float32)
    assert np.allclose(linear.Scaler.from_rows(X).apply(X), [[-1, 0], [1, 0]])


def test_class_balance_gives_every_class_the_same_total():
    y = np.array([0] * 70 + [2] * 30)
    w = linear.class_balance(y, 4)
    assert np.isclose(w[y == 0].sum(), w[y == 2].sum())
    assert np.isclose(w.mean(), 1)


def test_candidate_cuts():
    assert len(slices.candidate_cuts(np.full(9, 2.0))) == 0
    assert slices.candidate_cuts(np.array([0.0, 1, 1, 0])).tolist() == [0.5]
    x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    cuts = slices.candidate_cuts(x)
    assert len(cuts) == 10
    assert np.abs(cuts - np.median(x)).min() < 1e-6


def test_two_means_cut_lies_in_the_gap_and_minimises_the_variance():
    rng = np.random.default_rng(0)
    x = np.append(rng.normal(0, 0.1, 700), rng.normal(2, 0.1, 300))
    assert 0.4 < slices.two_means_cut(x) < 1.6
    x = rng.gamma(2.0, size=2000)
    low, high = np.quantile(x, [0.01, 0.99])
    x = np.clip(x, low, high)
    spread = [
        x[x <= t].var() * (x <= t).mean() + x[x > t].var() * (x > t).mean()
        for t in np.linspace(low, high, 400)[1:-1]
    ]
    assert abs(slices.two_means_cut(x) - np.linspace(low, high, 400)[1:-1][int(np.argmin(spread))]) < 0.1


def test_scores_of_cuts_equal_the_plain_definition():
    rng = np.random.default_rng(1)
    n, C = 400, 3
    Z, y = rng.normal(size=(n, 2)).astype(np.float32), rng.integers(0, C, n)
    p = rng.dirichlet(np.ones(C), n)
    found = slices.find_slices(Z, y, p)
    error = 1 - p[np.arange(n), y]
    for k in range(len(found.feature)):
        up = Z[:, found.feature[k]] > found.cut[k]
        fitted = np.where(up[:, None], p[up].mean(axis=0), p[~up].mean(axis=0))
        assert np.isclose(found.lean[k], fitted.var(axis=0).sum() / p.var(axis=0).sum())
        between = [
            np.where(up, error[up & (y == c)].mean(), error[~up & (y == c)].mean())[y == c].var()
            for c in range(C)
        ]
        within = [error[y == c].var() for c in range(C)]
        assert np.isclose(found.error[k], np.mean(between) / np.mean(within))
        assert np.allclose(found.above[k], [up[y == c].mean() for c in range(C)])


def test_balance_factor_makes_label_and_side_independent():
    rng = np.random.default_rng(2)
    y, side = rng.integers(0, 3, 900), rng.random(900) < 0.2
    above = np.array([side[y == c].mean() for c in range(3)])
    w = slices.balance_factor(above, side, y)
    cells = np.bincount(2 * y + side, w).reshape(3, 2)
    assert np.allclose(cells[:, 0], cells[:, 1])
    assert np.allclose(cells.sum(axis=1), np.bincount(y))


def test_balance_factor_of_a_one_sided_class_is_one():
    w = slices.balance_factor(np.array([0.0, 0.5]), np.array([False, True]), np.array([0, 1]))
    assert w.tolist() == [1.0, 1.0]


def test_scores_sum_to_one_and_skip_leaves_a_column_out():
    rng = np.random.default_rng(3)
    Z, y = rng.normal(size=(300, 4)).astype(np.float32), rng.integers(0, 2, 300)
    p = rng.dirichlet(np.ones(2), 300)
    assert np.isclose(slices.find_slices(Z, y, p).score().sum(), 1)
    assert 2 not in slices.find_slices(Z, y, p, frozenset({2})).feature


def test_without_usable_slices_the_factor_is_one():
    Z, y = np.zeros((50, 3), np.float32), np.arange(50) % 2
    found = slices.find_slices(Z, y, np.full((50, 2), 0.5))
    assert len(found.feature) == 0
    assert np.array_equal(slices.slice_factor(found, Z, y), np.ones(50))


def test_environment_factor_gives_both_environments_the_same_mass():
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, 1000)
    hard = rng.random(1000) < 0.1
    p_own = np.where(hard, 0.0, 1.0)
    p = np.where(np.arange(2) == y[:, None], p_own[:, None], 1 - p_own[:, None])[None]
    w = environments.environment_factor(p, y, environments.mean_errors(p, y, 2), 2)
    for c in (0, 1):
        assert np.isclose(w[hard & (y == c)].sum(), w[~hard & (y == c)].sum())
        assert np.isclose(w[y == c].mean(), 1)


def test_environments_make_a_shortcut_of_three_classes_independent_of_the_label():
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 3000)
    points_to = np.where(rng.random(3000) < 0.9, y, (y + rng.integers(1, 3, 3000)) % 3)
    p = np.eye(3)[points_to][None]
    w = environments.environment_factor(p, y, environments.mean_errors(p, y, 3), 3)
    table = np.bincount(3 * y + points_to, w, minlength=9).reshape(3, 3)
    np.testing.assert_allclose(table / table.sum(axis=1, keepdims=True), 1 / 3, atol=0.04)


def test_held_out_rows_are_judged_by_the_other_twin():
    ids = np.arange(40)
    models = np.zeros((1, 2, 2, 2))
    models[0, 0, 1] = [3.0, 0.0]  # The twin of half 0 always says class 0, that of half 1 class 1.
    models[0, 1, 1] = [0.0, 3.0]
    p = environments.held_out(models, np.zeros((40, 1), np.float32), ids, seed=5)[0]
    assert np.array_equal(p.argmax(axis=1), 1 - draws.halves(ids, 5, 0))


def test_a_label_flips_with_the_chance_of_the_paper():
    n = 40_000
    ids = np.arange(n)
    p = np.array([0.7, 0.2, 0.1])
    model = np.vstack([np.zeros((1, 3)), np.log(p)])
    parts = [np.arange(n // 2), np.arange(n // 2, n)]
    labels = environments._imitate(
        np.zeros((n, 1), np.float32), np.full(n, 2), draws.flip_draws(ids, 0, 0, 0), parts, [model, model]
    )
    assert abs((labels == 0).mean() - (0.7 - 1 / 3) * 1.5) < 0.01
    assert not (labels == 1).any()


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


@pytest.mark.parametrize("cap", [2.0, 20.0])
def test_limits_hold(cap):
    rng = np.random.default_rng(8)
    y = rng.integers(0, 3, 3000)
    factor = np.exp(3 * rng.normal(size=3000))
    factor[:3] = [np.nan, np.inf, 0.0]
    found = limits.fit_limits(factor, y, 3, cap=cap, min_effective=0.4).apply(factor, y)
    assert np.isfinite(found).all()
    assert found.min() >= 0
    assert found.max() <= cap
    assert (limits.effective_share(found, y, 3) >= 0.4 - 1e-9).all()


def test_a_larger_cap_never_lowers_the_largest_weight():
    rng = np.random.default_rng(9)
    y, factor = np.zeros(2000, int), np.exp(2 * rng.normal(size=2000))
    largest = [
        limits.fit_limits(factor, y, 1, cap=c, min_effective=0.01).apply(factor, y).max()
        for c in (1, 2, 5, 10, 20, 40)
    ]
    assert all(a <= b + 1e-12 for a, b in itertools.pairwise(largest))


def test_effective_share_is_kishs():
    w, y = np.array([1.0, 1, 2, 5]), np.array([0, 0, 0, 1])
    assert np.allclose(limits.effective_share(w, y, 2), [16 / 18, 1])


def test_balance_table_leaves_empty_sides_and_lone_sides_alone():
    table = named.balance_table(np.array([[30.0, 10.0, 0.0], [5.0, 0.0, 0.0]]))
    assert np.allclose(table, [[40 / 60, 2.0, 1.0], [1.0, 1.0, 1.0]])


def test_levels_of_a_category_stand_for_classes():
    y = np.repeat([0, 1, 2], 100)
    block = (y[:, None] == np.array([2, 0, 1])).astype(np.float32)
    Z = linear.Scaler.from_rows(block).apply(block)
    sides = named.fit_sides(named.Named((0, 1, 2)), Z, y, 3, 0.0)
    assert sides.level_side[1:].tolist() == [2, 0, 1]
