"""Neighbours on Ray: the same sidecars as in this process, whatever the shards."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from engine.runner import run
from tests.data import small_recipe

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_cluster")]


def edges(folder: Path, **sections: Any) -> list[dict[str, Any]]:
    """Neighbours of every row as stored, in row order."""
    run(small_recipe(folder, operators={"neighbours": {"eps": 0.05, "metric": "cosine"}}, **sections))
    parts = [path for path in (folder / "out").rglob("part-*.parquet") if "versions" not in path.parts]
    names = ["neighbour_ids", "neighbour_distances"]
    ours = sorted(path for path in parts if names[0] in pq.read_schema(path).names)
    return [row for path in ours for row in pq.read_table(path, columns=names).to_pylist()]


def test_ray_finds_what_one_process_finds(tmp_path: Path) -> None:
    alone = edges(tmp_path / "alone", shards=1)
    assert sum(len(row["neighbour_ids"]) for row in alone) > len(alone) == 240
    assert edges(tmp_path / "ray", shards=3, run={"executor": "ray"}) == alone
