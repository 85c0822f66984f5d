"""Reference pages are what the code says, and `rowsieve sources` tells the same."""

from __future__ import annotations

import json
import re
from typing import Literal

import pytest
import yaml
from pydantic import BaseModel, Field
from typer.testing import CliRunner

from connectors.filters import parse
from connectors.registry import BUILT_IN
from engine.cli.app import app
from engine.recipe.recipe import SourceSection
from engine.recipe.reference import PAGES, ROOT, key_table
from engine.recipe.schema import recipe_schema


@pytest.mark.parametrize("path", PAGES)
def test_pages_are_up_to_date(path: str) -> None:
    message = f"{path} is stale: run `python -m engine.recipe.reference`"
    assert (ROOT / path).read_text("utf-8") == PAGES[path](), message


@pytest.mark.parametrize("path", PAGES)
def test_every_key_is_explained(path: str) -> None:
    rows = [line for line in PAGES[path]().splitlines() if line.startswith("| `")]
    assert rows
    assert [row for row in rows if row.endswith("|  |")] == []


class Inner(BaseModel):
    x: int = 1


class Keys(BaseModel):
    a: int
    b: Literal["p", "q"] = Field(default="p", description="one | the other")
    c: tuple[float, ...] | None = None
    d: Inner = Inner()


def test_a_table_says_type_default_and_meaning_of_each_key() -> None:
    assert key_table(Keys)[2:] == [
        "| `a` | integer | required |  |",
        '| `b` | "p", "q" | `"p"` | one \\| the other |',
        "| `c` | list of number or null | `null` |  |",
        '| `d` | Inner | `{"x": 1}` |  |',
    ]


def test_sources_are_listed_and_explained() -> None:
    runner = CliRunner()
    every = runner.invoke(app, ["sources"])
    assert every.exit_code == 0
    assert all(name in every.output for name in BUILT_IN)
    listed = json.loads(runner.invoke(app, ["sources", "--json"]).output)
    assert [found["name"] for found in listed] == list(BUILT_IN)
    one = runner.invoke(app, ["sources", "parquet"])
    assert "hive" in one.output
    assert runner.invoke(app, ["sources", "parqet"]).exit_code == 2


def test_the_schema_of_recipes_has_the_formats() -> None:
    source = recipe_schema()["$defs"]["SourceSection"]["properties"]
    assert source["format"]["enum"] == ["auto", *BUILT_IN]
    assert any("hive" in model["properties"] for model in source["options"]["anyOf"] if "properties" in model)


def test_the_readmes_source_is_one() -> None:
    text = (ROOT / "connectors/README.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    source = SourceSection.model_validate(yaml.safe_load(block)["source"])
    assert parse(source.filter) is not None
