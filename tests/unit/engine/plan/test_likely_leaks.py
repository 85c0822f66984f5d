"""Columns that tell the label on their own are named by validate, by a run and its report, and by curate."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import rowsieve
from engine.cli.app import app
from engine.plan.likely_leaks import likely_leaks, unsought_text
from engine.plan.planner import make_plan
from engine.plan.sample import draw_sample
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from operators.ingest.label_checks import LabelCounts

N = 400
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, N)
TABLE = pa.table(
    {
        "left": np.where(Y, "yes", "no"),
        "age": RNG.integers(18, 90, N),
        "closed_on": (np.where(Y, 18_000, 12_000) + RNG.integers(0, 900, N)).astype("datetime64[D]"),
        "refund": np.where(Y, RNG.gamma(2, 50, N), 0.0),
        "constant": np.zeros(N),
    }
)
PLAIN = {"groups": {"method": "none"}, "weights": {}, "split": {}}


def recipe_of(folder: Path, **keys: Any) -> Recipe:
    pq.write_table(TABLE, folder / "a.parquet")
    given = {
        "name": "r",
        "source": {"path": str(folder / "a.parquet"), "label": "left"} | keys.pop("source", {}),
        "operators": PLAIN | keys.pop("operators", {}),
        "output": {"path": str(folder / "out")},
        "run": {"executor": "local"},
        "tracking": {"enabled": False},
    }
    return Recipe.parse(given)


def leaks(recipe: Recipe) -> set[str]:
    return {leak.name for leak in likely_leaks(make_plan(recipe))}


def test_brackets_in_a_name_are_no_pattern(tmp_path: Path) -> None:
    """What the warning advises ends it."""
    recipe = recipe_of(tmp_path, source={"rename": {"refund": "refund [EUR]"}})
    assert "refund [EUR]" in leaks(recipe)
    answered = {"cues": {"legitimate": ["refund [EUR]"]}, "groups": {"method": "cues"}}
    recipe = recipe_of(tmp_path, source={"rename": {"refund": "refund [EUR]"}}, operators=answered)
    assert leaks(recipe) == {"closed_on"}


def test_columns_in_use_are_searched(tmp_path: Path) -> None:
    assert leaks(recipe_of(tmp_path)) == {"closed_on", "refund"}
    assert leaks(recipe_of(tmp_path, source={"exclude": ["refund"]})) == {"closed_on"}
    assert leaks(recipe_of(tmp_path, source={"features": ["age"]})) == set()


def test_what_the_author_has_answered_is_no_news(tmp_path: Path) -> None:
    answered = {"cues": {"legitimate": ["refund"], "spurious": ["closed_*"]}}
    assert leaks(recipe_of(tmp_path, operators=answered)) == set()


def test_unused_columns_are_no_leaks(tmp_path: Path) -> None:
    given = {"encode": {"columns": {"refund": "exclude"}}}
    assert leaks(recipe_of(tmp_path, operators=given)) == {"closed_on"}


def test_validate_warns_and_has_them_as_json(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(recipe_of(tmp_path).model_dump(mode="json", exclude_unset=True)))
    done = CliRunner().invoke(app, ["validate", str(path)])
    assert done.exit_code == 0
    assert re.search(
        r"warning: likely leak: 'refund' alone is right on (99\.\d|100\.0)% of unseen", done.stdout
    )
    printed = json.loads(CliRunner().invoke(app, ["validate", str(path), "--json"]).stdout)
    assert {leak["name"] for leak in printed["likely_leaks"]} == {"closed_on", "refund"}
    assert [warning["kind"] for warning in printed["warnings"]] == ["leak", "leak"]


def test_a_run_warns_and_its_report_shows_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "rowsieve"):
        result = run(recipe_of(tmp_path))
    assert {leak.name for leak in result.leaks} == {"closed_on", "refund"}
    assert sum("likely leak: 'refund'" in message for message in caplog.messages) == 1
    page = (tmp_path / "out" / "reports" / f"{result.version}.html").read_text()
    assert re.search(r"Likely leak: &#39;refund&#39; alone is right on (99\.\d|100\.0)% of unseen", page)


def test_a_source_that_cannot_be_read_is_the_runs_affair(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recipe = recipe_of(tmp_path, source={"on_corrupt": "skip", "path": str(tmp_path / "*.parquet")})
    data = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(data[:100] + b"\0" * 400 + data[500:])
    pq.write_table(TABLE, tmp_path / "b.parquet")
    with caplog.at_level("WARNING", "rowsieve"):
        run(recipe)
    assert "plugin leaks failed" not in caplog.text


def test_curate_keeps_them(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "rowsieve"):
        curated = rowsieve.curate(TABLE, label="left", operators=PLAIN)
    assert {leak.name for leak in curated.leaks} == {"closed_on", "refund"}
    names = ", ".join(repr(leak.name) for leak in curated.leaks)
    assert f"Likely leaks, each of which tells the label on its own: {names}." in repr(curated)
    assert "likely leak: 'refund'" in caplog.text


def sorted_by_label(folder: Path, n: int = 120_000, n_first: int = 60_000) -> Recipe:
    """A file of one row group, sorted by its label, with a column that tells the label."""
    y = np.arange(n) >= n_first
    table = pa.table(
        {"left": np.where(y, "yes", "no"), "refund": y * 5 + np.sin(np.arange(n)), "age": RNG.random(n)}
    )
    recipe = recipe_of(folder)
    pq.write_table(table, folder / "a.parquet")
    return recipe


def test_leaks_are_found_in_rows_that_are_sorted_by_the_label(tmp_path: Path) -> None:
    assert leaks(sorted_by_label(tmp_path)) == {"refund"}


def test_a_preview_says_that_no_leak_was_looked_for(tmp_path: Path) -> None:
    plan = make_plan(sorted_by_label(tmp_path, n_first=119_999))
    sample = draw_sample(plan.source, plan.listing, n_rows=1000)
    counts = LabelCounts("left", {"no": 119_999, "yes": 1}, 0, is_exact=True)
    assert "the 1,000 rows that were drawn are of one class" in unsought_text(counts, sample)
    assert not unsought_text(LabelCounts("left", {"no": 1000}, 0, is_exact=True), sample)
