"""``rowsieve.open`` and ``rowsieve.run``: versions by name, parts one by one, overrides."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

import rowsieve
from engine.api import published
from engine.core.errors import InputError
from tests.data import recipe_for, spurious_table, write_shards


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """An output folder with two versions, oldest first."""
    folder = tmp_path_factory.mktemp("published")
    write_shards(folder / "data", spurious_table(), 3)
    recipe = recipe_for(folder / "data", folder / "out")
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    first = rowsieve.run(folder / "recipe.yaml")
    changed = rowsieve.run(recipe, overrides=["operators.split.validation=0.4"])
    same = rowsieve.run(rowsieve.Recipe.parse(recipe), overrides=["operators.split.validation=0.4"])
    assert same.reused
    assert changed.version == same.version != first.version
    return folder / "out", [first.version, changed.version]


def test_the_current_version_is_the_default(output: tuple[Path, list[str]]) -> None:
    folder, (first, current) = output
    assert rowsieve.open(folder).version == current
    assert rowsieve.open(str(folder), first).version == first
    assert rowsieve.open(folder / "versions" / first).manifest == rowsieve.open(folder, first).manifest


def test_parts_are_read_one_by_one(output: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    found, read = rowsieve.open(output[0]), []
    real = published.read_columns

    def counted(*arguments: Any) -> pa.Table:
        read.append(arguments)
        return real(*arguments)

    monkeypatch.setattr("rowsieve.published.read_columns", counted)
    parts = iter(found)
    assert read == []
    assert next(parts).num_rows == 80
    assert len(read) == 1
    assert sum(part.num_rows for part in found) == found.num_rows == 240


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_part_that_is_no_regular_file_is_refused(
    kind: str, output: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder, (_, current) = output
    shutil.copytree(folder / "versions" / current, tmp_path / "out/versions" / current)
    (tmp_path / "out/CURRENT").write_text(current)
    part = next((tmp_path / "out/versions" / current / "data").iterdir())
    part.unlink()
    os.mkfifo(part) if kind == "pipe" else part.mkdir()
    with pytest.raises(InputError, match=f"{part.name} is (no|not a) regular file"):
        rowsieve.open(tmp_path / "out")


def test_columns_can_be_chosen(output: tuple[Path, list[str]]) -> None:
    found = rowsieve.open(output[0])
    table = found.to_arrow(["row_id", "split"])
    assert table.column_names == ["row_id", "split"]
    assert table["row_id"].to_pylist() == [*range(240)]
    assert found.to_pandas(["weight"])["weight"].dtype == "float32"
    assert found.to_arrow().column_names == found.column_names
    assert isinstance(found.to_arrow(), pa.Table)
    for split in (None, "train"):
        with pytest.raises(InputError, match=r"has no column 'weigth'\. Did you mean 'weight'"):
            found.to_pandas(["row_id", "weigth"], split)


def test_unknown_versions_name_the_nearest(output: tuple[Path, list[str]], tmp_path: Path) -> None:
    folder, (first, _) = output
    with pytest.raises(rowsieve.InputError, match=f"Did you mean '{first}'"):
        rowsieve.open(folder, first[:-1] + "x")
    for text in (__file__, f"{__file__}@{first}"):
        with pytest.raises(rowsieve.InputError, match=r"\.py is a file, not a folder\. Name a folder"):
            rowsieve.open(text)
    with pytest.raises(rowsieve.InputError, match="the path is empty"):
        rowsieve.open("")
    with pytest.raises(rowsieve.InputError, match="holds no published version"):
        rowsieve.open(tmp_path)


def test_a_faulty_override_names_itself() -> None:
    with pytest.raises(rowsieve.InputError, match="--set nonsense"):
        rowsieve.run({"name": "x"}, overrides=["nonsense"])
    with pytest.raises(rowsieve.InputError, match="source: is required"):
        rowsieve.run({"name": "x"})
    with pytest.raises(rowsieve.InputError, match=r"overrides='seed=1': give a list"):
        rowsieve.run({"name": "x"}, overrides="seed=1")
    with pytest.raises(rowsieve.InputError, match=r"recipe=None: give a Recipe, a mapping"):
        rowsieve.run(None)  # type: ignore[arg-type]
