"""Small datasets and recipes for tests of whole runs, and helpers that several tests share."""

import socket
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq

from engine.recipe.recipe import Recipe


def spurious_table(n: int = 240, seed: int = 0) -> pa.Table:
    """Two classes, a cue that agrees with the label for 85 % of rows, and a weak true feature."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    agrees = rng.random(n) < 0.85
    cue = np.where(agrees, y, 1 - y) * 4.0 - 2.0
    x = np.column_stack([cue, y - 0.5, np.zeros(n)]) + rng.normal(0, 0.2, (n, 3))
    return pa.table(
        {
            "a": x[:, 0],
            "b": x[:, 1],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(x[:, 2].repeat(2), pa.float32()), 2),
            "label": pa.array(np.where(y == 1, "yes", "no").tolist()),
            "truth": pa.array(np.where(agrees, "major", "minor").tolist()),
        }
    )


def write_shards(folder: Path, table: pa.Table, shards: int = 4) -> None:
    """Parquet files of nearly equal length."""
    folder.mkdir(parents=True, exist_ok=True)
    cuts = np.linspace(0, table.num_rows, shards + 1).astype(int)
    for index, (start, stop) in enumerate(pairwise(cuts)):
        pq.write_table(table.slice(start, stop - start), folder / f"s{index}.parquet")


def write_csv(path: Path, table: pa.Table) -> None:
    """CSV without the columns it cannot hold."""
    pv.write_csv(table.drop_columns(["vector"]), path)


def recipe_for(path: Path, out: Path, **sections: Any) -> dict[str, Any]:
    """A recipe as a mapping; sections are merged into it."""
    recipe: dict[str, Any] = {
        "name": "small",
        "seed": 3,
        "source": {"path": str(path), "label": "label"},
        "truth": {"group": "truth"},
        "operators": {
            "probe": {"l2": 0.05, "trainer": "in_process"},
            "gradients": {},
            "groups": {"min_samples": [5, 10]},
            "weights": {"method": "uniform"},
            "split": {},
        },
        "output": {"path": str(out)},
        "run": {"executor": "local"},
        "report": {"enabled": False},
        "tracking": {"enabled": False},
    }
    for name, section in sections.items():
        merged = recipe.get(name)
        recipe[name] = {**merged, **section} if isinstance(merged, dict) else section
    return recipe


def small_recipe(folder: Path, *, shards: int = 2, output: str = "out", **sections: Any) -> Recipe:
    """The recipe over freshly written shards."""
    write_shards(folder / "data", spurious_table(), shards)
    return Recipe.parse(recipe_for(folder / "data", folder / output, **sections))


def cut(table: pa.Table, n_shards: int) -> list[pa.Table]:
    """Cut a table into shards of nearly equal size."""
    edges = np.linspace(0, table.num_rows, n_shards + 1).astype(int)
    return [table.slice(a, b - a) for a, b in pairwise(edges)]


def free_port() -> int:
    """Return a port of this host that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
