"""What `outliers` learns is the same in every run, for any cut into shards and any number of threads.

Other tests of whole runs take a fit of the same rows from memory, and would not see one that differs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from operators.outliers import verdict
from tests.data import recipe_for, write_shards
from tests.unit.few_trees import fit_once, learn_anew

CHAIN: dict[str, Any] = {
    "probe": {"l2": 0.05, "trainer": "in_process"},
    "groups": {"method": "none"},
    "outliers": {},
    "weights": {"method": "uniform"},
    "split": {},
}


def flipped_table(n: int = 300) -> pa.Table:
    """Two classes that two columns tell apart, and a wrong label in one row of ten."""
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, n)
    given = np.where(rng.random(n) < 0.1, 1 - y, y)
    x = y[:, None] * [2.0, 1.0] + rng.normal(0, 0.5, (n, 2))
    labels, truth = np.where(given == 1, "yes", "no"), np.where(y == given, "right", "wrong")
    return pa.table({"a": x[:, 0], "b": x[:, 1], "label": labels.tolist(), "truth": truth.tolist()})


def learnt(folder: Path, shards: int) -> tuple[dict[str, bytes], dict[str, Any], pa.Table]:
    """Run the chain; return the files of the state, the metrics, and what was found about each row."""
    write_shards(folder / "data", flipped_table(), shards)
    recipe = Recipe.parse(recipe_for(folder / "data", folder / "out") | {"operators": CHAIN})
    result, plan = run(recipe), make_plan(recipe)
    state = Path(plan.store.state(plan.fingerprint_of("outliers")))
    files = {str(path.relative_to(state)): path.read_bytes() for path in state.rglob("*") if path.is_file()}
    (metrics,) = (operator.metrics for operator in result.operators if operator.name == "outliers")
    added = [field.name for one in plan.operators if one.name == "outliers" for field in one.operator.adds]
    reader = plan.reader()
    return files, metrics, pa.concat_tables([reader.read(shard, added) for shard in range(shards)])


def counted(learn: Callable[..., Any], calls: list[Callable[..., Any]]) -> Callable[..., Any]:
    """Return a function that does as ``learn``, and notes each call in ``calls``."""

    def noted(*rows: Any, **options: Any) -> Any:
        calls.append(learn)
        return learn(*rows, **options)

    return noted


def test_every_run_learns_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[Callable[..., Any]] = []
    with learn_anew():
        monkeypatch.setattr(verdict, "fit", counted(verdict.fit, fits))
        files, metrics, rows = learnt(tmp_path / "one", 1)
        for shards, threads in ((1, "3"), (4, "1")):
            monkeypatch.setenv("OMP_NUM_THREADS", threads)
            others = learnt(tmp_path / f"{shards}-{threads}", shards)
            assert others[0] == files, (shards, threads)
            assert others[1] == metrics
            assert others[2].combine_chunks().equals(rows.combine_chunks())
    assert len(fits) == 3
    assert fit_once not in fits  # which would answer from memory
    assert {"evidence.npz", "evidence.json"} <= files.keys()
    assert sum(rows["is_outlier"].to_pylist()) > 10
