"""An output keeps every table that a version was exported to, and a withdrawal names each of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from connectors.tables.export import PendingExport
from engine.cli.app import app
from engine.publish.export_records import FOLDER, record_export
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from engine.storage.withdrawals import withdrawal_of
from tests.data import recipe_for, spurious_table, write_shards

OPERATORS = {"groups": {"method": "none"}, "weights": {}, "split": {}}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output with two versions, of which the recipe has exported the later one."""
    folder = tmp_path_factory.mktemp("published")
    write_shards(folder / "data", spurious_table())
    values = recipe_for(folder / "data", folder / "out")
    values["operators"] = OPERATORS
    run(Recipe.parse(values))
    values["output"]["export"] = [{"format": "parquet", "path": str(folder / "by_recipe")}]
    run(Recipe.parse(values | {"seed": 4}))
    return folder


@pytest.fixture
def folder(published: Path, tmp_path: Path) -> Path:
    shutil.copytree(published / "out", tmp_path / "out")
    return tmp_path


def command(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, [*arguments])
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


def names(folder: Path) -> tuple[str, str]:
    """Return the older version, and the current one."""
    last = (folder / "out" / "CURRENT").read_text().strip()
    (first,) = {entry.name for entry in (folder / "out" / "versions").iterdir()} - {last}
    return first, last


def test_a_withdrawal_names_every_table_and_says_what_to_do(published: Path, folder: Path) -> None:
    first, last = names(folder)
    out = f"{folder}/out"
    for place in ("hf:{}/card", "parquet:{}/plain"):
        command("export", out, "--to", place.format(folder), "--executor", "local")
        assert "was already" in command("export", out, "--to", place.format(folder), "--executor", "local")
    command("export", f"{out}@{first}", "--to", f"parquet:{folder}/other", "--executor", "local")
    before = {path: path.read_bytes() for path in (folder / "card").rglob("*") if path.is_file()}
    foreseen = json.loads(command("retract", f"{out}@{last}", "--why", "x", "--dry-run", "--json"))
    shown = command("retract", f"{out}@{last}", "--why", "labels of May")
    for table in (f"hf {folder}/card", f"parquet {folder}/plain", f"parquet {published}/by_recipe"):
        assert f"it was exported to {table}, which still holds it" in shown
    assert "other" not in shown
    again = f"rowsieve export {out}@{first} --to"
    assert f"replace all its rows: {again} hf:{folder}/card --mode overwrite" in shown
    removed = f"remove its folder {folder}/plain/{last}, and write a version that stands: "
    assert f"{removed}{again} parquet:{folder}/plain --mode append" in shown
    shutil.rmtree(folder / "plain" / last)
    command(*again.split()[1:], f"parquet:{folder}/plain", "--mode", "append", "--executor", "local")
    command(*again.split()[1:], f"hf:{folder}/card", "--mode", "overwrite", "--executor", "local")
    before = {path: path.read_bytes() for path in (folder / "card").rglob("*") if path.is_file()}
    found = json.loads(command("retract", f"{out}@{last}", "--why", "labels of May", "--json"))
    assert [table["path"] for table in found["exports"]] == [
        f"{folder}/card",
        *sorted([f"{published}/by_recipe", f"{folder}/plain"]),
    ]
    assert [{**table, "replaced_by": ""} for table in found["exports"]] == foreseen["exports"]
    after = {path: path.read_bytes() for path in (folder / "card").rglob("*") if path.is_file()}
    assert after == before


def test_a_table_that_another_version_has_replaced_is_named_as_such(folder: Path) -> None:
    first, last = names(folder)
    for name in (last, first):
        to = f"delta:{folder}/t"
        command("export", f"{folder}/out@{name}", "--to", to, "--mode", "overwrite", "--executor", "local")
    again = command("export", f"{folder}/out@{last}", "--to", to, "--executor", "local")
    assert "was already version 0" in again
    shown = command("retract", f"{folder}/out@{last}", "--why", "x")
    assert f"where {first} has replaced it; older states may hold it" in shown
    assert "it was exported to delta" in command("retract", f"{folder}/out@{first}", "--why", "x")


def test_a_table_made_anew_by_another_version_holds_the_earlier_one_no_more(folder: Path) -> None:
    first, last = names(folder)
    for name in (last, first):
        shutil.rmtree(folder / "t", ignore_errors=True)
        command("export", f"{folder}/out@{name}", "--to", f"parquet:{folder}/t", "--executor", "local")
    shown = command("retract", f"{folder}/out@{last}", "--why", "x")
    assert f"exported to parquet {folder}/t, where {first} has replaced it" in shown
    assert f"remove its folder {folder}/t" not in shown


def test_an_export_that_died_in_its_commit_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PendingExport, "commit", killed)
        words = ["export", f"{folder}/out", "--to", f"parquet:{folder}/t", "--executor", "local"]
        CliRunner().invoke(app, words)
    shown = command("retract", f"{folder}/out@{names(folder)[1]}", "--why", "x")
    assert f"an export to parquet {folder}/t was begun and not ended; the table may hold it" in shown


def test_the_remedy_for_a_table_of_a_catalog_names_none_that_is_not_one(folder: Path) -> None:
    """The record has the address of a catalog that was given by its properties, and no name that loads it."""
    first, last = names(folder)
    table: Any = SimpleNamespace(
        format="iceberg", path="ours.t", catalog={"uri": "https://cat:8181"}, mode="create"
    )
    record_export(folder / "out", last, table, "1", written=True)
    shown = command("retract", f"{folder}/out@{last}", "--why", "x")
    assert "exported to iceberg ours.t in iceberg://cat:8181, which still holds it" in shown
    again = f"rowsieve export {folder}/out@{first} --to iceberg:ours.t --mode overwrite --catalog CATALOG, "
    assert f"{again}the name or the properties that the export had (iceberg://cat:8181)" in shown


@pytest.mark.parametrize("text", ["", "{}", "[" * 100_000, '{"version": "v"}'])
def test_a_damaged_record_is_an_error_after_the_withdrawal(text: str, folder: Path) -> None:
    last = names(folder)[1]
    (record,) = (folder / "out" / FOLDER / last).iterdir()
    record.write_text(text)
    assert f"{record} says which table holds" in command(
        "retract", f"{folder}/out@{last}", "--why", "x", code=2
    )
    assert withdrawal_of(folder / "out", last) is not None


def test_an_output_that_cannot_be_written_is_a_warning(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(folder / "out" / FOLDER)
    (folder / "out" / FOLDER).write_text("no folder")
    command("export", f"{folder}/out", "--to", f"parquet:{folder}/t", "--executor", "local")
    assert "`rowsieve retract` will not name it" in caplog.text
