"""A registered estimator of scikit-learn: raw rows, promotion, MLflow's own flavour, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import engine
from engine.cli.app import app
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
        (["--trainer", "erm", "--set", "model=sklearn:RandomForest"], "RandomForestClassifier"),
    ],
)
def test_refusals_reach_the_command_line(published: Path, arguments: list[str], message: str) -> None:
    done = retrain(published, *arguments)
    assert done.exit_code != 0
    assert message in " ".join(done.output.split())


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
    assert "weighs rows anew in every gradient step" in " ".join(done.output.split())
