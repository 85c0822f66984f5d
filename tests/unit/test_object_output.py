"""Whole runs whose output lies on S3, beside the same run on a disk: the same bytes, the same resume."""

from pathlib import Path
from typing import Any

import pytest

from connectors.storage import ObjectPath, Place
from engine.manifest import current_version
from engine.plan import make_plan
from engine.recipe import Recipe
from engine.results import RunResult
from engine.runner import run
from engine.status import status_of
from engine.store import output_of
from engine.training.version import open_version
from tests.data import recipe_for, spurious_table, write_shards
from tests.s3 import SECRET, USER, S3Server


def recipe_at(folder: Path, output: str, **sections: Any) -> Recipe:
    """A recipe over three shards; tracking is off, as S3 holds no database."""
    if not (folder / "data").exists():
        write_shards(folder / "data", spurious_table(), 3)
    return Recipe.parse(recipe_for(folder / "data", output, **({"tracking": {"enabled": False}} | sections)))


def files_of(version: Place) -> dict[str, bytes]:
    """Everything a version holds."""
    if isinstance(version, ObjectPath):
        return {path.key[len(version.key) + 1 :]: path.read_bytes() for path in version.below()}
    return {str(p.relative_to(version)): p.read_bytes() for p in version.rglob("*") if p.is_file()}


@pytest.fixture
def on_disk(tmp_path: Path) -> RunResult:
    return run(recipe_at(tmp_path, str(tmp_path / "out")))


def test_the_same_bytes_as_on_a_disk_and_nothing_twice(
    s3: S3Server, on_disk: RunResult, tmp_path: Path
) -> None:
    uri = s3.uri(s3.bucket(), "deep/er")
    recipe = recipe_at(tmp_path, uri)
    result = run(recipe)
    output = output_of(uri)
    assert files_of(result.path) == files_of(on_disk.path)
    assert current_version(output) == on_disk.version
    assert b"<html" in (output / "reports" / f"{result.version}.html").read_bytes()
    again = run(recipe)
    assert again.reused
    assert [operator.computed for operator in again.operators] == [0] * len(again.operators)
    status = status_of(make_plan(recipe))
    assert (status["published"], status["current"], status["running"]) == (True, True, False)
    assert open_version(uri).name == result.version
    names = {path.key for path in output.below()}
    assert not [name for name in names if name.endswith(".tmp") or ("/.lease/" in name and ".d/" in name)]
    told = [path.read_bytes() for path in output.below()]
    assert not [text for text in told if SECRET.encode() in text or USER.encode() in text]
