"""A text that only a held-out row has: the features that a training makes are those of the run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.execution.local_executor import LocalExecutor
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from engine.training.data.features import FeatureMaker
from engine.training.data.version import open_version
from tests.data import recipe_for

N = 400
SHARDS = 3


@pytest.mark.parametrize(
    ("source", "split"),
    [({}, {"validation": 0.3}), ({"holdout": {"share": 0.3, "key": "who"}}, {"validation": 0.0})],
    ids=["drawn", "holdout"],
)
def test_a_version_without_its_store_reads_the_column_as_the_run_did(tmp_path: Path, source, split) -> None:
    rng = np.random.default_rng(0)
    score = rng.integers(0, 90, N).astype(str).astype(object)
    y, who = rng.integers(0, 2, N), [f"w{i}" for i in range(N)]
    table = pa.table({"a": rng.normal(y), "label": np.where(y, "yes", "no"), "who": who})
    split = {**split, **({} if source else {"key": "who"})}

    def publish(name: str) -> Path:
        (tmp_path / name).mkdir()
        for shard in range(SHARDS):
            rows = slice(shard * N // SHARDS, (shard + 1) * N // SHARDS)
            part = table[rows.start : rows.stop].append_column("score", pa.array(score[rows]))
            pq.write_table(part, tmp_path / name / f"{shard}.parquet")
        out, operators = tmp_path / f"{name}-out", {"groups": {"method": "none"}, "split": split}
        sections = {"source": {**source, "exclude": ["who"]}, "operators": operators}
        run(Recipe.parse(recipe_for(tmp_path / name, out, truth={"group": None}, **sections)))
        return out

    numbers = publish("numbers")
    parts = pq.read_table(open_version(numbers).folder / "data").column("split").to_pylist()
    score[parts.index("test" if source else "validation")] = "K74"  # a code: so are the others
    output = publish("texts")
    copy = tmp_path / "copy"
    shutil.copytree(open_version(output).folder, copy)
    here = FeatureMaker(open_version(output).reader(), tmp_path / "here")
    there = FeatureMaker(open_version(copy).reader(), tmp_path / "there")
    for maker in (here, there):
        maker.fit(LocalExecutor())
    kinds = json.loads((there.state / "encoding.json").read_text())["uses"]
    assert kinds["score"]["kind"] == "categorical"
    for name in ("encoding.json", "classes.json"):
        assert (there.state / name).read_bytes() == (here.state / name).read_bytes()
    for shard in range(SHARDS):
        (expected, X), (found, x) = (maker.read(shard, ["score"]) for maker in (here, there))
        assert found.drop_columns("x").to_pydict() == expected.drop_columns("x").to_pydict()
        np.testing.assert_array_equal(x, X)
