"""Example rows show the columns that the page is about, not the first ones of the source."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.report.fields import MAX_FIELDS, named_columns, shown_fields
from engine.runs.runner import run
from operators.report import SOURCE_COLUMN, RecipeChoice, RecipeChoices, ReportSection, ReportTable
from tests.data import recipe_for

N = 600
RNG = np.random.default_rng(0)
ASKED = RecipeChoices(
    ("operators", "any"),
    ("spurious",),
    [
        RecipeChoice(value, value)
        for value in ("c20", "[c21, 'd*']", "{column: c19, values: [a]}", "{words: [x]}")
    ],
)
IMPORTANT = ReportTable((SOURCE_COLUMN, "loss"), [("c17", "1"), ("c20", "0"), ("c16", "0")])
OTHER = ReportTable(("column", "used as"), [("c3", "numeric")])
SECTIONS = [
    ReportSection("Others", [OTHER, IMPORTANT, ReportTable((), [])]),
    ReportSection("Shortcuts", ["text", ASKED]),
]


def recipe_of(folder: Path, **sections: object) -> Recipe:
    """Write 26 columns of which ``c20`` goes with the label in most rows; return a recipe for them."""
    y = RNG.integers(0, 2, N)
    columns = {f"c{i}": RNG.normal(size=N) for i in range(25)}
    columns["c20"] = np.where(RNG.random(N) < 0.9, y, 1 - y) + RNG.normal(0, 0.05, N)
    columns["c24"] += y
    table = pa.table({**columns, "d1": RNG.normal(size=N), "label": np.where(y, "yes", "no")})
    (folder / "data").mkdir()
    pq.write_table(table, folder / "data" / "0.parquet")
    return Recipe.parse(recipe_for(folder / "data", folder / "out", truth={"group": None}, **sections))


def test_columns_that_readers_are_asked_about_come_first_and_then_important_ones(tmp_path: Path) -> None:
    plan = make_plan(recipe_of(tmp_path))
    assert named_columns(SECTIONS) == ["c20", "c21", "d*", "c19", "c17", "c20", "c16"]
    assert shown_fields(plan, SECTIONS) == (["c20", "c21", "d1", "c19", "c17", "c16", "c0", "c1"], [])
    assert shown_fields(plan) == ([f"c{i}" for i in range(MAX_FIELDS)], [])


def test_the_recipe_decides(tmp_path: Path) -> None:
    plan = make_plan(recipe_of(tmp_path, report={"fields": ["c3", "label"]}))
    assert shown_fields(plan, SECTIONS) == (["c3"], [])


def test_the_page_shows_the_suspected_shortcut(tmp_path: Path) -> None:
    operators = {"cues": {"spurious": ["c24"]}, "groups": {"method": "cues"}}
    recipe = recipe_of(tmp_path, operators=operators, report={"enabled": True})
    result = run(recipe)
    page = (tmp_path / "out" / "reports" / f"{result.version}.html").read_text("utf-8")
    heads = re.findall(r"<thead><tr><th>row_id</th>(.*?)</tr>", page)
    shown = [name for name in re.findall(r">([^<>]+)</th>", heads[0]) if re.fullmatch(r"c\d+|d1", name)]
    assert len(shown) == MAX_FIELDS
    assert {"c20", "c24"} <= {*shown[:3]}
