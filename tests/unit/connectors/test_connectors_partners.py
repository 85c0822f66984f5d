"""Output of NeMo Curator, Data-Juicer and datatrove is read as a source without changes.

The layouts are those of datatrove 0.10 (its writers were run and their files compared), of Data-Juicer's
exporters and of NeMo Curator's writers, which write a file for each task, named by a hash.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine import Recipe, run
from engine.plan.model import Plan
from engine.plan.planner import make_plan
from tests.data import recipe_for, spurious_table

N = 12


def plan_of(tmp_path: Path, path: Path, **source: Any) -> Plan:
    value = {"path": str(path), "label": "label", **source}
    output = {"path": str(tmp_path / "out")}
    return make_plan(Recipe.parse({"name": "r", "source": value, "output": output}))


def rows_of(plan: Plan) -> list[dict[str, Any]]:
    names, schema = plan.listing.schema.names, plan.listing.schema
    tables = [plan.source.read(shard, names, schema) for shard in plan.listing.shards]
    return [row for table in tables for row in table.to_pylist()]


def documents(rank: int) -> list[dict[str, Any]]:
    """datatrove leaves out what is empty, and whatever a step did not add."""
    found = []
    for i in range(N):
        metadata = {"language": "en", "language_score": 0.5 + i / 100, "label": "ab"[i % 2], "n": i}
        found.append(
            {
                "text": f"text {i}",
                "id": f"shard/{rank}/{i}",
                "metadata": metadata if i % 5 else {"label": "a"},
            }
        )
    return found


def datatrove_jsonl(folder: Path) -> None:
    for rank in (0, 1):
        text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in documents(rank))
        (folder / f"{rank:05d}.jsonl.gz").write_bytes(gzip.compress(text.encode()))


def datatrove_parquet(folder: Path) -> None:
    for rank in (0, 1):
        table = pa.Table.from_batches([pa.RecordBatch.from_pylist(documents(rank)[1:])])
        pq.write_table(table, folder / f"000_{rank:05d}.parquet")


@pytest.mark.parametrize("write", [datatrove_jsonl, datatrove_parquet])
def test_datatrove(write: Any, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write(tmp_path / "data")
    rename = {"metadata.label": "label", "metadata.language_score": "score", "id": "document"}
    plan = plan_of(tmp_path, tmp_path / "data", rename=rename, filter=[["score", ">", 0.55]])
    assert plan.features == ("text", "document", "score")  # the struct is none; encode leaves the id out
    wanted = [
        row for rank in (0, 1) for row in documents(rank) if row["metadata"].get("language_score", 0) > 0.55
    ]
    found = rows_of(plan)
    assert [(row["document"], row["label"], row["score"]) for row in found] == [
        (row["id"], row["metadata"]["label"], row["metadata"]["language_score"]) for row in wanted
    ]
    assert {row["metadata"]["language"] for row in found} == {"en"}


def test_datatrove_files_whose_metadata_differ(tmp_path: Path) -> None:
    """Each file has the fields of its first document."""
    for rank, extra in ((0, {}), (1, {"url": "http://a"})):
        rows = [
            {"text": "t", "id": str(i), "metadata": {"label": "a", "score": 0.5, **extra}} for i in range(3)
        ]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{rank:05d}.parquet")
    plan = plan_of(
        tmp_path, tmp_path / "*.parquet", rename={"metadata.label": "label", "metadata.score": "score"}
    )
    assert [row["metadata"]["url"] for row in rows_of(plan)] == [None] * 3 + ["http://a"] * 3


def juicer_rows() -> list[dict[str, Any]]:
    stats = {"text_len": 5, "lang_score": 0.5, "perplexity": [1.5, 2.5]}
    return [
        {
            "text": f"text {i}",
            "meta": {"src": "web", "date": "2024-01-01"},
            "label": "ab"[i % 2],
            "quality": i / N,
            "__dj__source_file__": ["a.jsonl"],
            "__dj__hash": f"{i:032x}",
            "__dj__stats__": {**stats, "text_len": i},
            "__dj__meta__": {"tags": ["x"]},
        }
        for i in range(N)
    ]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_data_juicer(kind: str, tmp_path: Path) -> None:
    """Shards beside a file of statistics, which is not theirs: the pattern leaves it out."""
    found = juicer_rows()
    for part in (0, 1):
        path = tmp_path / f"processed-0{part}-of-02.{kind}"
        half = found[part * N // 2 : (part + 1) * N // 2]
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(half), path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in half))
    (tmp_path / f"processed_stats.{kind}").write_text('{"__dj__stats__": {}}\n')
    plan = plan_of(tmp_path, tmp_path / f"processed-*.{kind}", rename={"__dj__stats__.text_len": "length"})
    assert plan.features == ("text", "quality", "length")
    assert [row["length"] for row in rows_of(plan)] == [*range(N)]
    assert [row["__dj__stats__"]["perplexity"] for row in rows_of(plan)] == [[1.5, 2.5]] * N


def curator_rows() -> list[dict[str, Any]]:
    return [
        {
            "_curator_dedup_id": i,
            "id": f"doc_{i // 100}_{i % 100}",
            "text": f"text {i}",
            "language": '["EN", 0.9]',
            "embeddings": [row["a"], row["b"]],
            "label": row["label"],
            "truth": row["truth"],
        }
        for i, row in enumerate(spurious_table().to_pylist())
    ]


def curator_recipe(folder: Path, kind: str) -> Recipe:
    data, rows = folder / "data", curator_rows()
    data.mkdir()
    half = len(rows) // 2
    for name, part in (("3f8a1c", rows[:half]), ("9d02be", rows[half:])):
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(part), data / f"{name}.parquet")
        else:
            (data / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    return Recipe.parse(recipe_for(data, folder / "out"))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_nemo_curator(kind: str, tmp_path: Path) -> None:
    """Its running number is no feature; embeddings are, and columns that `encode` looks at."""
    plan = make_plan(curator_recipe(tmp_path, kind))
    assert plan.features == ("id", "text", "language", "embeddings")
    assert rows_of(plan) == curator_rows()


@pytest.mark.slow
def test_a_run_on_what_nemo_curator_wrote_publishes_every_column(tmp_path: Path) -> None:
    result = run(curator_recipe(tmp_path, "parquet"))
    published = pq.read_table(result.path / "data").to_pylist()
    rows = curator_rows()
    assert [{key: row[key] for key in rows[0]} for row in published] == rows
