"""The operator ``duplicates``: the kernel's rows whatever the shards, increments, weights and the report."""

from __future__ import annotations

import builtins
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from engine.core.errors import InputError
from engine.plan.planner import make_plan
from engine.publish.results import RunResult
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from operators.base import OperatorError
from operators.duplicates import stored
from operators.duplicates.params import DuplicatesParams
from tests.data import recipe_for, spurious_table, write_shards
from tests.unit.operators.duplicates.hard_rows import VECTORS, arc, clump, nearest_older
from tests.unit.operators.duplicates.on_texts import find_duplicates
from tests.unit.operators.duplicates.test_minhash import texts

pytest.importorskip("rensa", reason="needs rensa, of rowsieve[duplicates]")
ROWS = 200
BY_TEXT = {"columns": ["text"]}
CHEAP = {"groups": {"method": "none"}, "weights": {"method": "uniform"}, "split": {}}
"""Other operators: groups that are inferred took two thirds of a run."""


def table(n: int = ROWS, seed: int = 0) -> pa.Table:
    return spurious_table(n, seed).append_column("text", pa.array(texts(n, seed)))


def recipe(folder: Path, duplicates: dict[str, Any], **sections: Any) -> Recipe:
    found = recipe_for(folder / "data", folder / "out", **sections)
    found["source"]["features"] = ["a", "b", "vector"]
    found["operators"] = {"duplicates": duplicates, **CHEAP}
    return Recipe.parse(found)


def published(result: RunResult) -> pa.Table:
    return pq.read_table(result.path / "data").sort_by("row_id")


def older(result: RunResult) -> list[int]:
    return pc.fill_null(published(result)["duplicate_of"], -1).to_pylist()


@pytest.mark.parametrize(("shards", "rows_of_a_task"), [(1, 250_000), (4, 250_000), (7, 30)])
def test_texts_are_those_of_the_kernel(
    shards: int, rows_of_a_task: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "ROWS_OF_A_TASK", rows_of_a_task)
    write_shards(tmp_path / "data", table(), shards)
    made = recipe(tmp_path, BY_TEXT)
    result = run(made)
    expected = find_duplicates(texts(ROWS))
    assert older(result) == expected.of.tolist()
    assert (expected.of >= 0).sum() > 30
    metrics = {operator.name: operator.metrics for operator in result.operators}["duplicates"]
    assert metrics == {"compared": ROWS, "duplicates": (expected.of >= 0).sum()}
    reader = make_plan(made).reader()
    similar = pa.concat_tables([reader.read(k, ["duplicate_similarity"]) for k in range(shards)])
    values = similar.sort_by("row_id")["duplicate_similarity"].to_pylist()
    assert values == expected.similarity.tolist()


@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.slow), 5])
@pytest.mark.parametrize("kind", VECTORS, ids=lambda kind: kind.__name__)
def test_vectors_are_those_of_all_pairs(kind: Any, shards: int, tmp_path: Path) -> None:
    X = kind(np.random.default_rng(0)).astype(np.float32)
    expected = nearest_older(X, 0.001)
    write_shards(tmp_path / "data", of_vectors(X), shards)
    assert older(run(vector_recipe(tmp_path))) == expected
    assert sum(one >= 0 for one in expected) > 40


def of_vectors(X: Any) -> pa.Table:
    given = spurious_table(len(X)).drop_columns(["vector"])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])
    return given.append_column("vector", vectors)


def vector_recipe(folder: Path, **sections: Any) -> Recipe:
    made = recipe(folder, {}, **sections)
    return made.model_copy(update={"source": made.source.model_copy(update={"features": ("vector",)})})


@pytest.mark.parametrize("kind", [clump, arc], ids=lambda kind: kind.__name__)
def test_an_increment_of_vectors_gives_what_a_full_run_gives(kind: Any, tmp_path: Path) -> None:
    X = kind(np.random.default_rng(1)).astype(np.float32)
    write_shards(tmp_path / "data", of_vectors(X[:400]), 2)
    made = vector_recipe(tmp_path, incremental={"base": "current", "mode": "predict"})
    run(made)
    pq.write_table(of_vectors(X[400:]), tmp_path / "data" / "s9.parquet")
    result = run(made)
    assert [(o.computed, o.reused) for o in result.operators if o.name == "duplicates"] == [(1, 2)]
    assert older(result) == nearest_older(X, 0.001)


@pytest.mark.parametrize("duplicates", [BY_TEXT, {"distance": 0.001}])
def test_an_increment_compares_new_rows_with_all_and_gives_what_a_full_run_gives(
    duplicates: dict[str, Any], tmp_path: Path
) -> None:
    whole = table(240)
    for name, sections in (("a", {"incremental": {"base": "current", "mode": "predict"}}), ("b", {})):
        folder = tmp_path / name
        write_shards(folder / "data", whole.slice(0, 140), 2)
        made = recipe(folder, duplicates, **sections)
        if name == "a":
            run(made)
        pq.write_table(whole.slice(140), folder / "data" / "s9.parquet")
        result = run(made)
        if name == "a":
            placed = older(result)
            assert [(o.computed, o.reused) for o in result.operators if o.name == "duplicates"] == [(1, 2)]
    assert placed == older(result)
    assert (np.array(placed[140:]) >= 0).any()


def test_a_row_that_is_rejected_is_nobodys_older_row(tmp_path: Path) -> None:
    given = spurious_table(40).append_column("text", pa.array(["one and the same text"] * 40))
    a = given["a"].to_pylist()
    a[0] = float("inf")
    given = given.set_column(given.schema.get_field_index("a"), "a", pa.array(a))
    write_shards(tmp_path / "data", given, 3)
    result = run(recipe(tmp_path, BY_TEXT, source={"on_error": "quarantine", "max_error_rate": 0.5}))
    assert older(result) == [-1, -1, *([1] * 38)]


def test_duplicates_weigh_nothing_unless_they_are_only_marked(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", table())
    weights = {"weights": {"method": "class_balanced"}}
    for factor in (0.0, 1.0):
        made = recipe(tmp_path, {**BY_TEXT, "weight": factor})
        made = made.model_copy(update={"operators": {**made.operators, **weights}})
        found = published(run(made))
        duplicate = pc.is_valid(found["duplicate_of"]).to_numpy()
        values = found["weight"].to_numpy()[duplicate]
        assert duplicate.sum() > 30
        assert (values == 0).all() if factor == 0 else (values > 0).all()


def test_the_report_lists_duplicates_and_those_in_other_splits(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", table())
    made = recipe(tmp_path, BY_TEXT, report={"enabled": True})
    result = run(made)
    page = (tmp_path / "out" / "reports" / f"{result.version}.html").read_text()
    found = published(result)
    splits, of = found["split"].to_pylist(), older(result)
    crossing = sum(splits[row] != splits[other] for row, other in enumerate(of) if other >= 0)
    words = re.sub(r"\s+", " ", page)
    assert f"{sum(one >= 0 for one in of)} rows of 200" in words
    assert f"{crossing} duplicates" in words
    assert "Near duplicates of older rows" in words


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"threshold": 0.9}, "threshold has no meaning where vectors are compared"),
        ({"columns": ["text"], "distance": 0.1}, "distance has no meaning where texts"),
        ({"columns": ["text"], "threshold": 0.1}, "greater than or equal to 0.3"),
        ({"columns": ["text"], "shingle": 0}, "greater than or equal to 1"),
        ({"column": "text"}, "Extra inputs"),
    ],
)
def test_wrong_parameters_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DuplicatesParams(**given)


def test_encoded_columns_are_compared_only_at_a_given_distance(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_shards(tmp_path / "data", table())
    for given in ({}, {"weight": 0.5}):
        with pytest.raises(InputError, match=r"operators\.duplicates: the features are encoded.*columns: "):
            make_plan(recipe(tmp_path, given))
    result = run(recipe(tmp_path, {"distance": 0.05}, report={"enabled": True}))
    n = sum(one >= 0 for one in older(result))
    told = f"{n} of 200 rows count as near duplicates of an older row, and their weight is multiplied by 0"
    assert n > 100
    assert f"operators.duplicates: {told}" in caplog.text
    page = (tmp_path / "out" / "reports" / f"{result.version}.html").read_text()
    assert told in re.sub(r"\s+", " ", page)
    assert "lower the distance (0.05)" in caplog.text


def test_a_wrong_column_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", table())
    with pytest.raises(InputError, match=r"operators\.duplicates.*'txt'.*Did you mean 'text'"):
        run(recipe(tmp_path, {"columns": ["txt"]}))
    with pytest.raises(InputError, match=r"operators\.duplicates: the column 'a' has the type double"):
        run(recipe(tmp_path, {"columns": ["a"]}))


def test_a_field_of_a_struct_is_found_by_its_remedy(tmp_path: Path) -> None:
    inner = pa.StructArray.from_arrays([pa.array(texts(ROWS, 0))], ["b"])
    write_shards(tmp_path / "data", spurious_table(ROWS).append_column("s", inner))
    for column, told in (
        ("s.b", "'s' holds it as a field: set source.flatten: [s]"),
        ("s", "such as 's.b' with"),
    ):
        with pytest.raises(InputError, match=re.escape(told)):
            make_plan(recipe(tmp_path, {"columns": [column]}))
    for column in ("s.c", "label.b"):
        with pytest.raises(InputError, match="has no column"):
            make_plan(recipe(tmp_path, {"columns": [column]}))
    assert make_plan(recipe(tmp_path, {"columns": ["s.b"]}, source={"flatten": ["s"]})).n_rows == ROWS


def test_the_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shards(tmp_path / "data", table())
    real = builtins.__import__

    def without(name: str, *given: Any, **named: Any) -> Any:
        if name == "rensa":
            raise ImportError("No module named 'rensa'")
        return real(name, *given, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises((InputError, OperatorError), match=r"rowsieve\[duplicates\]"):
        run(recipe(tmp_path, BY_TEXT))
