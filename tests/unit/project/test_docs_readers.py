"""The README's Python runs as it stands, as in a notebook; what the page on tables shows are recipes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from connectors.registry import connector
from connectors.sink import write_parquet
from engine.recipe.recipe import Recipe
from tests.data import spurious_table

pytest.importorskip("polars")
pytest.importorskip("duckdb")
ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
BLOCK = next(block for block in BLOCKS if "polars" in block)
NOTEBOOK = next(block for block in BLOCKS if "rowsieve.curate" in block)


def test_the_notebook_runs_for_every_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import polars

    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    table = spurious_table().drop_columns(["vector"]).rename_columns(["a", "b", "churned", "_truth"])
    pq.write_table(table, "data/churn.parquet")
    found: dict[str, Any] = {}
    exec(NOTEBOOK, found)
    curated = found["curated"]
    assert found["train"]["a"].tolist() == [
        value for value, split in zip(table["a"].to_pylist(), curated.split, strict=True) if split == "train"
    ]
    assert len(found["weights"]) == len(found["train"]) > 100
    assert "<html" in Path("churn.html").read_text("utf-8")
    shown = curated._repr_html_()
    (line,) = (line for line in NOTEBOOK.splitlines() if "rowsieve.curate(" in line)
    for frame in (polars.from_arrow(table), table):
        again: dict[str, Any] = {"rowsieve": found["rowsieve"], "frame": frame}
        exec(line, again)
        assert again["curated"].table.equals(curated.table)
        assert again["curated"].groups.equals(curated.groups)
        assert again["curated"]._repr_html_() == shown
    (answer,) = (block for block in BLOCKS if "spurious" in block)
    exec(answer.replace("background", "b"), found)
    assert found["curated"].recipe.operators["cues"] == {"spurious": ["b"]}
    assert [*found["chain"]] == [*curated.recipe.operators]


def test_a_version_opens_in_pandas_polars_duckdb_and_datasets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    folder = Path("curated/churn/versions/v1")
    (folder / "data").mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    Path("curated/churn/CURRENT").write_text("v1\n")
    ids = pa.array(range(6), pa.int64())
    split = pa.array(["train", "test"] * 3).cast(pa.dictionary(pa.int8(), pa.string()))
    vector = pa.FixedSizeListArray.from_arrays(pa.array(range(12), pa.float32()), 2)
    table = pa.table({"row_id": ids, "split": split, "vector": vector})
    for part in range(2):
        write_parquet(table.slice(3 * part, 3), folder / "data" / f"part-{part:05d}.parquet")
    found: dict[str, Any] = {}
    exec(BLOCK, found)
    rows = table.to_pylist()
    assert found["by_pandas"]["row_id"].tolist() == found["by_polars"]["row_id"].to_list() == ids.to_pylist()
    values = [tuple(row.values()) for row in rows]
    assert found["by_duckdb"].order("row_id").fetchall() == values
    assert found["by_datasets"].to_list() == rows
    assert found["by_pandas"]["split"].tolist() == [row["split"] for row in rows]
    assert found["by_polars"]["split"].to_list() == [row["split"] for row in rows]


def test_what_the_page_on_tables_shows_is_part_of_a_recipe() -> None:
    page = (ROOT / "connectors" / "tables" / "README.md").read_text("utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 5
    rest = {"name": "shown", "source": {"path": "x", "label": "y"}, "output": {"path": "out"}}
    for block in blocks:
        recipe = Recipe.parse(rest | yaml.safe_load(block))
        if recipe.source.format != "auto":
            connector(recipe.source.format).Options.model_validate(recipe.source.options)
