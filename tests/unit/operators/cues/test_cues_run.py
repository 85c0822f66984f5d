"""The README's recipe through the engine: shards do not matter, and an answer recomputes weights only."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

import rowsieve
from engine.cli.app import app
from engine.cli.cues import example_section
from operators.cues.output.listing import recipe_section

OPERATORS: dict[str, Any] = {
    "cues": {},
    "groups": {"method": "cues"},
    "outliers": {"evidence": {"max_rows": 300}},  # not tested here, and most of the time otherwise
    "weights": {},
    "split": {"validation": 0.2},
}


@pytest.fixture(scope="module")
def frame(cue_problem: Any) -> pd.DataFrame:
    X, label, _, _, _ = cue_problem
    names = [*(f"f{j}" for j in range(6)), "background", "constant"]
    return pd.DataFrame(X, columns=names).assign(label=label)


def run(frame: pd.DataFrame, folder: Path, shards: int = 3, report: bool = False, **cues: Any) -> Any:
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    for index, rows in enumerate(np.array_split(np.arange(len(frame)), shards)):
        path = data / f"{index}.parquet"
        if not path.exists():
            frame.iloc[rows].to_parquet(path, index=False)
    recipe = {
        "name": "cue",
        "source": {"path": str(data), "label": "label"},
        "operators": {**OPERATORS, "cues": cues},
        "output": {"path": str(folder / "out")},
        "run": {"executor": "local"},
        "report": {"enabled": report},
        "tracking": {"enabled": False},
    }
    return rowsieve.run(rowsieve.Recipe.parse(recipe))


@pytest.fixture(scope="module")
def first(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("first")
    return run(frame, folder), folder


def test_default_weights_favour_the_rows_that_break_the_cue(
    first: Any, frame: pd.DataFrame, tmp_path: Path
) -> None:
    found = rowsieve.open(str(first[1] / "out")).to_pandas()
    broken = (frame["background"] > 1) != frame["label"].astype(bool)
    assert found.loc[found["split"] == "train", "weight"].mean() == pytest.approx(1, abs=1e-5)
    assert found.loc[broken, "weight"].mean() > 2 * found.loc[~broken, "weight"].mean()
    assert found["group"].nunique() == 4
    run(frame, tmp_path, shards=1)
    again = rowsieve.open(str(tmp_path / "out")).to_pandas()
    np.testing.assert_allclose(again["weight"], found["weight"], rtol=1e-6)
    for column in ("group", "split", "is_outlier"):
        assert again[column].tolist() == found[column].tolist()


def test_the_page_warns_of_a_small_class_once_and_the_log_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Cues, weights and ingest each warned of the same class, and the weights logged it as well."""
    rng = np.random.default_rng(0)
    label = np.array(["a", "b"])[rng.integers(0, 2, 600)].astype(object)
    label[:12] = "small"
    frame = pd.DataFrame({"x": (label == "a") + rng.normal(size=600), "label": label})
    result = run(frame, tmp_path, shards=1, report=True)
    page = result.report.read_text("utf-8")
    warned = [text for text in re.findall(r'<p class="note">(.*?)</p>', page) if "small" in text]
    assert len(warned) == 1
    assert warned[0].startswith("The class &#39;small&#39; (12 rows) has fewer than 50 rows to learn from")
    assert "too small to be estimated" not in page.split("What to do next")[0]
    assert page.count("Class small (12 rows) is left out of the worst class") == 1
    assert not [one for one in caplog.records if "too small" in one.message and one.levelname == "WARNING"]


def test_the_command_lists_the_cue_first(first: Any) -> None:
    result = CliRunner().invoke(app, ["cues", str(first[1] / "out"), "--json"])
    found = json.loads(result.stdout)
    assert found["suspects"][0]["feature"] == "background"
    assert found["part"] > 0.5
    assert yaml.safe_load(found["recipe_section"]) == {"operators": {"cues": {}}}
    assert "background" in example_section(found).splitlines()[-1]
    names = {"recipe_section": found["recipe_section"], "part": 0.0}
    strong = {"answer": "open", "strength": 0.5, "gain": 0.2, "cost": 0.0}
    told = [{**strong, "reference": name} for name in ("new\nline", "hired in Nov-Feb")]
    section = example_section(names | {"suspects": told})
    assert yaml.safe_load(section) == {"operators": {"cues": {"spurious": [], "legitimate": []}}}
    last = section.splitlines()[-1].partition("`: ")[2]
    assert yaml.safe_load(f"[{last}]") == ["new\nline", "hired in Nov-Feb"]
    background = found["suspects"][0]["feature"]
    (state,) = (first[1] / "out").rglob("importance.json")
    entries = {entry["column"]: entry for entry in json.loads(state.read_text())["columns"]}
    run_metrics = next(o for o in first[0].operators if o.name == "cues").metrics
    assert (
        run_metrics[f"importance.balanced_accuracy.{background}"]
        == entries[background]["balanced_accuracy"]["mean"]
    )
    text = CliRunner().invoke(app, ["cues", str(first[1] / "out")])
    assert text.exit_code == 0
    assert "background" in text.stdout


def test_an_answer_recomputes_weights_only(first: Any, frame: pd.DataFrame) -> None:
    second = run(frame, first[1], spurious=["background"])
    computed = {operator.name: operator.computed for operator in second.operators}
    assert computed["ingest"] == 0
    assert computed["cues"] == computed["weights"] == 3
    found = json.loads(CliRunner().invoke(app, ["cues", str(first[1] / "out"), "--json"]).stdout)
    assert found["suspects"][0]["answer"] == "spurious"
    assert yaml.safe_load(found["recipe_section"]) == {"operators": {"cues": {"spurious": ["background"]}}}


@pytest.mark.slow
def test_an_increment_from_which_rows_are_gone_fits_the_weights_again(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    run(frame[:900], tmp_path)
    (tmp_path / "data" / "0.parquet").unlink()
    recipe = rowsieve.Recipe.parse(
        {
            "name": "cue",
            "source": {"path": str(tmp_path / "data"), "label": "label"},
            "operators": {**OPERATORS, "cues": {}},
            "incremental": {"base": "current"},
            "output": {"path": str(tmp_path / "out")},
            "run": {"executor": "local"},
            "report": {"enabled": False},
            "tracking": {"enabled": False},
        }
    )
    second = rowsieve.run(recipe)
    assert second.manifest["rows"] == 600
    assert second.manifest["incremental"]["fitted"]["cues"] == "rows are gone"


def test_a_version_without_cues_says_what_to_do(frame: pd.DataFrame, tmp_path: Path) -> None:
    chain = {"groups": {"method": "none"}, "weights": {"method": "uniform"}, "split": {}}
    rowsieve.curate(frame[:200], label="label", operators=chain, output=str(tmp_path))
    result = CliRunner().invoke(app, ["cues", str(tmp_path)])
    assert result.exit_code != 0
    assert "without the operator `cues`" in result.output


@pytest.mark.parametrize(
    "reference",
    [
        "PAY_0",
        "yes",
        "a b",
        "image[48]",
        "x: y",
        "{",
        '"',
        "ü",
        "-",
        "1",
        {"column": "PAY_0", "cut": 1.5},
        ["a", "no"],
    ],
)
def test_the_section_to_copy_reads_back(reference: Any) -> None:
    text = recipe_section([reference], ["f1"])
    assert yaml.safe_load(text) == {"operators": {"cues": {"spurious": [reference], "legitimate": ["f1"]}}}
