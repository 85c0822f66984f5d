"""A regression on a version that was curated on bands of its target, as a user goes about it."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pyarrow.dataset
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from typer.testing import CliRunner

from engine.cli.app import app
from engine.core.errors import InputError
from engine.execution.local_executor import LocalExecutor
from engine.recipe.promotion import CannotCompareError
from engine.recipe.recipe import Recipe
from engine.training import TrainResult, TrainSpec, parse_params, train
from engine.training.champion import rows_for
from engine.training.data.version import open_version
from engine.training.evaluation.plots import PLOTS, draw_importance, draw_losses
from engine.training.evaluation.regression_scores import (
    LossSums,
    RegressionEvaluation,
    RegressionSums,
    summarise_numbers,
)
from engine.training.fit.job import TrainingJob
from engine.training.page import write_page
from engine.training.search import search_parameters
from engine.training.serving.pyfunc import ServedModel, write_served_model
from tests.unit.engine.training.publishing import publish

OPERATORS: dict[str, Any] = {
    "encode": {"numeric": {"missing": "fail"}},
    "groups": {"method": "oracle", "column": "region"},
    "weights": {"method": "group_balanced", "trust": "all"},
    "split": {"validation": 0.2, "test": 0.2},
}
NUMBERS = {"objective": "squared", "target": "price", "weight_decay": 0.0}


def homes(n: int = 1500, seed: int = 0) -> pd.DataFrame:
    """Prices of homes: a square metre costs half as much in the region of a fifth of the rows."""
    rng = np.random.default_rng(seed)
    area, rooms = rng.uniform(30, 150, n), rng.integers(1, 6, n)
    region = np.where(rng.random(n) < 0.2, "south", "north")
    per_metre = np.where(region == "south", 1500.0, 3000.0)
    price = 20_000 + per_metre * area + 4_000 * rooms + rng.normal(0, 8_000, n)
    frame = pd.DataFrame({"area": area, "rooms": rooms, "region": region, "price": price, "note": "x"})
    frame["label"] = pd.qcut(frame["price"], 3, labels=["low", "middle", "high"]).astype(str)
    return frame


def published_homes(folder: Path, frame: pd.DataFrame, shards: int = 1, **sections: Any) -> Path:
    source = {"path": str(folder / "data"), "label": "label", "exclude": ["price", "region", "note"]}
    return publish(frame, folder, OPERATORS, shards, source=source, **sections)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published_homes(tmp_path_factory.mktemp("homes"), homes())


def run(dataset: Path, folder: Path | None = None, **values: Any) -> TrainResult:
    params = parse_params({"trainer": "erm_plain", **NUMBERS, **values})
    return train(TrainSpec(dataset, params, folder=folder), LocalExecutor())


def rows_of(output: Path, split: str) -> pd.DataFrame:
    table = pyarrow.dataset.dataset(open_version(output).folder / "data").to_table()
    frame = table.to_pandas()
    return frame[frame["split"] == split]


def scored(result: TrainResult, split: str = "test") -> RegressionEvaluation:
    assert not result.evaluations
    return result.regressions[split]


def test_scores_are_those_of_scikit_learn_by_group(output: Path) -> None:
    result = run(output)
    found = scored(result)
    train_rows, test = rows_of(output, "train"), rows_of(output, "test")
    columns = ["area", "rooms"]
    model = LinearRegression().fit(train_rows[columns], train_rows["price"])
    predicted = model.predict(test[columns])
    assert found.rows == len(test)
    assert found.rmse == pytest.approx(root_mean_squared_error(test["price"], predicted), rel=1e-4)
    assert found.loss == pytest.approx(found.rmse**2)
    assert found.mae == pytest.approx(mean_absolute_error(test["price"], predicted), rel=1e-4)
    assert found.r2 == pytest.approx(r2_score(test["price"], predicted), rel=1e-4)
    assert found.coverage == pytest.approx((test["price"] <= predicted).mean(), abs=0.01)
    squares = (test["price"] - predicted) ** 2
    table = found.groupings["inferred"]
    by_group = squares.groupby(test["group"]).agg(["mean", "count"])
    assert {score.group: score.rows for score in table.groups} == {
        str(group): row["count"] for group, row in by_group.iterrows()
    }
    for score in table.groups:
        assert score.loss == pytest.approx(by_group["mean"][int(score.group)], rel=1e-3)
        assert score.low < score.loss < score.high
    assert found.metrics()["worst_group_loss"] == pytest.approx(table.worst_group_loss)
    assert "accuracy" not in json.dumps(result.record)


def test_importance_is_what_is_added_to_the_losses(output: Path) -> None:
    """Prices rest on the area; the figures without shuffling are those of the evaluation."""
    spec = TrainSpec(output, parse_params({"trainer": "erm_plain", **NUMBERS}), importance=True)
    result = train(spec, LocalExecutor())
    found = result.importance
    assert found is not None
    scores = scored(result, "validation")
    assert found["baseline"]["loss"] == pytest.approx(scores.loss)
    assert found["baseline"]["worst_group_loss"] == pytest.approx(scores.metrics()["worst_group_loss"])
    area, rooms = found["columns"]
    assert (area["column"], rooms["column"]) == ("area", "rooms")
    # Shuffled numbers are off by sqrt(2) deviations of the column, times what one of it adds to the price.
    spread = rows_of(output, "validation")["area"].std()
    assert area["loss"]["mean"] == pytest.approx(2 * (2700 * spread) ** 2, rel=0.2)
    for split, scored_rows in result.regressions.items():
        draw_losses(scored_rows, result.folder / PLOTS / split)
    draw_importance(found, result.folder / PLOTS)
    page = write_page(result).read_text("utf-8")
    assert "The mean loss rests most on area (" in page
    assert "loss of the worst group</th>" in page


def test_group_dro_lowers_the_loss_of_the_worst_group(output: Path) -> None:
    steps = {"epochs": 40, "lr": 0.05, "batch_size": 64, "schedule": "linear"}
    worst = {
        trainer: scored(run(output, trainer=trainer, **more)).groupings["inferred"].worst_group_loss or 0
        for trainer, more in (("erm_plain", {}), ("gdro", {**steps, "step_size": 0.05}))
    }
    assert worst["gdro"] < 0.8 * worst["erm_plain"]


def test_any_number_of_shards_gives_the_same_scores(output: Path, tmp_path: Path) -> None:
    other = run(published_homes(tmp_path, homes(), shards=3))
    mine, theirs = scored(run(output)).metrics(), scored(other).metrics()
    assert mine == pytest.approx(theirs, rel=1e-4)


@pytest.mark.slow
def test_the_command_registers_and_promotes_by_the_loss_and_predict_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    out = published_homes(tmp_path, homes())
    base = ["retrain", "--dataset", str(out), "--executor", "local", "--register", "homes"]
    rule = ["--promote-if", "worst_group_loss < champion"]
    weak = ["--trainer", "gdro", "--set", "epochs=1", "--set", "lr=0.0001"]
    setting = ["--set", "objective=squared", "--set", "target=price"]
    first = CliRunner().invoke(app, [*base, *weak, *setting, *rule])
    assert first.exit_code == 0, first.output
    assert "inferred groups; squared: loss" in first.output
    second = CliRunner().invoke(app, [*base, "--trainer", "erm_plain", *setting, *rule])
    assert second.exit_code == 0, second.output
    assert "is champion now: worst_group_loss" in " ".join(second.output.split())
    page = next((out / "models").rglob("report.html")).read_text("utf-8")
    assert "root mean squared error" in page
    assert "the model is worst on" in page
    # Not by mlflow.set_tracking_uri, which stays set for the tests of other files.
    champion = mlflow.MlflowClient(f"sqlite:///{out / 'mlflow.db'}").get_model_version_by_alias(
        "homes", "champion"
    )
    model = mlflow.pyfunc.load_model(str(champion.source).removeprefix("file://"))
    assert model.metadata.signature.outputs.input_names() == ["prediction", "reason"]
    assert model.metadata.signature.inputs.input_names() == ["area", "rooms"]
    assert model.metadata.signature.params is None
    new = homes(50, seed=3)
    new.drop(columns=["price", "label"]).to_csv(tmp_path / "new.csv", index=False)
    done = CliRunner().invoke(
        app,
        [
            *("predict", "models:/homes@champion", str(tmp_path / "new.csv"), str(tmp_path / "answers")),
            *("--tracking", str(out)),
        ],
    )
    assert done.exit_code == 0, done.output
    answers = pd.read_parquet(tmp_path / "answers")
    assert list(answers) == ["prediction", "reason"]
    direct = model.predict(new[["area", "rooms"]])["prediction"]
    np.testing.assert_allclose(answers["prediction"], direct)
    assert r2_score(new["price"], answers["prediction"]) > 0.5


@pytest.mark.slow
def test_the_commands_of_the_page_run(output: Path) -> None:
    page = (Path(__file__).parents[4] / "engine/training/README.md").read_text("utf-8")
    commands = re.findall(r"^    rowsieve (retrain --dataset homes/out .*)$", page, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        words = [str(output) if word == "homes/out" else word for word in shlex.split(command)]
        done = CliRunner().invoke(app, [*words, "--executor", "local"])
        assert done.exit_code == 0, done.output


def test_a_row_that_cannot_be_used_has_a_reason(output: Path, tmp_path: Path) -> None:
    result = run(output)
    maker = TrainingJob(result.version, parse_params(NUMBERS), 0, result.folder).maker
    write_served_model(result.model, result.version, maker, tmp_path / "served", "price")
    served = ServedModel(tmp_path / "served")
    found = served.predict(pd.DataFrame({"area": ["large", 100.0], "rooms": [2, 3]}))
    assert found["prediction"][0] is None
    assert "'area' is not a number (value: 'large')" in found["reason"][0]
    assert 100_000 < found["prediction"][1] < 500_000
    with pytest.raises(ValueError, match="predicts a number"):
        served.predict(pd.DataFrame({"area": [1.0], "rooms": [2]}), {"sample": True})
    record = (tmp_path / "served" / "serving.json").read_text()
    (tmp_path / "served" / "serving.json").write_text(record.replace('"target"', '"target_"'))
    with pytest.raises(InputError, match=r"serving\.json"):
        ServedModel(tmp_path / "served")


def test_a_champion_of_classes_cannot_be_compared(output: Path, tmp_path: Path) -> None:
    classes = parse_params({"trainer": "erm"})
    champion = train(TrainSpec(output, classes), LocalExecutor())
    maker = TrainingJob(champion.version, classes, 0, champion.folder).maker
    write_served_model(champion.model, champion.version, maker, tmp_path / "served")
    result = run(output)
    job = TrainingJob(result.version, parse_params(NUMBERS), 0, result.folder)
    with pytest.raises(CannotCompareError, match=r"it predicts classes, .* the number 'price'"):
        rows_for(tmp_path / "served", job)


def test_a_grid_is_chosen_by_the_worst_groups_loss(output: Path) -> None:
    spec = TrainSpec(output, parse_params({"trainer": "gdro", **NUMBERS, "epochs": 5}))
    found = search_parameters(spec, {"lr": [1e-5, 0.05]}, LocalExecutor())
    assert found.best == 1
    assert found.candidates[1].score is not None
    assert found.candidates[1].score < 0
    with pytest.raises(InputError, match="losses of several objectives cannot be compared"):
        search_parameters(spec, {"objective": ["squared", "pinball:0.5"]}, LocalExecutor())


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (None, "set train.target to a numeric column"),
        ("prize", "has no column 'prize'.*Did you mean 'price'"),
        ("region", "'region' of version .* has the type large_string"),
        ("area", r"'area' is a feature .* Set source.exclude: \[area\]"),
    ],
)
def test_a_target_that_cannot_be_used_is_named(output: Path, target: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(output, target=target)


def test_whole_numbers_beyond_53_bits_are_rounded(tmp_path: Path) -> None:
    frame = homes(300)
    frame["price"] = 2**60 + frame["price"].astype("int64") * 10**10
    assert (scored(run(published_homes(tmp_path, frame))).r2 or 0) > 0.5


def test_a_champion_of_another_quantile_cannot_be_compared(output: Path, tmp_path: Path) -> None:
    """A mean in place of the quantile .9 would win by the squared loss, and answer another question."""
    values = {**NUMBERS, "trainer": "erm_plain"}
    job = TrainingJob(open_version(output), parse_params(values), 0, run(output).folder)
    for objective in ("squared", "pinball:0.9"):
        result = run(output, objective=objective, optimizer="sgd", epochs=1)
        served = tmp_path / objective
        write_served_model(result.model, result.version, job.maker, served, "price")
        if objective == "squared":
            assert rows_for(served, job) is None
            continue
        with pytest.raises(CannotCompareError, match=r"pinball:0.9, and the challenger by squared"):
            rows_for(served, job)


def test_a_group_of_one_row_has_no_interval() -> None:
    sums = LossSums()
    sums.add(LossSums(Counter({0: 1}), Counter({0: 4.0}), Counter({0: 16.0})))
    assert sums.mean((0,), 0.95) == (4.0, 0.0, math.inf)


def test_a_group_in_no_figure_of_the_worst_group_is_named() -> None:
    rows, losses, squares = Counter({0: 80, 1: 12}), Counter({0: 80.0, 1: 60.0}), Counter({0: 90.0, 1: 400.0})
    sums = RegressionSums(92, {"inferred": LossSums(rows, losses, squares)}, np.ones(6))
    found = summarise_numbers(sums, "squared")
    table = found.groupings["inferred"]
    assert (table.worst_group, table.left_out) == ("0", ("1",))
    assert found.notes("inferred").startswith("group 1 (12 rows, mean loss 5) is left out of the worst")


def test_a_row_without_a_number_is_named(tmp_path: Path) -> None:
    frame = homes(300)
    frame.loc[17, "price"] = np.nan
    out = published_homes(tmp_path, frame)
    message = r"'price': 1 of \d+ rows of .*0.parquet have no finite number.*row_id 17"
    with pytest.raises(InputError, match=message):
        run(out)


def test_a_recipe_is_checked_before_it_runs(tmp_path: Path) -> None:
    base = {"name": "x", "source": {"path": "x", "label": "y"}, "output": {"path": str(tmp_path)}}
    for section, message in (
        ({"params": {"objective": "squared"}}, "set train.params.target"),
        (
            {"params": NUMBERS, "register_as": "m", "promote_if": "accuracy > champion"},
            "a regression has no accuracy",
        ),
        (
            {"params": NUMBERS, "register_as": "m", "promote_if": "worst_group_loss > champion"},
            "is better the smaller",
        ),
        (
            {"register_as": "m", "promote_if": "worst_group_loss < champion"},
            "a classification has no worst_group_loss",
        ),
        ({"params": NUMBERS, "register_as": "m", "promote_if": "r2 < champion"}, "is better the larger"),
        ({"params": NUMBERS, "register_as": "m", "when": "worst_group_accuracy < 0.5"}, "worst_group_loss"),
    ):
        with pytest.raises(InputError, match=message):
            Recipe.parse({**base, "train": section})
