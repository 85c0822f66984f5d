"""The methods of ``BASELINES.md`` on a small problem with a cue, and the arithmetic of its page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.paper.baselines import __main__ as page
from tests.paper.baselines import methods
from tests.paper.baselines.methods import CB, ERM, LINEAR, ORACLE, OURS, TREES
from tests.paper.baselines.problems import CUES, PROBLEMS, REAL, Problem, load
from tests.paper.cells import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def problem() -> Problem:
    """2,000 rows to train on, three quarters of them of class 0, with a cue that holds in 92 %."""
    rng = np.random.default_rng(5)
    n = 4000
    y = (rng.random(n) < 0.25).astype(np.int64)
    cue = np.where(rng.random(n) < 0.92, y, 1 - y)
    X = rng.normal(size=(n, 5)).astype(np.float32)
    X[:, :3] += (2 * y[:, None] - 1) * 0.6
    X[:, 3] = 2 * cue + 0.2 * rng.normal(size=n)
    group, half = 2 * y + cue, n // 2
    return Problem(X[:half], y[:half], group[:half], X[half:], y[half:], group[half:])


@pytest.fixture(autouse=True)
def _few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "NETWORK", {**methods.NETWORK, "epochs": 8, "batch_size": 128})


@pytest.mark.parametrize("method", [*LINEAR, *(name for name in TREES if name.startswith("Hist"))])
def test_every_method_answers_better_than_by_the_majority(problem: Problem, method: str) -> None:
    found = {**LINEAR, **TREES}[method](problem, 0)
    assert found.shape == problem.yt.shape
    balanced = np.mean([(found == problem.yt)[problem.yt == c].mean() for c in (0, 1)])
    assert balanced > 0.6
    assert np.array_equal(found, {**LINEAR, **TREES}[method](problem, 0))


def test_the_oracle_and_our_weights_are_above_the_floor_where_there_is_a_cue(problem: Problem) -> None:
    worst = {name: page.score_of(problem, LINEAR[name], 0)["worst"] for name in (ERM, CB, OURS, ORACLE)}
    assert min(worst[OURS], worst[ORACLE]) > max(worst[ERM], worst[CB]) + 0.1


def test_trees_get_the_weights(problem: Problem) -> None:
    plain, balanced = (TREES[f"HistGradientBoosting{suffix}"](problem, 0) for suffix in ("", ", CB"))
    recall = [(found == 1)[problem.yt == 1].mean() for found in (plain, balanced)]
    assert recall[1] > recall[0]


def test_afr_without_a_tilt_is_the_class_balanced_model(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    tilted = methods.afr(problem, 0)
    monkeypatch.setattr(methods, "AFR_GAMMA", 0.0)
    flat = methods.afr(problem, 0)
    balanced = methods.linear(problem, methods.class_balance(problem))
    assert (flat == balanced).mean() > 0.97
    groups = problem.group_t
    worst = [min((p == problem.yt)[groups == g].mean() for g in range(4)) for p in (flat, tilted)]
    assert worst[1] > worst[0]


def test_groups_of_the_methods_hold_one_class_each(problem: Problem) -> None:
    for groups in (methods.eiil(problem), methods.xrm(problem, 0), methods.george(problem, 0)):
        pairs = {*zip(groups.tolist(), problem.y.tolist(), strict=True)}
        assert len(pairs) == len(np.unique(groups)) >= 2


def runs(**worst: tuple[float, ...]) -> list[dict[str, Any]]:
    """Runs of two seeds from the worst group of each method."""
    names = {"erm": ERM, "cb": CB, "ours": OURS, "oracle": ORACLE}
    return [
        {names[k]: {"worst": v[seed], "mean": 0.9, "seconds": 1.0} for k, v in worst.items()}
        for seed in (0, 1)
    ]


def test_shares_start_at_the_better_floor_and_end_at_one() -> None:
    found = runs(erm=(0.1, 0.3), cb=(0.4, 0.4), ours=(0.5, 0.7), oracle=(0.6, 0.6))
    assert page.floor_of(found) == pytest.approx(0.4)
    assert page.headroom(found) == pytest.approx(0.2)
    assert page.share(found, OURS) == pytest.approx(1.0)
    assert page.share(found, ERM) == pytest.approx(-1.0)
    more = runs(erm=(0.5, 0.5), cb=(0.4, 0.4), ours=(0.9, 0.9), oracle=(0.6, 0.6))
    assert page.share(more, OURS) == 1.0


def test_problems_without_a_way_stand_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (ERM, CB, OURS, ORACLE)
    monkeypatch.setattr(page, "methods", lambda: {name: LINEAR[name] for name in names})
    far = runs(erm=(0.1, 0.1), cb=(0.4, 0.4), ours=(0.5, 0.5), oracle=(0.6, 0.6))
    near = runs(erm=(0.1, 0.1), cb=(0.59, 0.59), ours=(0.5, 0.5), oracle=(0.6, 0.6))
    monkeypatch.setattr(page, "TABLES", {"Tables": ("far", "near")})
    text = page.page({"far": far, "near": near}, {"gone": "no file"})
    first, second = text.split("## Tables: the floor is about as good as the oracle")
    assert "| far | .100 (.000) / .900 | .400 (.000) / .900 | **.500 (.000) / .900** | .600" in first
    assert "| share of the way | our weights |" in first
    assert "| mean | .50 |" in first
    assert "near" not in first.split("problems with a way to go")[1]
    assert "| near |" in second
    assert "| mean | +0.005 |\n| least | -0.090 |" in second
    assert "Not here: gone; no file." in text


def test_code_that_figures_depend_on_is_there() -> None:
    assert [place for place in page.CODE if not (ROOT / place).exists()] == []


def test_generated_problems_are_split_by_the_seed() -> None:
    one, other = load("gaussian", 0), load("gaussian", 1)
    assert one.X.shape == (14_000, 12)
    assert not np.array_equal(one.y, other.y)


def test_labels_of_test_rows_are_right_where_those_to_train_on_are_not() -> None:
    found = load("2, column, 5 % wrong", 0)
    assert len(found.y) == 24_000
    cue = found.group - 2 * found.y
    assert 0.1 < (cue != found.y).mean() < 0.14
    assert (found.group_t - 2 * found.yt != found.yt).mean() == pytest.approx(0.5, abs=0.03)


def test_there_are_twelve_real_problems_and_six_large_ones_with_a_cue() -> None:
    assert len(REAL) >= 12
    assert len([name for name in CUES if name not in ("camera", "rotated")]) >= 6
    assert {**REAL, **CUES} == PROBLEMS
    assert set(page.STARS) <= set(PROBLEMS)


def test_confusion_cells_make_the_prediction_independent_of_the_label(problem: Problem) -> None:
    w = methods.confusion_cells(problem)
    told = methods.linear(replace(problem, Xt=problem.X), np.ones(len(problem.y)))
    share = [np.average(told[problem.y == c], weights=w[problem.y == c]) for c in (0, 1)]
    assert share[0] == pytest.approx(share[1])
    assert w[problem.y == 0].sum() == pytest.approx(w[problem.y == 1].sum())
