"""Names from recipes, files and rows are printed as they stand: no markup, no control of the terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml
from rich.table import Table
from rich.tree import Tree
from typer.testing import CliRunner

from engine.cli.app import app
from engine.cli.safe_output import SafeConsole, bold
from tests.data import recipe_for, spurious_table, write_shards

NAMES = {"a": "[/]", "b": "[bold red]b\x1b[2J", "label": "[/label] :smile:"}
SHOWN = ("[/]", "[bold red]b")


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a recipe whose columns, file and name look like markup."""
    folder = tmp_path_factory.mktemp("hostile")
    table = spurious_table()
    table = table.rename_columns([NAMES.get(name, name) for name in table.column_names])
    write_shards(folder / "data", table, 2)
    (folder / "data/s0.parquet").rename(folder / "data/[dim]s0.parquet")
    weights = {"groups": {"method": "none"}, "weights": {}, "split": {}}
    recipe = recipe_for(folder / "data", folder / "out[dim]", operators=weights)
    recipe |= {"source": {"path": str(folder / "data"), "label": NAMES["label"]}}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    done = CliRunner().invoke(app, ["run", str(folder / "recipe.yaml")])
    assert done.exit_code == 0, done.output
    return folder


def shown(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    assert "\x1b[2J" not in done.output
    return done.output


def test_every_verb_prints_them_as_they_stand(output: Path) -> None:
    recipe, out = str(output / "recipe.yaml"), str(output / "out[dim]")
    assert "[/label]" in shown("plan", recipe)
    assert "[/]" in shown("cues", out)
    assert all(name in shown("explain", out, "0") for name in SHOWN)
    for verb in ("versions", "groups"):
        assert shown(verb, out)
    assert shown("status", recipe)
    (version,) = (output / "out[dim]/versions").iterdir()
    assert "[dim]" in shown("lineage", str(version))
    assert "out[dim]" in shown("retrain", "--dataset", out, "--trainer", "erm")


def test_a_console_reads_no_markup_anywhere() -> None:
    stream = io.StringIO()
    console = SafeConsole(file=stream, width=200)
    table, text = Table("[/]"), "[/] [bold]x :smile:"
    table.add_row(text)
    tree = Tree(text)
    tree.add(text)
    for item in (text, table, tree, bold(text) + text):
        console.print(item)
    console.print("\x1b[2J")
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().count(text) == 6
