"""An output that the source would read as well is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.core.errors import InputError
from engine.core.output_layout import output_of
from engine.plan.output_place import check_export_apart, check_output_apart
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from tests.data import recipe_for, spurious_table, write_shards


def recipe(source: str, output: str, format: str = "auto") -> Recipe:
    return Recipe.parse(
        recipe_for(Path(), Path(), source={"path": source, "format": format}, output={"path": output})
    )


@pytest.mark.parametrize(
    ("source", "output", "format"),
    [
        ("data", "data", "auto"),
        ("data/", "data/out", "parquet"),
        ("data", "./x/../data/a/b/", "auto"),
        ("link", "data/out", "auto"),
        ("data", "link/out", "auto"),
        (".", "out", "auto"),
        ("data/**/*.parquet", "data/out", "auto"),
        ("**/*", "data/out", "csv"),
        ("data/*/*.json", "data/out", "jsonl"),
        ("data", "data/out", "jsonl"),
        ("s3://b/data", "s3://b/data/out", "auto"),
        ("s3://k:s@b/data/**/*.parquet?region=x", "s3://b/data/out", "parquet"),
    ],
)
def test_an_output_among_the_source_is_refused(
    source: str, output: str, format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("engine.plan.output_place.marked", lambda path, markers: False)  # asks the store
    with pytest.raises(
        InputError, match=r"output\.path: .* lies in what source\.path reads, .*Choose"
    ) as caught:
        check_output_apart(recipe(source, output, format))
    assert output in str(caught.value)
    assert "k:s@" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "output", "format"),
    [
        ("data", "out", "auto"),
        ("data", "data2/out", "auto"),
        ("data", ".", "auto"),
        ("data", "data/_out", "auto"),
        ("data", "data/.a/out", "auto"),
        ("data/*.parquet", "data/out", "auto"),
        ("data/**/*.csv", "data/out", "auto"),
        ("data", "data/out", "csv"),
        ("data/a.parquet", "data", "auto"),
        ("s3://b/data", "s3://b/out", "auto"),
        ("s3://b/data", "s3://c/data/out", "auto"),
    ],
)
def test_an_output_beside_the_source_is_not(
    source: str, output: str, format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check_output_apart(recipe(source, output, format))


def test_a_plan_checks_it_and_an_output_with_the_data_in_it_is_read_again(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", spurious_table())
    with pytest.raises(InputError, match=r"such as out/versions/v0/data/part-00000\.parquet"):
        make_plan(Recipe.parse(recipe_for(tmp_path / "data", tmp_path / "data/out")))
    again = Recipe.parse(recipe_for(tmp_path / "data", tmp_path))
    assert run(again).version == run(again).version


def test_a_folder_that_is_a_table_names_its_files_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/_delta_log").mkdir(parents=True)
    check_output_apart(recipe("data", "data/out"))
    with pytest.raises(InputError, match="Choose"):
        check_output_apart(recipe("data", "data/out", "parquet"))


@pytest.mark.parametrize(
    ("source", "format", "path"),
    [
        ("data", "parquet", "data/exports"),
        ("data", "delta", "data"),
        ("data/*.parquet", "delta", "data"),
        ("data/**/*.parquet", "hf", "data/hf"),
        ("s3://b/data", "parquet", "s3://b/data/exports"),
        ("data", "delta", "out/versions/v1/data"),
        ("data", "delta", "out"),
        ("data", "lance", "out/store"),
        ("data", "parquet", "other/versions"),
    ],
)
def test_an_export_in_the_source_or_among_the_files_of_an_output_is_refused(
    source: str, format: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("engine.plan.output_place.marked", lambda path, markers: False)
    (tmp_path / "other/versions").mkdir(parents=True)
    (tmp_path / "other/CURRENT").write_text("v1")
    output = {"path": "out", "export": [{"format": format, "path": path}]}
    with pytest.raises(InputError, match=f"{path}.*(Choose|Export to)"):
        make_plan(Recipe.parse(recipe_for(Path(), Path(), source={"path": source}, output=output)))


@pytest.mark.parametrize(
    ("source", "path"),
    [("data", "exports"), ("data/*.csv", "data/x"), ("data", "out/exports"), ("d", "data")],
)
def test_an_export_elsewhere_is_not(
    source: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output = {"path": "out", "export": [{"format": "delta", "path": path}]}
    made = Recipe.parse(recipe_for(Path(), Path(), source={"path": source}, output=output))
    check_output_apart(made)
    check_export_apart(made.output.export[0], output_of(made.output.path))
