"""The driver is killed while its output grows on S3: the command goes on, puts nothing twice, same bytes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connectors.storage import ObjectPath, Place
from engine.core.output_layout import output_of, version_folder
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from engine.storage.withdrawals import current_version
from tests.faults.killing import recipe_in
from tests.faults.processes import finish, run_recipe
from tests.s3 import S3Server

Puts = list[str]
TIMED = ("/.lease/", "/progress.json")
"""Put every few seconds, however far the run is: no moment of it."""


def files_of(output: Place) -> dict[str, bytes]:
    """The current version, to the byte."""
    version = version_folder(output, current_version(output) or "none")
    if isinstance(version, ObjectPath):
        return {path.key[len(version.key) + 1 :]: path.read_bytes() for path in version.below()}
    return {
        str(path.relative_to(version)): path.read_bytes() for path in version.rglob("*") if path.is_file()
    }


def committed(output: ObjectPath) -> set[str]:
    """Parts with their records, and fits with their states."""
    names = {path.key for path in (output / "store").below()}
    done = {name for name in names if name.endswith((".json", ".parquet"))}
    parts = {name for name in done if name.endswith(".parquet") and f"{name[:-8]}.json" in done}
    return (
        parts
        | {f"{name[:-8]}.json" for name in parts}
        | {name for name in names if name.endswith("fit.json")}
    )


def recipe_on(s3: S3Server, folder: Path) -> dict[str, Any]:
    """The recipe with all operators, its output in a new bucket."""
    return recipe_in(folder) | {"output": {"path": s3.uri(s3.bucket(), "out")}}


@contextmanager
def putting(s3: S3Server) -> Iterator[Puts]:
    """Record the objects that are put within the block."""
    puts: Puts = []

    def rule(method: str, path: str) -> None:
        if method == "PUT" and not any(name in f"/{path}" for name in TIMED):
            puts.append(path)

    with s3.faults.answering(rule):
        yield puts


def killed_at(s3: S3Server, folder: Path, recipe: dict[str, Any], moment: int, delay: float) -> None:
    """Run it; kill it once it has put so many objects."""
    with putting(s3) as puts:
        process = run_recipe(folder, recipe)
        while len(puts) < moment and process.exitcode is None:
            time.sleep(0.001)
        time.sleep(delay)
        os.kill(process.pid or 0, signal.SIGKILL)
        finish(process)


def resume(s3: S3Server, folder: Path, recipe: dict[str, Any], reference: dict[str, bytes]) -> int:
    """Run it to the end; returns how many committed objects it found there."""
    output = output_of(recipe["output"]["path"])
    assert isinstance(output, ObjectPath)
    before = committed(output)
    if current_version(output):
        assert files_of(output) == reference
    with putting(s3) as puts:
        assert finish(run_recipe(folder, recipe)) == 0, (folder / "recipe.log").read_text()
    assert not before.intersection(path.partition("/")[2].partition("/")[2] for path in puts)
    assert files_of(output) == reference
    return len(before)


def check_moments(s3: S3Server, folder: Path, n_moments: int, seed: int) -> None:
    reference = run(Recipe.parse(recipe_in(folder)))
    expected = files_of(output_of(folder / "out"))
    whole = recipe_on(s3, folder)
    with putting(s3) as puts:
        assert finish(run_recipe(folder, whole)) == 0, (folder / "recipe.log").read_text()
    assert files_of(output_of(whole["output"]["path"])) == expected
    assert reference.version in "".join(puts)
    rng, kept = np.random.default_rng(seed), []
    for moment in [*rng.integers(1, len(puts), n_moments - 1).tolist(), len(puts) - 6]:
        recipe = recipe_on(s3, folder)
        killed_at(s3, folder, recipe, moment, rng.uniform(0, 0.01))
        kept.append(resume(s3, folder, recipe, expected))
    assert max(kept) > 0


@pytest.mark.slow
def test_killed_at_some_moments(s3: S3Server, tmp_path: Path) -> None:
    check_moments(s3, tmp_path, 2, seed=0)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_killed_at_many_moments(s3: S3Server, tmp_path: Path) -> None:
    check_moments(s3, tmp_path, 8, seed=1)
