"""Registered estimators of libraries: raw rows, promotion, MLflow's own flavours, files, recipes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

import engine
from engine.cli.app import app
from engine.core.errors import InputError
from engine.training import Ensemble
from tests.data import small_recipe

FOREST = ["--set", "model=sklearn:RandomForestClassifier", "--set", "model_params={n_estimators: 10}"]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("estimators")
    engine.run(small_recipe(folder, tracking={"enabled": True}))
    return folder / "out"


def retrain(published: Path, *arguments: str) -> Any:
    base = ["retrain", "--dataset", str(published), "--executor", "local"]
    return CliRunner().invoke(app, [*base, *arguments])


@pytest.mark.slow
def test_an_estimator_is_registered_promoted_and_predicts(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = ["--register", "forest", "--promote-if", "accuracy > champion - 0.2", "--json"]
    first = retrain(published, "--trainer", "erm_plain", *rule)
    assert first.exit_code == 0, first.output
    done = retrain(published, "--trainer", "resample", *FOREST, *rule)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["promoted"]["promoted"], found["promoted"]

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{published / 'mlflow.db'}")
    served = mlflow.pyfunc.load_model("models:/forest@champion")
    frame = pq.read_table(published.parent / "data").to_pandas()[["a", "b", "vector"]]
    answers = served.predict(frame.assign(a=[np.inf, *frame["a"][1:]]))
    assert answers["prediction"].isna().tolist() == [True, *[False] * (len(frame) - 1)]
    assert "column 'a' is infinite" in answers["reason"][0]

    local = Path(mlflow.artifacts.download_artifacts("models:/forest@champion", dst_path=str(tmp_path / "m")))
    bare = mlflow.sklearn.load_model(str(local / "data" / "rowsieve" / "sklearn"))
    model = Ensemble.load(local / "data" / "rowsieve")
    features = np.column_stack([frame["a"], frame["b"], np.stack(frame["vector"].to_list())])
    features = features.astype(np.float32)
    np.testing.assert_allclose(
        bare.predict_proba(features)[1:, 1], answers["probability_yes"][1:].astype(float), atol=1e-5
    )
    assert (bare.predict(features) == model.predict(features)).all()
    assert any(line.startswith("skops==") for line in (local / "requirements.txt").read_text().splitlines())

    into = tmp_path / "predictions"
    data = published.parent / "data" / "s0.parquet"
    shown = CliRunner().invoke(
        app, ["predict", "models:/forest@champion", str(data), str(into), "--tracking", str(published)]
    )
    assert shown.exit_code == 0, shown.output
    predictions = pq.read_table(into)
    assert (
        predictions["prediction"].to_pylist()[1:] == answers["prediction"].tolist()[1 : predictions.num_rows]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trainer", "gdro", *FOREST], "Which trainer accepts which model"),
        (["--trainer", "erm", *FOREST, "--set", "max_rows=10"], "train.max_rows is 10"),
        (
            ["--trainer", "erm", "--set", "model=sklearn:RandomForest"],
            "There are: sklearn:RandomForestClassifier, sklearn:RandomForestRegressor.",
        ),
        (
            ["--trainer", "erm", "--set", "model=xgboost:XGBClasifier"],
            "Did you mean 'xgboost:XGBClassifier'?",
        ),
    ],
)
def test_refusals_reach_the_command_line(published: Path, arguments: list[str], message: str) -> None:
    done = retrain(published, *arguments)
    assert done.exit_code != 0
    assert message in " ".join(done.output.split())


def features_of(frame: Any) -> Any:
    return np.column_stack([frame["a"], frame["b"], np.stack(frame["vector"].to_list())]).astype(np.float32)


def check_registered(output: Path, data: Path, name: str, package: str, into: Path) -> None:
    """The registered model answers on source columns as the library's own model in it does on features."""
    import importlib

    local = Path(mlflow.artifacts.download_artifacts(f"models:/{name}/1", dst_path=str(into / "m")))
    frame = pq.read_table(data).to_pandas()[["a", "b", "vector"]]
    answers = mlflow.pyfunc.load_model(str(local)).predict(frame)
    flavour = local / "data" / "rowsieve" / package
    bare = importlib.import_module(f"mlflow.{package}").load_model(str(flavour))
    X = features_of(frame)
    theirs = bare.inplace_predict(X) if package == "xgboost" else bare.predict(X)
    np.testing.assert_allclose(theirs, answers["probability_yes"].astype(float), atol=1e-6)
    assert [path.name for path in flavour.glob("model.*")] == [MODEL_FILES[package]]
    assert not [path for path in local.rglob("*") if path.suffix in (".pkl", ".pickle", ".joblib")]
    pins = (local / "requirements.txt").read_text("utf-8").splitlines()
    assert sum(line.startswith(package) for line in pins) == 1
    assert (flavour / "requirements.txt").read_text("utf-8").splitlines() == pins
    shown = CliRunner().invoke(
        app, ["predict", f"models:/{name}/1", str(data), str(into / "p"), "--tracking", str(output)]
    )
    assert shown.exit_code == 0, shown.output
    predictions = pq.read_table(into / "p").column("probability_yes").to_pylist()
    np.testing.assert_allclose(predictions, answers["probability_yes"].astype(float), atol=1e-12)


MODEL_FILES = {"xgboost": "model.json", "lightgbm": "model.lgb"}
MISSING = "not installed: pip install -c deploy/constraints.txt '.[dev]'"


@pytest.mark.slow
def test_the_recipe_of_the_page_registers_trees_of_xgboost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xgboost", reason=f"xgboost is {MISSING}")
    page = (Path(engine.__file__).parent / "training" / "README.md").read_text("utf-8")
    (shown,) = (text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "xgboost" in text)
    section = yaml.safe_load(shown)["train"]
    done = engine.run(small_recipe(tmp_path, tracking={"enabled": True}, train=section))
    assert done.training is not None
    assert done.training["trained"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'out' / 'mlflow.db'}")
    data = tmp_path / "data" / "s0.parquet"
    check_registered(tmp_path / "out", data, section["register_as"], "xgboost", tmp_path / "checked")


@pytest.mark.slow
def test_trees_of_lightgbm_are_registered(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightgbm", reason=f"lightgbm is {MISSING}")
    trees = ["--set", "model=lightgbm:LGBMClassifier", "--set", "model_params={n_estimators: 9}"]
    done = retrain(published, "--trainer", "erm", *trees, "--register", "trees", "--json")
    assert done.exit_code == 0, done.output
    again = retrain(published, "--trainer", "erm", *trees, "--json")
    assert json.loads(again.stdout)["reused"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{published / 'mlflow.db'}")
    data = published.parent / "data" / "s0.parquet"
    check_registered(published, data, "trees", "lightgbm", tmp_path)


def test_a_recipe_whose_library_is_missing_is_refused_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.recipe.estimators.find_spec", lambda name: None)
    section = {"params": {"model": "xgboost:XGBClassifier"}}
    with pytest.raises(InputError, match=r"xgboost is not installed.*'rowsieve\[xgboost\]'"):
        engine.run(small_recipe(tmp_path, train=section))


def test_validate_refuses_a_trainer_that_cannot_train_the_model(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"""
name: small
source: {{path: {tmp_path}, label: label}}
output: {{path: {tmp_path / "out"}}}
train: {{trainer: gdro, params: {{model: "sklearn:HistGradientBoostingClassifier"}}}}
""",
        "utf-8",
    )
    done = CliRunner().invoke(app, ["validate", str(recipe)])
    assert done.exit_code != 0
    assert "changes the rows' weights in every gradient step" in " ".join(done.output.split())
