"""The identity of a source's shards, which names a version: other rows of the same files are another one."""

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.core.errors import InputError
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


@pytest.mark.parametrize("key", ["spurious", "legitimate"])
def test_a_column_that_is_excluded_is_no_answer(key: str, tmp_path: Path) -> None:
    """It was said not to exist."""
    table = pa.table({"x": [1.0, 2.0] * 30, "copy": ["a", "b"] * 30, "y": ["a", "b"] * 30})
    pq.write_table(table, tmp_path / "in.parquet")
    source = {"path": str(tmp_path / "in.parquet"), "label": "y", "exclude": ["copy"]}
    operators = {"groups": {"method": "cues"}, "weights": {}, "split": {}, "cues": {key: ["copy"]}}
    value = {"name": "left-out", "source": source, "operators": operators, "output": {"path": "out"}}
    with pytest.raises(InputError, match=f"cues.{key} names the column 'copy', which source.exclude leaves"):
        make_plan(Recipe.parse(value))
