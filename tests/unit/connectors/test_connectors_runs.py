"""Whole runs over other formats than Parquet: faulty rows are set aside with their place in the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from engine import Recipe, run
from engine.cli.output import unread_columns
from engine.execution.quarantine import read_quarantine
from engine.plan.planner import make_plan
from tests.data import recipe_for, spurious_table
from tests.unit import formats

SLOW = ("webdataset", "hive", "csv", "ipc_stream", "huggingface")


def rows() -> list[dict[str, Any]]:
    """As `formats` writes them; every 7th x is missing, which is a fault."""
    found = spurious_table(120).to_pylist()
    named = enumerate(found)
    return [
        {"n": i, "x": None if i % 7 == 3 else row["a"], "t": f"t{i}", "y": "ab"[row["label"] == "yes"]}
        for i, row in named
    ]


@pytest.mark.parametrize("kind", ["jsonl_gz", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)])
def test_a_run_sets_faulty_rows_aside(kind: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    formats.WRITERS[kind](data, "a", rows())
    source = {
        "label": "y",
        "features": ["x"],
        "on_error": "quarantine",
        "max_error_rate": 0.5,
        "shard_bytes": 20_000,
        "rename": formats.RENAMES.get(kind, {}),
        "filter": ["n", ">=", 20],
        "columns": ["n"],
    }
    encode = {"encode": {"numeric": {"missing": "fail"}}}
    sections = {"source": source, "truth": {"group": None}, "operators": encode}
    recipe = Recipe.parse(recipe_for(data, tmp_path / "out", **sections))
    result = run(recipe)
    kept = [row for row in rows() if row["n"] >= 20]
    published = pq.read_table(result.path / "data").to_pylist()
    assert set([*published[0]][:3]) == {"n", "x", "y"}
    assert sorted(row["n"] for row in published) == [row["n"] for row in kept]
    assert [row["row_id"] for row in published] == list(range(len(kept)))
    faulty = {row["n"] for row in kept if row["x"] is None}
    assert {row["n"] for row in published if row["split"] == "dropped"} == faulty
    aside = read_quarantine(make_plan(recipe)).to_pylist()
    assert {json.loads(row["raw"])["n"] for row in aside} == faulty
    if kind != "hive":  # there a row's place is in its class's file
        assert {row["row"] for row in aside} == faulty


def test_a_column_that_comes_too_late_is_named(tmp_path: Path) -> None:
    lines = [{name: row[name] for name in ("a", "b", "label")} for row in spurious_table(120).to_pylist()]
    for name, extra in (("a", {}), ("b", {"more": 1})):
        kept = [*lines[:-1], lines[-1] | extra]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    source = {"path": str(tmp_path / "*.jsonl"), "options": {"head_bytes": 1024}}
    value = recipe_for(tmp_path, tmp_path / "out", source=source, truth={"group": None})
    manifest = run(Recipe.parse(value)).manifest
    assert manifest["source"]["unread"] == {str(tmp_path / "b.jsonl"): ["more"]}
    (line,) = unread_columns(manifest)
    assert line.startswith(f"{tmp_path}/b.jsonl: the column 'more' is not read")
    value["source"]["options"]["head_bytes"] = 2**20
    assert "more" in make_plan(Recipe.parse(value)).published_schema.names
