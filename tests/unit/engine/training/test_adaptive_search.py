"""Searches in recipes, and the search that learns from its earlier candidates (Optuna)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

import engine
from engine.cli.app import app
from engine.core.errors import InputError
from engine.execution.local_executor import LocalExecutor
from engine.recipe import search as options
from engine.recipe.incremental import TrainSection
from engine.recipe.search import Range
from engine.recipe.trainers import parse_params
from engine.runs.plugins.training import train_if_due
from engine.training import search as training_search
from engine.training.candidates import Candidate
from engine.training.search import SearchResult, search_parameters
from engine.training.training_run import TrainSpec
from tests.data import small_recipe

pytest.importorskip("optuna")
BEST = 3e-2
SPACE: dict[str, Any] = {"lr": Range(1e-5, 1.0), "hidden": [[8], [16], [32]], "epochs": Range(2, 50)}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adaptive")
    engine.run(small_recipe(folder))
    return folder / "out"


class Landscape:
    """Scores in place of trainings: best at lr = .03 and hidden 16, with noise that depends on the seed."""

    def __init__(self, noise: float = 0.01, failing: float = np.inf) -> None:
        self.tried: list[TrainSpec] = []
        self._noise, self._failing = noise, failing

    def __call__(self, spec: TrainSpec, *_: Any) -> Candidate:
        self.tried.append(spec)
        params = spec.params
        if params.lr > self._failing:
            return Candidate({}, "", None, None, "the loss is not a number")
        score = 0.9 - 0.1 * abs(np.log10(params.lr / BEST)) - 0.05 * (params.hidden != (16,))
        draw = np.random.default_rng([spec.seed, int(1e9 * params.lr)])
        score += float(draw.normal(0, self._noise))
        return Candidate({}, f"{params.lr:g}-{spec.seed}", score, score)


def searched(
    published: Path, landscape: Landscape, monkeypatch: pytest.MonkeyPatch, **given: Any
) -> SearchResult:
    monkeypatch.setattr(training_search, "try_one", landscape)
    params = parse_params({"trainer": "gdro", "model": "mlp"})
    spec = TrainSpec(published, params, seed=given.pop("seed", 0))
    return search_parameters(
        spec, given.pop("space", SPACE), LocalExecutor(), **{"trials": 30, "sampler": "tpe", **given}
    )


def regret(found: SearchResult) -> float:
    values = found.candidates[found.best].values
    return abs(np.log10(values["lr"] / BEST)) + 0.5 * (values["hidden"] != [16])


def test_the_same_seed_draws_the_same_candidates(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, again, other = (
        [
            one.values
            for one in searched(published, Landscape(), monkeypatch, seed=seed, trials=9, seeds=1).candidates
        ]
        for seed in (0, 0, 1)
    )
    assert first == again != other
    assert len(first) == 9
    for values in first:
        assert 1e-5 <= values["lr"] <= 1
        assert values["hidden"] in ([8], [16], [32])
        assert isinstance(values["epochs"], int)


def test_it_comes_nearer_than_as_many_random_draws(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty draws, over eight seeds: the mean distance to the optimum is smaller."""
    distances = {
        sampler: np.mean(
            [
                regret(searched(published, Landscape(0.0), monkeypatch, sampler=sampler, seed=seed, seeds=1))
                for seed in range(8)
            ]
        )
        for sampler in ("tpe", "random")
    }
    assert distances["tpe"] < distances["random"]


def test_poor_candidates_are_given_up_after_a_seed(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    landscape = Landscape()
    found = searched(published, landscape, monkeypatch, prune=True)
    assert found.seeds == options.SEEDS == 3
    pruned = [one for one in found.candidates if one.pruned]
    assert len(pruned) >= 8
    assert {len(one.by_seed) for one in found.candidates if not one.pruned} == {3}
    assert len(landscape.tried) == sum(len(one.by_seed) for one in found.candidates) < 80
    finished = [one.score or 0 for one in found.candidates if not one.pruned]
    assert found.candidates[found.best].score == max(finished)
    assert f"{len(pruned)} of them pruned (mean of 3 seeds)" in found.sentence()
    assert {spec.truth for spec in landscape.tried} == {None}


def test_a_candidate_that_fails_cannot_win(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = searched(published, Landscape(failing=0.01), monkeypatch, seeds=1)
    failed = [one for one in found.candidates if one.fault]
    assert failed
    assert found.candidates[found.best].values["lr"] <= 0.01
    assert f"{len(failed)} of them failed" in found.sentence()


def section(**search: Any) -> TrainSection:
    return TrainSection.model_validate({"trainer": "gdro", "params": {"model": "mlp"}, "search": search})


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ({"space": {}}, "at least 1 item"),
        ({"space": {"lrr": [0.1]}}, r"train\.search\.space.*lrr.*Did you mean 'lr'"),
        ({"space": {"lr": [0.1, -1]}}, r"train\.search\.space.*lr.*-1"),
        ({"space": {"lr": "1..0"}}, r"train\.search\.space\.lr: write a range as low\.\.high"),
        (
            {"space": {"lr": "1e-3..1"}},
            r"train\.search\.space lr: a range has no cells; give train\.search\.trials",
        ),
        ({"space": {"lr": [1]}, "sampler": "tpe"}, r"train\.search\.sampler tpe: give train\.search\.trials"),
        (
            {"space": {"lr": [1]}, "sampler": "grid", "trials": 3},
            r"train\.search\.trials: a grid trains every",
        ),
        (
            {"space": {"lr": [1]}, "trials": 3, "seeds": 1, "prune": True},
            r"give train\.search\.seeds 2 or more",
        ),
        ({"space": {"objective": ["squared"]}}, "losses of several objectives cannot be compared"),
        ({"space": {"lr": [1]}, "sampler": "bayes"}, "'grid', 'random' or 'tpe'"),
        ({"space": {"lr": [1]}, "truth": "g"}, "truth"),
    ],
)
def test_a_faulty_search_is_named_by_its_key(search: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        section(**search)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "find_spec", lambda _: None)
    with pytest.raises(ValidationError, match=r"optuna is not installed.*rowsieve\[tune\]"):
        section(space={"lr": [0.1]}, trials=2, sampler="tpe")


def test_a_recipe_searches(published: Path, tmp_path: Path) -> None:
    recipe = small_recipe(
        tmp_path,
        train={
            "trainer": "gdro",
            "params": {"epochs": 1, "batch_size": 64},
            "search": {"space": {"lr": "1e-3..1e-1"}, "trials": 2, "seeds": 1, "sampler": "tpe"},
            "reference": "none",
        },
    )
    result = engine.run(recipe)
    record = train_if_due(
        recipe,
        tmp_path / "out",
        engine.training.data.version.open_version(tmp_path / "out").manifest,
        LocalExecutor,
    )
    assert record is not None
    assert len(record["selection"]["candidates"]) == 2
    assert record["selection"]["sampler"] == "tpe"
    page = (tmp_path / "out" / "models" / record["model"] / "report.html").read_text("utf-8")
    assert "Search by tpe: best of 2 cells" in page
    assert result.version


def test_the_command_takes_a_sampler(published: Path) -> None:
    base: Sequence[str] = ("retrain", "--dataset", str(published), "--executor", "local", "--trainer", "gdro")
    small = ("--set", "epochs=1", "--reference", "none", "--grid", "lr=0.01..0.1", "--seeds", "1", "--json")
    done = CliRunner().invoke(app, [*base, *small, "--trials", "2", "--sampler", "tpe"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["selection"]
    assert (found["sampler"], found["seeds"], len(found["candidates"])) == ("tpe", 1, 2)
    done = CliRunner().invoke(app, [*base, *small, "--trials", "2", "--sampler", "tpee"])
    assert done.exit_code == 2
    assert "Did you mean 'tpe'?" in done.output
    done = CliRunner().invoke(app, [*base, "--sampler", "tpe"])
    assert "give --grid" in done.output


def test_the_oracle_needs_a_truth(published: Path) -> None:
    spec = TrainSpec(published, parse_params({"trainer": "gdro"}))
    with pytest.raises(InputError, match="name a column with the true groups"):
        search_parameters(spec, {"lr": [0.1]}, LocalExecutor(), criterion="oracle_worst_true_group")
