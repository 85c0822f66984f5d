"""Writes ``tests/paper/ADULT.md``: the whole of UCI Adult, as it is published, through its recipe.

    ROWSIEVE_REAL_DATA=FOLDER python -m tests.paper.adult

The folder holds ``adult.csv``. Without it nothing is written, and the reason is printed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from engine.plan.planner import make_plan
from engine.plan.preview import Preview, check_label, preview
from engine.recipe.recipe import Recipe
from engine.runs.descriptions import required_descriptions
from engine.runs.runner import run
from operators.report.text import percent

HERE = Path(__file__).parent
RECIPE = HERE.parents[1] / "deploy" / "recipes" / "adult.yaml"
PAGE = HERE / "ADULT.md"
FOLDER = os.environ.get("ROWSIEVE_REAL_DATA", "")


def reason_to_skip() -> str:
    """Return why the page cannot be written; empty if it can."""
    if not FOLDER:
        return "ROWSIEVE_REAL_DATA names no folder with adult.csv"
    path = Path(FOLDER) / "adult.csv"
    return "" if path.exists() else f"{path} is not there"


def page(found: Preview, manifest: Mapping[str, Any], described: Mapping[str, Any], seconds: float) -> str:
    """Return the text of the page."""
    lines = [
        "# UCI Adult as it is published",
        "",
        "`python -m tests.paper.adult` writes this page: `adult.csv`, both published files below one header, "
        "through `deploy/recipes/adult.yaml`.",
        "",
        f"{manifest['rows']:,} rows, {manifest['summary']['quarantined']:,} of them faulty; "
        f"{manifest['summary']['outliers']:,} marked as outliers; {seconds:.0f} CPU seconds on one core, "
        "without the report.",
        "",
        "| column | use | values, or why not |",
        "|---|---|---|",
        *(f"| {column.name} | {column.kind} | {column.about} |" for column in found.columns),
        "",
        "| class | group | rows | probe right on | in words |",
        "|---|---|---|---|---|",
    ]
    for entry in described["groups"]:
        accuracy = "–" if entry["accuracy"] is None else percent(entry["accuracy"])
        lines.append(
            f"| {entry['class']} | {entry['group']} | {entry['rows']:,} | {accuracy} "
            f"| {entry['description']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the recipe and write the page."""
    if reason := reason_to_skip():
        print(f"ADULT.md is left as it is: {reason}")
        return
    with TemporaryDirectory() as folder:
        settings = [
            f"source.path={FOLDER}/adult.csv",
            f"output.path={folder}/out",
            "run.executor=local",
            "report.enabled=false",
            "tracking.enabled=false",
        ]
        recipe = Recipe.load(RECIPE, settings)
        found = preview(make_plan(recipe))
        check_label(found)
        started = time.process_time()
        result = run(recipe)
        seconds = time.process_time() - started
        described = required_descriptions(make_plan(recipe).output, result.version)
        PAGE.write_text(page(found, result.manifest, described, seconds), "utf-8")
    print(f"{PAGE}: written")


if __name__ == "__main__":
    main()
