"""``dckm`` and ``decorrelation`` over shards against the same passes in memory."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from engine.execution.local_executor import LocalExecutor
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from operators.base import FEATURES, Context, OperatorError, Resources
from operators.columns import numpy_to_vectors, vectors_to_numpy
from operators.dckm import DecorrelatedKMeans, sharded
from operators.dckm.adaptor import Dckm, Decorrelation
from operators.dckm.features import CODINGS, Coder
from operators.dckm.kernel import INITS, DckmSettings, InMemory, solve
from operators.dckm.params import DckmParams, DecorrelationParams
from operators.dckm.selection import GRID, select_pair, try_pair
from operators.hashing import row_hashes
from tests.data import recipe_for, small_recipe, spurious_table, write_shards
from tests.unit.engine.runs.test_run import published
from tests.unit.in_memory import MemoryReader, run_operator, split_table

N = 120


def features(n: int = N) -> pa.Table:
    """Correlated in pairs."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(n, 6)) + np.repeat(rng.normal(size=(n, 3)), 2, axis=1)
    return pa.table({FEATURES: numpy_to_vectors(X.astype(np.float32))})


@pytest.mark.parametrize("cuts", [[], [1, 30, 30, 77], [0, 60, 120]])
@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("init", INITS)
def test_same_as_in_memory_whatever_the_shards(
    init: Any, coding: Any, cuts: list[int], tmp_path: Path
) -> None:
    table = features()
    params = DckmParams(n_clusters=4, init=init, coding=coding, lambda1=1.0, max_iter=8)
    result, metrics = run_operator(Dckm(params), split_table(table, cuts), tmp_path, seed=5)
    X = vectors_to_numpy(table[FEATURES])
    rows = InMemory(Coder.of(X, coding)(X))
    found = solve(
        rows,
        DckmSettings(
            n_clusters=4,
            lambda1=1.0,
            lambda2=10.0,
            lambda3=1.0,
            max_iter=8,
            tol=0.01,
            init=init,
            seed=5,
            min_effective_share=0.5,
        ),
    )
    np.testing.assert_array_equal(result["dckm_cluster"], rows.labels)
    weight = result["dckm_weight"].to_numpy()
    np.testing.assert_allclose(weight, rows.weight * N / found.weight_sum, rtol=1e-3, atol=1e-5)
    assert weight.mean() == pytest.approx(1, abs=1e-6)
    assert result.schema == pa.schema(list(Dckm(params).adds))
    assert metrics["correlation_before"] == pytest.approx(found.correlation_before)
    assert metrics["correlation_after"] == pytest.approx(found.correlation_after, rel=1e-4)
    assert metrics["effective_sample_size"] == pytest.approx(found.effective_sample_size, rel=1e-4)
    assert metrics["clusters"] == np.unique(rows.labels).size
    left = {path.name for path in tmp_path.iterdir()}
    assert not {name for name in left if name.startswith("rows-")}
    assert json.loads((tmp_path / "balance.json").read_text())["sizes"] == found.sizes.tolist()


def test_decorrelation_weights(tmp_path: Path) -> None:
    table = features()
    params = DecorrelationParams(lambda1=10.0, max_iter=30, min_effective_share=0.3)
    result, metrics = run_operator(Decorrelation(params), split_table(table, [50]), tmp_path)
    X = vectors_to_numpy(table[FEATURES])
    rows = InMemory(Coder.of(X, "binarize")(X))
    found = solve(
        rows,
        DckmSettings(
            n_clusters=0,
            lambda1=10.0,
            lambda2=10.0,
            lambda3=1.0,
            max_iter=30,
            tol=0.01,
            min_effective_share=0.3,
        ),
    )
    weight = result["decorrelation_weight"].to_numpy()
    np.testing.assert_allclose(weight, rows.weight * N / found.weight_sum, rtol=1e-3, atol=1e-5)
    assert metrics["correlation_after"] < metrics["correlation_before"] / 2
    assert result.column_names == ["decorrelation_weight"]


class Backwards(LocalExecutor):
    """Runs everything twice, the last first: as workers that come in any order and repeat what they lost."""

    def map(self, fn: Any, items: Any, *, resources: Resources | None = None) -> Any:
        for item in reversed(items):
            fn(item)
        return reversed([fn(item) for item in reversed(items)])


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_the_order_of_workers_and_repeated_tasks_change_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharded, "SLOTS", 3)
    tables = split_table(features(), [10, 25, 60, 90, 100])
    found = []
    for executor in (LocalExecutor(), Backwards()):
        state = tmp_path / type(executor).__name__
        state.mkdir()
        operator = Dckm(DckmParams(n_clusters=3, init="k-means++", max_iter=5))
        operator.fit(Context(MemoryReader(tables), state, {}, 1), executor)
        found.append(files(state))
    assert found[0] == found[1]
    assert len(found[0]) == 6 + 2


def test_too_few_rows_say_so(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"dckm\.n_clusters is 10, but there are only 5 valid rows"):
        run_operator(Dckm(DckmParams()), [features(5)], tmp_path)
    with pytest.raises(OperatorError, match="none of the 2 shards has a valid row"):
        run_operator(Dckm(DckmParams()), split_table(features(0), [0]), tmp_path)
    narrow = pa.table({FEATURES: numpy_to_vectors(np.ones((4, 2), np.float32))})
    with pytest.raises(OperatorError, match=r"1\.csv: rows have 2 features, those of earlier shards have 6"):
        run_operator(Decorrelation(DecorrelationParams()), [features(5), narrow], tmp_path)


def test_unknown_codings_are_refused() -> None:
    with pytest.raises(ValidationError, match="standardize"):
        DckmParams(coding="raw")  # type: ignore[arg-type]


def sidecars(recipe: Recipe, columns: list[str]) -> pa.Table:
    """Run a recipe and return the sidecars of all rows."""
    run(recipe)
    reader = make_plan(recipe).reader()
    return pa.concat_tables(reader.read_all(shard.index, columns) for shard in reader.shards)


@pytest.mark.slow
def test_a_recipe_runs_both(tmp_path: Path) -> None:
    recipe = small_recipe(
        tmp_path, operators={"dckm": {"n_clusters": 2}, "decorrelation": {"coding": "standardize"}}
    )
    table = sidecars(recipe, ["dckm_weight", "dckm_cluster", "decorrelation_weight"])
    for name in ("dckm_weight", "decorrelation_weight"):
        assert table.schema.field(name).type == pa.float32()
        assert table[name].to_numpy().mean() == pytest.approx(1, abs=1e-5)
    assert table.schema.field("dckm_cluster").type == pa.int32()
    assert set(table["dckm_cluster"].to_pylist()) == {0, 1}


def test_rows_that_are_not_valid_get_nulls(tmp_path: Path) -> None:
    table = spurious_table()
    values = table.column("a").to_pylist()
    values[5], values[100] = float("inf"), -float("inf")
    write_shards(tmp_path / "data", table.set_column(0, "a", pa.array(values)))
    source = {"on_error": "quarantine", "max_error_rate": 0.01}
    found = recipe_for(tmp_path / "data", tmp_path / "out", source=source, operators={"decorrelation": {}})
    weight = sidecars(Recipe.parse(found), ["decorrelation_weight"])["decorrelation_weight"].to_pylist()
    assert [row for row, value in enumerate(weight) if value is None] == [5, 100]
    assert np.mean([value for value in weight if value is not None]) == pytest.approx(1)


def test_lambdas_are_chosen_on_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operators.dckm.selection.GRID", (0.1, 10.0))
    table, found = features(), []
    settings: dict[str, Any] = {"n_clusters": 2, "max_iter": 5, "lambda3": 3.0, "min_effective_share": 0.6}
    params = DckmParams(**settings, lambdas="auto")
    for name, cuts in (("one", []), ("more", [1, 30, 30, 77])):
        (tmp_path / name).mkdir()
        found.append(run_operator(Dckm(params), split_table(table, cuts), tmp_path / name, seed=5)[1])
    assert found[0]["lambda1"] == found[1]["lambda1"]
    assert found[0]["lambda2"] == found[1]["lambda2"]
    record = json.loads((tmp_path / "one" / "lambdas.json").read_text())
    X = vectors_to_numpy(table[FEATURES])
    order = np.argsort(row_hashes(np.arange(N), 5, "dckm/sample for lambdas"))
    model = DecorrelatedKMeans(**settings, random_state=5)
    tried = [try_pair(model, X[order], 2, (a, b)) for a in (0.1, 10.0) for b in (0.1, 10.0)]
    picked = select_pair(tried)
    assert record == {"chosen": asdict(picked), "tried": [asdict(one) for one in tried]}
    alone = DckmParams(**settings, lambda1=picked.lambda1, lambda2=picked.lambda2)
    (tmp_path / "given").mkdir()
    given = run_operator(Dckm(alone), [table], tmp_path / "given", seed=5)[1]
    assert given["objective"] == found[0]["objective"]
    with pytest.raises(ValidationError, match="lambda1 is not read beside lambdas: auto"):
        DckmParams(lambda1=1.0, lambdas="auto")


def test_no_rows_to_choose_lambdas_on_are_named(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"lambdas: there is no row to try them on: none of the 1 shards"):
        run_operator(Dckm(DckmParams(lambdas="auto")), [features().slice(0, 0)], tmp_path)


@pytest.mark.slow
def test_a_recipe_reaches_the_choice_of_lambdas(tmp_path: Path) -> None:
    chosen = {"n_clusters": 2, "max_iter": 2, "lambdas": "auto"}
    result = run(small_recipe(tmp_path, operators={"dckm": chosen}))
    assert published(result)["weight"].to_numpy().mean() == pytest.approx(1, abs=1e-4)
    (found,) = [operator.metrics for operator in result.operators if operator.name == "dckm"]
    assert found["lambda1"] in GRID
    assert found["lambda2"] in GRID
