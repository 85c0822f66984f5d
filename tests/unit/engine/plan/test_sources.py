"""The identity of a source's shards, which names a version: other rows of the same files are another one."""

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe


def version_with(place: Path, test: list[object]) -> str:
    source = {"path": str(place / "in.parquet"), "label": "y", "filter": [test]}
    value = {"name": "infinite", "source": source, "output": {"path": str(place / "out")}}
    return make_plan(Recipe.parse(value)).version


def test_filters_by_different_infinite_numbers_are_different_versions(tmp_path: Path) -> None:
    """As many rows pass each of them."""
    table = pa.table({"x": [math.inf, -math.inf] * 30, "y": ["a", "b", "b", "a"] * 15})
    pq.write_table(table, tmp_path / "in.parquet")
    above, below = (version_with(tmp_path, ["x", "!=", sign * math.inf]) for sign in (1, -1))
    assert above != below
