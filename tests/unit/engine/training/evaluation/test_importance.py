"""Importance of a trained model by source column: rows, features that belong together, and records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from engine.cli.app import app
from engine.execution.local_executor import LocalExecutor
from engine.recipe.trainers import parse_params
from engine.training import TrainResult, TrainSpec, train
from engine.training.data.features import dataset_of_version
from engine.training.data.rows import join
from engine.training.data.version import open_version
from engine.training.evaluation import importance as module
from engine.training.evaluation.by_group import by_class
from engine.training.evaluation.importance import RECORD, SAMPLE, source_blocks
from engine.training.evaluation.plots import PLOTS, draw
from engine.training.fit.job import TrainingJob
from engine.training.page import write_page
from operators.metrics.importance import permutation_importance
from operators.report.text import percent
from tests.unit.engine.training.publishing import publish

OPERATORS: dict[str, Any] = {
    "groups": {"method": "none"},
    "weights": {"method": "uniform"},
    "split": {"validation": 0.4},
}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """A category and an age with gaps that tell the label, a date, a boolean and a constant."""
    rng = np.random.default_rng(0)
    n = 1200
    y = rng.integers(0, 2, n)
    age = rng.normal(40, 10, n) + 8 * y
    city = np.where(rng.random(n) < 0.8, np.where(y > 0, "Rome", "Oslo"), "Paris").astype(object)
    age[rng.random(n) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "age": age,
            "city": city,
            "joined": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "active": rng.random(n) < 0.5,
            "constant": "x",
            "label": np.where(y > 0, "yes", "no"),
        }
    )


def trained(output: Path, **values: Any) -> TrainResult:
    spec = TrainSpec(output, parse_params(values), seed=4, importance=True)
    return train(spec, LocalExecutor())


def test_it_is_that_of_the_kernel_on_the_validation_rows(published: Path) -> None:
    result = trained(published)
    job = TrainingJob(open_version(published), parse_params({}), 4, result.folder)
    blocks = source_blocks(job.maker)
    assert list(blocks) == ["age", "city", "joined", "active"]
    assert sorted(p for positions in blocks.values() for p in positions) == list(range(job.maker.n_features))
    assert len(blocks["age"]) == 2  # the number, and whether it is missing
    assert len(blocks["city"]) >= 3
    data = dataset_of_version(job.version, job.maker, job.params.noise)
    rows = join([data.validation[0]])
    groups = by_class(np.array([*data.group_names, -1])[rows.group], rows.y)
    found = permutation_importance(
        result.model.predict, rows.X, rows.y, blocks, groups=groups, random_state=4
    )
    assert result.importance is not None
    kept = {key: result.importance[key] for key in ("rows", "repeats", "baseline", "columns")}
    assert kept == found.to_dict()
    evaluation = result.evaluations["validation"]
    assert kept["rows"] == evaluation.rows
    assert kept["baseline"]["accuracy"] == pytest.approx(evaluation.accuracy)
    assert kept["baseline"]["worst_group_accuracy"] == pytest.approx(
        evaluation.groupings["inferred"].worst_group_accuracy
    )
    assert [entry["column"] for entry in kept["columns"]][:2] == ["city", "age"]
    assert not (result.folder / SAMPLE).exists()
    assert json.loads((result.folder / RECORD).read_text()) == result.importance


def test_shards_do_not_matter_and_the_sample_is_bounded(
    frame: pd.DataFrame, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "max_scored_rows", lambda *_, **__: 200)
    monkeypatch.setattr(module, "MIN_DRAWN_ROWS", 200)
    one, cut = (
        trained(output, weight_decay=0.01) for output in (published, publish(frame, tmp_path, OPERATORS, 5))
    )
    assert one.importance is not None
    assert cut.importance is not None
    assert 150 <= one.importance["rows"] <= 200
    assert one.importance["rows"] == cut.importance["rows"]
    for a, b in zip(one.importance["columns"], cut.importance["columns"], strict=True):
        assert a["column"] == b["column"]
        assert a["accuracy"]["mean"] == pytest.approx(b["accuracy"]["mean"], abs=0.01)


def test_an_estimator_a_repetition_and_no_request(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"model": "sklearn:HistGradientBoostingClassifier", "model_params": {"max_iter": 5}}
    result = trained(published, **values)
    assert result.importance is not None
    assert result.importance["columns"][0]["column"] == "city"
    monkeypatch.setattr(module, "_measured", lambda *_: pytest.fail("it is there already"))
    assert trained(published, **values).importance == result.importance
    spec = TrainSpec(published, parse_params(values), seed=4)
    assert train(spec, LocalExecutor()).importance is None


def test_one_column_has_no_importance(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    X = (rng.normal(size=(300, 4)) + y[:, None]).astype(np.float32)
    frame = pd.DataFrame({"v": list(X), "label": y})
    result = trained(publish(frame, tmp_path, OPERATORS))
    assert result.importance is not None
    assert result.importance["reason"] == "all features come from one column, v"
    for split, evaluation in result.evaluations.items():
        draw(evaluation, result.folder / PLOTS / split)
    page = write_page(result).read_text("utf-8")
    assert "It is not given: all features come from one column, v." in page
    tables = [table for found in result.evaluations.values() for table in found.groupings.values()]
    groups = [group for table in tables for group in table.groups]
    shown = [group for group in groups if group.ece is not None and not group.pooled]
    assert shown
    for group in shown:
        cells = f"<td>{percent(group.ece)}</td><td>{100 * group.overconfidence:+.1f}&nbsp;%</td>"
        assert cells in page, group
    assert page.count("<td>–</td><td>–</td></tr>") == len(groups) - len(shown)


def test_the_command_tells_it(published: Path) -> None:
    arguments = ["retrain", "--dataset", str(published), "--executor", "local"]
    text = CliRunner().invoke(app, arguments)
    assert text.exit_code == 0, text.output
    assert "columns, validation rows: Balanced accuracy rests most on city" in text.output
    result = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert [entry["column"] for entry in result["importance"]["columns"]][:2] == ["city", "age"]
    page = (Path(result["folder"]) / "report.html").read_text()
    assert "Importance by source column" in page
    assert "Balanced accuracy rests most on city" in page
