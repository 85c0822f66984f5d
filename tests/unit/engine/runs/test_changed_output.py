"""Another command changes the output after a run was planned and before it holds the lease."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from engine.core.errors import InputError
from engine.recipe.recipe import Recipe
from engine.runs import runner
from engine.runs.history import prune
from engine.runs.retraction import retract
from engine.runs.runner import run
from engine.storage.manifest import pointed_version, published_versions
from tests.data import recipe_for, spurious_table

OPERATORS: dict[str, Any] = {"groups": {"method": "none"}, "weights": {}, "split": {}}


def add_rows(folder: Path, name: str, seed: int) -> None:
    (folder / "data").mkdir(exist_ok=True)
    pq.write_table(spurious_table(80, seed), folder / "data" / f"{name}.parquet")


def recipe(folder: Path, base: str | None = "current") -> Recipe:
    value = recipe_for(folder / "data", folder / "out", incremental={"base": base}, operators=OPERATORS)
    return Recipe.parse(value)


def before_the_lease(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Do other work in the output when the next run, which is planned already, asks for the lease."""
    real = runner.hold_lease

    def late(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(runner, "hold_lease", real)
        work()
        return real(*arguments, **options)

    monkeypatch.setattr(runner, "hold_lease", late)


@pytest.mark.parametrize("base", ["current", None])
def test_rows_that_another_run_has_published_stay_current(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, base: str | None
) -> None:
    add_rows(tmp_path, "a", 0)
    run(recipe(tmp_path, base))
    assert "planned again" not in caplog.text

    def another_run() -> None:
        add_rows(tmp_path, "c", 2)
        run(recipe(tmp_path, base))

    add_rows(tmp_path, "b", 1)
    before_the_lease(monkeypatch, another_run)
    with caplog.at_level(logging.WARNING, "rowsieve"):
        slow = run(recipe(tmp_path, base))
    assert slow.manifest["rows"] == 240
    assert slow.reused
    assert pointed_version(tmp_path / "out") == slow.version
    assert caplog.text.count("it is planned again") == 1


def test_a_base_that_was_withdrawn_is_not_continued_or_published_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_rows(tmp_path, "a", 0)
    first, out = run(recipe(tmp_path)), tmp_path / "out"
    before_the_lease(monkeypatch, lambda: retract(out, first.version, "labels of May"))
    with pytest.raises(InputError, match=r"was withdrawn: labels of May"):
        run(recipe(tmp_path))
    assert pointed_version(out) is None
    add_rows(tmp_path, "b", 1)
    second = run(recipe(tmp_path))
    add_rows(tmp_path, "c", 2)
    before_the_lease(monkeypatch, lambda: retract(out, second.version, "labels of June"))
    assert "incremental" not in run(recipe(tmp_path)).manifest


def test_a_base_that_was_removed_is_replaced_by_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_rows(tmp_path, "a", 0)
    first, out = run(recipe(tmp_path)), tmp_path / "out"

    def run_and_prune() -> None:
        add_rows(tmp_path, "c", 2)
        run(recipe(tmp_path))
        prune(out, keep=1)

    add_rows(tmp_path, "b", 1)
    before_the_lease(monkeypatch, run_and_prune)
    last = run(recipe(tmp_path))
    assert published_versions(out) == [last.version]
    assert last.manifest["rows"] == 240
    assert last.version != first.version
