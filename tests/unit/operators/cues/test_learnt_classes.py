"""Classes of few rows, or of none, change nothing that is measured on the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from operators.cues import fit, weights
from operators.cues.learnt_classes import LearntClasses, learnt_classes
from operators.cues.row_weights import breaks
from operators.cues.settings import CueSettings, Named
from operators.cues.sides.class_sides import independent_factors
from operators.cues.sides.sides import Sides

N = 2500
IDS = np.arange(N + 9, dtype=np.uint64)
LABELS = np.array([0, 2, 3])
"""Numbers of the classes in a table of five."""


def table(seed: int, n_classes: int, told: float):
    """Rows of normal features, of which one tells the label and another is a shortcut."""
    rng = np.random.default_rng(1000 + seed)
    y = rng.integers(0, n_classes, N)
    X = rng.normal(size=(N, 6)).astype(np.float32)
    X[:, 0] += 1.5 * (2 * y - 1)
    X[:, 5] = np.where(rng.random(N) < told, y, rng.integers(0, n_classes, N))
    return X, y


@pytest.mark.parametrize(
    ("n_classes", "told", "settings"),
    [
        (2, 0.0, CueSettings()),
        (2, 0.94, CueSettings()),
        (3, 0.97, CueSettings()),
        (2, 0.94, CueSettings(setting="bold")),
        (2, 0.94, CueSettings(spurious=(Named((5,)),))),
    ],
)
def test_classes_without_rows_change_nothing(n_classes, told, settings) -> None:
    X, y = table(3, n_classes, told)
    label = LABELS[y]
    alone = fit(X, y, IDS[:N], settings)
    among = fit(X, label, IDS[:N], settings, n_classes=5, class_counts=np.bincount(label, minlength=5))
    assert among.evidence == alone.evidence
    assert (among.blend, among.class_strength) == (alone.blend, alone.class_strength)
    np.testing.assert_allclose(
        weights(among, X, label, IDS[:N]), weights(alone, X, y, IDS[:N]), rtol=1e-6, atol=1e-9
    )
    assert (breaks(among, X, label, IDS[:N]) == breaks(alone, X, y, IDS[:N])).all()


def test_a_few_rows_of_another_class_open_no_gate() -> None:
    """A reviewer's tables: with one row of a third class 8 of 24 were followed, the largest weight 9."""
    for seed in range(4):
        X, y = table(seed, 2, 0.0)
        state = fit(np.vstack([X, X[:9]]), np.append(y, [2] * 4 + [3] * 5), IDS)
        assert state.evidence == fit(X, y, IDS[:N]).evidence
        assert state.blend == 0


def test_a_row_of_a_class_that_was_not_learnt_has_the_weight_of_its_class() -> None:
    X, y = table(3, 2, 0.94)
    label = np.append(LABELS[y], [1] * 4 + [4] * 5)
    rows = np.vstack([X, X[:9]])
    state = fit(rows, label, IDS)
    assert state.blend == 1
    found = weights(state, rows, label, IDS)[N:]
    np.testing.assert_allclose(found, state.class_factor[label[N:]])
    assert not breaks(state, rows, label, IDS)[N:].any()


def test_sides_that_stand_for_classes_stand_for_their_labels() -> None:
    learnt = LearntClasses(LABELS, 5)
    y = np.repeat([0, 1, 2], 40)
    side = np.where(np.arange(120) % 10 == 0, 3, y)
    sides = Sides(
        (0,),
        np.array([0.5, 1.5]),
        np.array([2, 0, 3]),
        independent_factors(side, y, 3),
        class_sets=((0, 2), (1,)),
    )
    found = learnt._sides(replace(sides, rare=sides.factor > 1.1))
    assert found.level_side.tolist() == [3, 0, 5]
    assert found.class_sets == ((0, 3), (2,))
    assert found.factor.shape == found.rare.shape == (5, 6)
    np.testing.assert_array_equal(found.factor[np.ix_(LABELS, [0, 2, 3, 5])], sides.factor)
    assert (found.factor[[1, 4]] == 1).all()
    assert not found.rare[[1, 4]].any()


def test_the_two_sides_of_a_number_stay_two() -> None:
    sides = Sides((0,), np.array([0.5]), np.array([0, 1]), np.array([[0.5, 9.0], [8.0, 0.6], [1.0, 1.0]]))
    found = LearntClasses(LABELS, 5)._sides(sides)
    assert found.level_side.tolist() == [0, 1]
    np.testing.assert_array_equal(found.factor[LABELS], sides.factor)
    assert found.factor.shape == (5, 2)


@pytest.mark.parametrize(
    ("counts", "learnt"),
    [
        ([1000, 900, 30], [1, 1, 0]),
        ([5000, 4900, 60], [1, 1, 0]),
        ([5000, 60], [1, 1]),
        ([9000, 100, 90, 0], [1, 1, 1, 0]),
        ([300, 320, 310, 25], [1, 1, 1, 0]),
    ],
)
def test_classes_far_smaller_than_the_others_are_not_searched(counts, learnt) -> None:
    assert learnt_classes(np.array(counts)).tolist() == [bool(one) for one in learnt]


def test_a_rare_third_class_hides_no_shortcut() -> None:
    """A newcomer's table: 164 rows of 41,532 shut the gate; the worst group was .03 in place of .61."""
    X, y = table(3, 2, 0.94)
    rare = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    rows, label = np.vstack([X, rare]), np.append(y, [2] * 60)
    state = fit(rows, label, np.arange(len(label), dtype=np.uint64))
    assert state.evidence == fit(X, y, IDS[:N]).evidence
    assert state.blend == 1
