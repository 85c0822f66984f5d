"""Groups in words after a run: file, report, MLflow, API and CLI; no truth; the same for any shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import rowsieve
from engine.cli.app import app
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.runs import descriptions
from engine.runs.runner import run
from operators.encode.texts import MISSING_TEXTS
from tests.data import recipe_for, write_shards

N = 1_600


def described_table(seed: int = 0) -> pa.Table:
    """Two classes; a cue ``site`` breaks for 15 % of rows, and the truth says where."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, N)
    breaks = rng.random(N) < 0.15
    site = np.where(breaks, 1 - y, y)
    return pa.table(
        {
            "cue": site * 4.0 - 2.0 + rng.normal(0, 0.2, N),
            "b": y - 0.5 + rng.normal(0, 0.6, N),
            "site": np.where(site == 1, "Oslo", "Rome").tolist(),
            "label": np.where(y == 1, "yes", "no").tolist(),
            "truth": np.where(breaks, "minor", "major").tolist(),
            "secret": np.where(breaks, "minor", "major").tolist(),
        }
    )


def recipe(folder: Path, shards: int, **sections: Any) -> Recipe:
    write_shards(folder / "data", described_table(), shards)
    found = recipe_for(
        folder / "data",
        folder / "out",
        source={"features": ["cue", "b"], "exclude": ["secret"]},
        **sections,
    )
    found["operators"] = {
        "probe": {"l2": 0.05, "trainer": "in_process"},
        "gradients": {},
        "groups": {"method": "kmeans", "k": 2, "min_rows": 0},
        "weights": {"method": "uniform"},
        "split": {},
    }
    return Recipe.parse(found)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    run(recipe(folder, 4, report={"enabled": True}, tracking={"enabled": True}))
    return folder / "out"


def read(output: Path) -> dict[str, Any]:
    (path,) = (output / "reports").glob("*.groups.json")
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def test_groups_are_told_by_a_column_that_is_no_feature(output: Path) -> None:
    found = read(output)
    firsts = {(entry["class"], entry["rule"]["conditions"][0]) for entry in found["groups"]}
    assert firsts == {(name, f"site = {site}") for name in ("no", "yes") for site in ("Oslo", "Rome")}
    for entry in found["groups"]:
        assert entry["rule"]["coverage"] > 0.95
        assert entry["rule"]["lift"] > 1
        assert entry["share"] == pytest.approx(entry["rows"] / N)
    assert sum(entry["rows"] for entry in found["groups"]) == N


def test_texts_are_missing_as_the_recipe_says(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", described_table(), 1)
    found = recipe_for(tmp_path / "data", tmp_path / "out")
    found["source"]["features"] = ["cue", "site"]
    for given, expected in (({}, MISSING_TEXTS), ({"missing_values": ["n.d."]}, ("n.d.",))):
        found["operators"] = {"encode": given, "groups": {"method": "none"}, "weights": {}, "split": {}}
        assert descriptions._missing_texts(make_plan(Recipe.parse(found))) == expected


def test_truth_excluded_columns_and_the_label_are_never_named(output: Path) -> None:
    """``truth`` and ``secret`` would describe the groups as well as ``site`` does."""
    assert read(output)["columns"] == ["cue", "b", "site"]


def test_the_descriptions_do_not_depend_on_the_shards(output: Path, tmp_path: Path) -> None:
    run(recipe(tmp_path, 1))
    one, four = read(tmp_path / "out"), read(output)
    assert one["groups"] == four["groups"]


def test_report_command_and_api_say_the_same(output: Path) -> None:
    (page,) = (output / "reports").glob("*.html")
    assert "site = Oslo" in page.read_text("utf-8")
    shown = CliRunner().invoke(app, ["groups", str(output)])
    assert shown.exit_code == 0
    assert "site = Oslo" in shown.output
    as_json = CliRunner().invoke(app, ["groups", str(output), "--json"])
    assert json.loads(as_json.output) == read(output)
    frame = rowsieve.open(output).groups
    assert list(frame.columns) == ["group", "class", "rows", "share", "accuracy", "description"]
    assert frame["description"].tolist() == [entry["description"] for entry in read(output)["groups"]]


def test_mlflow_has_the_groups_as_a_table(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    uri = f"sqlite:///{output / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    client = mlflow.MlflowClient(uri)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    (tracked,) = client.search_runs(experiments)
    frame = client.load_table(tracked.info.experiment_id, "groups.json")
    assert frame["description"].tolist() == [entry["description"] for entry in read(output)["groups"]]


def test_a_version_without_descriptions_says_what_to_do(output: Path, tmp_path: Path) -> None:
    again = tmp_path / "out"
    chosen = recipe(tmp_path, 2)
    version = run(chosen).version
    file = again / "reports" / f"{version}.groups.json"
    before = file.read_bytes()
    file.unlink()
    failed = CliRunner().invoke(app, ["groups", str(again)])
    assert failed.exit_code == 2
    assert "Run its recipe again" in failed.output
    assert run(chosen).reused
    assert file.read_bytes() == before
    unknown = CliRunner().invoke(app, ["groups", str(again), "--version", "v0"])
    assert unknown.exit_code == 2
    assert "no published version 'v0'" in unknown.output


def test_curate_describes_groups() -> None:
    table = described_table().drop_columns(["truth", "secret"])
    curated = rowsieve.curate(
        table,
        label="label",
        features=["cue", "b"],
        operators={
            "probe": {"trainer": "in_process", "l2": 0.05},
            "gradients": {},
            "groups": {"method": "kmeans", "k": 2, "min_rows": 0},
            "weights": {"method": "uniform"},
            "split": {},
        },
    )
    texts = curated.groups["description"].tolist()
    assert len(texts) == 4
    assert all("site = " in text or "cue " in text for text in texts), texts


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_prose_is_prose_whatever_type_holds_it(kind: pa.DataType) -> None:
    """pandas and polars write ``large_string``, of which no central row was shown."""
    texts = ["the film was slow but kind", None, "这部电影虽然节奏缓慢"]
    assert descriptions._is_prose(pa.chunked_array([pa.array(texts).cast(kind)]))
    assert descriptions._is_prose(pa.chunked_array([pa.array(texts[2:]).cast(kind)]))
    assert not descriptions._is_prose(pa.chunked_array([pa.array(["a word", "two words"]).cast(kind)]))
    assert not descriptions._is_prose(pa.chunked_array([pa.array([], kind)]))
