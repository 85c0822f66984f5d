"""Kill a run when it has left its n-th file or folder, and see what a rerun makes of what is there."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.data import recipe_for, spurious_table, write_shards
from tests.faults.processes import finish, run_recipe
from tests.unit.operators.embed.test_embed_run import text_table

OPERATORS: dict[str, dict[str, Any]] = {
    "probe": {"l2": 0.05, "trainer": "in_process", "epochs": 3},
    "gradients": {},
    "neighbours": {"n_neighbors": 5},
    "groups": {"min_samples": [5, 10]},
    "weights": {"method": "uniform"},
    "split": {},
}
DRAWN = {"enabled": True}  # the report is among what a kill may interrupt
METHODS: dict[str, dict[str, Any]] = {
    "embed": {
        "model": "tests.unit.operators.embed.test_embed:letters",
        "column": "word",
        "resources": {"gpus": 0},
    },
    "eos": {"alpha": 0.4},
    "dckm": {"n_clusters": 3, "max_iter": 5},
    "decorrelation": {"max_iter": 5},
    **OPERATORS,
}
"""Every operator there is, on text."""
POLL = 0.001
Stamp = tuple[int, int]


class Watch:
    """Every file and folder that ever lay below a folder, told apart by name and inode."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.seen = str(folder), set[tuple[str, int]]()

    def look(self) -> int:
        """Return the number of changes seen so far."""
        waiting = [self._folder]
        while waiting:
            for entry in _entries(waiting.pop()):
                with contextlib.suppress(OSError):
                    self.seen.add((entry.path, entry.inode()))
                    waiting += [entry.path] if entry.is_dir(follow_symlinks=False) else []
        return len(self.seen)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return list(entries)
    return []


def recipe_in(folder: Path, output: str = "out", **sections: Any) -> dict[str, Any]:
    """A recipe with all operators over three shards, one row of which is faulty."""
    if not (folder / "data").exists():
        table = spurious_table()
        column = [None, *table.column("label").to_pylist()[1:]]
        write_shards(folder / "data", table.set_column(3, "label", pa.array(column)), 3)
    source = {"on_error": "quarantine"}
    sections = {"operators": OPERATORS, "source": source, "report": DRAWN, **sections}
    return recipe_for(folder / "data", folder / output, **sections)


def methods_in(folder: Path, output: str = "out", **sections: Any) -> dict[str, Any]:
    """The same over three shards of text, one row of which is faulty, with every method."""
    if not (folder / "data").exists():
        write_shards(folder / "data", text_table(), 3)
    source = {"on_error": "quarantine"}
    sections = {"operators": METHODS, "source": source, "report": DRAWN, **sections}
    return recipe_for(folder / "data", folder / output, **sections)


def count_events(folder: Path, recipe: dict[str, Any]) -> int:
    """Files and folders that an unbroken run makes, as far as a watcher sees them."""
    watch = Watch(Path(recipe["output"]["path"]))
    process = run_recipe(folder, recipe)
    while process.exitcode is None:
        watch.look()
        time.sleep(POLL)
    assert finish(process) == 0, (folder / "recipe.log").read_text()
    return watch.look()


def run_and_kill(folder: Path, recipe: dict[str, Any], events: int, delay: float = 0.0) -> bool:
    """Run the recipe; kill it once ``events`` new files were seen. False if it ended before."""
    watch = Watch(Path(recipe["output"]["path"]))
    before = watch.look()
    process = run_recipe(folder, recipe)
    while watch.look() - before < events:
        if process.exitcode is not None:
            assert finish(process) == 0, (folder / "recipe.log").read_text()
            return False
        time.sleep(POLL)
    time.sleep(delay)
    os.kill(process.pid or 0, signal.SIGKILL)
    return finish(process) == -signal.SIGKILL


def committed(output: Path) -> dict[str, Stamp]:
    """Return committed work: records with their parts, and fits, each with inode and modification time."""
    parts = [path for path in output.glob("store/*/part-*.json") if path.with_suffix(".parquet").exists()]
    fits = list(output.glob("store/*/fit.json"))
    kept = [*parts, *fits, *(path.with_suffix(".parquet") for path in parts)]
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in kept}


def published(output: Path) -> dict[str, bytes]:
    """The current version, to the byte."""
    folder = output / "versions" / (output / "CURRENT").read_text().strip()
    return {str(path.relative_to(output)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def complete(folder: Path, recipe: dict[str, Any], reference: dict[str, bytes]) -> int:
    """Rerun to the end; check that nothing committed was made again and that the version is the reference.

    Returns how many files had been committed before.
    """
    output = Path(recipe["output"]["path"])
    before = committed(output)
    if (output / "CURRENT").exists():
        assert published(output) == reference
    assert finish(run_recipe(folder, recipe)) == 0, (folder / "recipe.log").read_text()
    after = committed(output)
    assert {path: after.get(path) for path in before} == before
    assert published(output) == reference
    assert [str(path) for path in output.rglob("*.tmp")] == []
    assert [path.name for path in (output / "versions").iterdir()] == [
        (output / "CURRENT").read_text().strip()
    ]
    return len(before)
