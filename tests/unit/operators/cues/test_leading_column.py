"""The column that models lean on most: the other columns tell a shortcut from one of several honest ones."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from operators.cues import CueSettings, fit, weights
from operators.cues.evidence import SINGLE_RAMPS, Evidence
from operators.cues.independence import Independence, independence
from operators.cues.leading_column import Leading, features_of, leading_column
from operators.cues.linear import Scaler, fit_softmax, predict
from operators.cues.slices import SourceColumn, find_slices
from tests.unit.operators.cues.test_share_columns import COLUMN

N = 8000


def table(seed, *, honest=False, flips=0.0, core=0.35):
    """Return rows, labels and sides: one column tells 93 labels of 100, the others fewer.

    Honest: what the column measures shows in others, too, and the label follows all of it.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, N)
    side = np.where(rng.random(N) < 0.93, y, 1 - y)
    others = rng.normal(size=(N, 5))
    others[:, :2] += core * (2 * (side if honest else y)[:, None] - 1)
    label = np.where(rng.random(N) < flips, 1 - y, y)
    return np.column_stack([side, others]).astype(np.float32), label, side > 0


def judged(X, y, side, features=(0,)):
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    return independence(side, Z, y, np.arange(len(y)), features, seed=0, l2=1e-3, n_classes=2)


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.5])
def test_dependence_is_the_area_under_the_curve_of_another_column(shift):
    rng = np.random.default_rng(1)
    y, side = rng.integers(0, 2, 20_000), rng.random(20_000) < 0.3
    X = np.column_stack([side, rng.normal(size=20_000) + shift * side])
    assert judged(X, y, side).dependence == pytest.approx(norm.cdf(shift / np.sqrt(2)), abs=0.03)


@pytest.mark.parametrize("flips", [0.0, 0.05])
def test_the_others_tell_the_label_and_not_the_side_of_a_shortcut(flips):
    found = judged(*table(2, flips=flips, core=1.0))
    assert found.dependence == pytest.approx(0.5, abs=0.04), "wrong labels are not told from sides"
    assert found.minority == pytest.approx(0.07 * (1 - flips) + 0.93 * flips, abs=0.01)
    assert found.told > 0.6
    assert judged(*table(2, honest=True, core=0.7)).dependence > 0.7


def test_nothing_is_known_without_rows_on_both_sides():
    X, y, _ = table(3)
    assert judged(X, y, np.zeros(N, bool)) == Independence()


def test_features_of_one_column_and_repetitions_are_hidden_together():
    rng = np.random.default_rng(4)
    Z = rng.normal(size=(500, 5))
    Z[:, 3] = -Z[:, 0]
    Z = ((Z - Z.mean(axis=0)) / Z.std(axis=0)).astype(np.float32)
    assert features_of(0, Z, (SourceColumn((0, 1)),)) == (0, 1, 3)
    assert features_of(4, Z, (SourceColumn((0, 1)),)) == (4,)


def test_no_column_leads_where_the_strongest_slice_is_weak():
    rng = np.random.default_rng(5)
    y, Z = rng.integers(0, 2, N), rng.normal(size=(N, 3)).astype(np.float32)
    slices = find_slices(Z, y, np.full((N, 2), 0.5) + 1e-3 * rng.normal(size=(N, 2)))
    assert leading_column(slices, Z, y, np.arange(N), CueSettings(), 2) == Leading()


LEADS = Evidence(
    agreement=0.9,
    mistake_confidence=0.5,
    crispness=0.95,
    recovery=0.8,
    error=0.1,
    cost=0.3,
    gain=0.1,
    righted=0.1,
    exchange=0.2,
    lead_strength=0.9,
    lead_minority=0.1,
    lead_told=0.3,
    lead_ratio=0.4,
    lead_dependence=0.5,
    lead_unevenness=1.1,
)


@pytest.mark.parametrize("name", SINGLE_RAMPS)
def test_each_measurement_of_the_leading_column_shuts_a_gate_that_is_too_dear_otherwise(name):
    assert LEADS.gate() == 1.0, "balancing costs more than other evidence allows"
    assert replace(LEADS, **{name: SINGLE_RAMPS[name][0]}).gate() == 0.0


def test_the_other_columns_veto_a_leading_column_whatever_else_speaks_for_it():
    cheap = replace(LEADS, cost=0.0)
    for name, bad in (("lead_dependence", 0.7), ("lead_ratio", -0.5), ("lead_unevenness", 2.0)):
        found = replace(cheap, **{name: bad})
        assert (found.gate(), found.weakest()) == (0.0, "lead_support")
        assert replace(found, lead_strength=0.6).gate() == 1.0, "a weaker column does not lead"


@pytest.mark.parametrize("flips", [0.0, 0.03])
def test_a_shortcut_in_one_column_opens_the_gate_where_balancing_is_dear_and_an_honest_column_does_not(flips):
    X, y, _ = table(6, flips=flips)
    settings, ids = CueSettings(columns=(COLUMN,)), np.arange(N)
    state = fit(X, y, ids, settings, n_classes=2)
    assert state.evidence.cost > 0.18, "too dear without the judgement of the other columns"
    assert state.blend >= 0.5
    T, t, held_out = table(7, flips=0.0)
    scaler = Scaler.from_rows(X)

    def worst(w):
        right = predict(fit_softmax(scaler.apply(X), y, w, 2), scaler.apply(T)).argmax(axis=1) == t
        return min(right[(t == c) & (held_out == s)].mean() for c in (0, 1) for s in (False, True))

    assert worst(weights(state, X, y, ids)) > worst(np.ones(N)) + 0.2
    X, y, _ = table(6, honest=True, flips=flips)
    assert fit(X, y, ids, settings, n_classes=2).blend == 0.0
