"""CPU seconds of each of some nights with equally many new rows: what a night costs for the rows before it.

    python -m tests.soak.cost --nights 20 --files 2 --rows 5000 --keep-weights

Every night's run places new rows (``incremental.mode: predict``) in this process, with the report and without
MLflow. CPU seconds are those of all threads of the process; other work on the machine changes them little.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from engine.recipe.recipe import Recipe
from engine.runs.runner import run

NUMBERS = 6
"""Columns of numbers that say nothing of the label."""


@dataclass(frozen=True)
class Cost:
    """One night."""

    night: int
    rows: int
    """Rows of all nights so far."""
    cpu_seconds: float
    seconds: float
    taken_over: int
    """Parts of the version that are those of the night before."""


def rows_of(night: int, count: int) -> pa.Table:
    """Return the rows of a night: a cue that agrees with the label in 90 % of them, and numbers."""
    rng = np.random.default_rng([0, night])
    y = rng.integers(0, 2, count)
    agrees = rng.random(count) < 0.9
    columns: dict[str, Any] = {
        "a": np.where(agrees, y, 1 - y) * 4.0 - 2.0 + rng.normal(0, 0.2, count),
        "b": y - 0.5 + rng.normal(0, 0.2, count),
        **{f"c{number}": rng.normal(0, 1, count) for number in range(NUMBERS)},
        "label": np.where(y == 1, "yes", "no").tolist(),
    }
    return pa.table(columns)


def recipe_of(folder: Path, *, recount: bool) -> Recipe:
    """Return the recipe of the nights."""
    weights = {"method": "group_balanced", "trust": "all", "recount": recount}
    return Recipe.parse(
        {
            "name": "cost",
            "seed": 3,
            "source": {"path": f"{folder}/data/*.parquet", "label": "label"},
            "operators": {
                "probe": {"l2": 0.05, "trainer": "in_process"},
                "gradients": {},
                "groups": {"min_samples": [5], "min_rows": 0},
                "weights": weights,
                "split": {},
            },
            "incremental": {"base": "current", "mode": "predict"},
            "tracking": {"enabled": False},
            "output": {"path": str(folder / "out")},
            "run": {"executor": "local"},
        }
    )


def costs(folder: Path, nights: int, files: int, rows: int, *, recount: bool) -> Iterator[Cost]:
    """Let the files of one night after the other arrive, run, and yield what the run has cost."""
    (folder / "data").mkdir()
    recipe = recipe_of(folder, recount=recount)
    for night in range(1, nights + 1):
        table = rows_of(night, rows * files)
        for file in range(files):
            path = folder / "data" / f"night-{night:04d}-{file:03d}.parquet"
            pq.write_table(table.slice(file * rows, rows), path)
        started, cpu = time.perf_counter(), time.process_time()
        result = run(recipe)
        cpu, seconds = time.process_time() - cpu, time.perf_counter() - started
        yield Cost(night, result.manifest["rows"], cpu, seconds, result.parts_taken_over)


def main() -> None:
    """Run the nights and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.cost", description=__doc__.splitlines()[0])
    parser.add_argument("--nights", type=int, default=20)
    parser.add_argument("--files", type=int, default=2, help="new files a night")
    parser.add_argument("--rows", type=int, default=5_000, help="rows of a file")
    parser.add_argument("--keep-weights", action="store_true", help="weights: {recount: false}")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rowsieve-cost-") as folder:
        for cost in costs(
            Path(folder), given.nights, given.files, given.rows, recount=not given.keep_weights
        ):
            print(
                f"night {cost.night}: {cost.rows:,} rows, {cost.cpu_seconds:.2f} CPU s, "
                f"{cost.seconds:.1f} s, {cost.taken_over} parts taken over",
                flush=True,
            )


if __name__ == "__main__":
    main()
