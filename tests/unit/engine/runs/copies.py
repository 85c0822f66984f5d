"""First runs of the same recipe over the same files: one is computed, the others are copies of its output.

Many tests look at the second run over a folder that has grown, and begin with the same first one.
"""

from __future__ import annotations

import shutil
import tempfile
from hashlib import sha256
from pathlib import Path

from engine.publish.results import RunResult
from engine.recipe.recipe import Recipe
from engine.runs.runner import run

STASH = tempfile.TemporaryDirectory(prefix="rowsieve-copies-")
MADE: dict[tuple[str, ...], Path] = {}
"""Outputs, by recipe without its paths, and by the names and contents of the files."""


def first_run(recipe: Recipe) -> RunResult:
    """Run a recipe over a folder of files into an output that is not there yet.

    A run of which there is a copy computes nothing: its result counts every part as reused.
    """
    source, output = Path(str(recipe.source.path)), Path(str(recipe.output.path))
    assert not output.exists()
    text = recipe.model_dump_json().replace(str(output), "OUTPUT").replace(str(source), "SOURCE")
    files = sorted(path for path in source.iterdir() if path.is_file())
    key = text, *(f"{path.name} {sha256(path.read_bytes()).hexdigest()}" for path in files)
    if key in MADE:
        shutil.copytree(MADE[key], output, symlinks=True)
        return run(recipe)
    result = run(recipe)
    MADE[key] = Path(shutil.copytree(output, Path(STASH.name) / str(len(MADE)), symlinks=True))
    return result
