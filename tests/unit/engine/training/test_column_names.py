"""Source columns with the names of what operators make, from the first recipe to predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import engine
from engine.cli.app import app
from engine.core.errors import InputError
from tests.data import recipe_for, spurious_table, write_shards

QUIET = ["run.executor=local", "report.enabled=false", "operators.probe.trainer=in_process"]
QUICK = ["--executor", "local", "--set", "epochs=1", "--set", "batch_size=32"]


def command(*words: Any) -> str:
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def table(label: str, features: list[str]) -> pa.Table:
    """A label, the two features that tell it, and noise."""
    rows, rng = spurious_table(), np.random.default_rng(0)
    values = [rows["a"], rows["b"], *(pa.array(rng.normal(size=len(rows))) for _ in features[2:])]
    return pa.table({**dict(zip(features, values, strict=True)), label: rows["label"]})


FEATURES = [
    *("x", "gradient", "shard", "prediction", "reason", "group", "weight", "split"),
    *("row_id", "valid", "x_fault", "probability_yes", "request_id"),
]


@pytest.mark.slow
def test_columns_may_have_the_names_of_what_operators_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pv.write_csv(table("y", FEATURES), "rows.csv")
    command("init", "rows.csv", "--label", "y", "-o", "rows.yaml")
    command("run", "rows.yaml", *(word for key in QUIET for word in ("--set", key)))
    command("retrain", "--dataset", "curated/rows", "--register", "m", *QUICK)
    where = ["--tracking", "curated/rows", "--executor", "local"]
    printed = command("predict", "models:/m/1", "rows.csv", "predicted", *where)
    assert "240 rows predicted" in printed
    assert "0 rows without a prediction" in printed
    found = pq.read_table("predicted/part-00000.parquet")
    expected = table("y", FEATURES)["y"].to_pylist()
    assert np.mean(np.array(found["prediction"].to_pylist()) == np.array(expected)) > 0.7


def test_a_feature_named_as_what_its_operator_is_handed_is_refused_with_a_remedy(tmp_path: Path) -> None:
    rows = spurious_table(60).rename_columns(["row_id", "b", "vector", "label", "truth"])
    write_shards(tmp_path / "data", rows, 1)
    out = {"prefix": "rowsieve_"}
    with pytest.raises(InputError, match="row_id: source_row_id"):
        engine.run(engine.Recipe.parse(recipe_for(tmp_path / "data", tmp_path / "out", output=out)))
