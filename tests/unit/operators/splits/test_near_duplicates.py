"""Near duplicates that ``split`` would put into another part than the older row, for every method."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from engine.cli.output import result_record
from engine.plan.planner import make_plan
from engine.publish.results import RunResult
from engine.recipe.recipe import Recipe
from engine.runs.explain import explain
from engine.runs.runner import run
from engine.runs.status import status_of
from engine.training.data.version import open_version
from operators.duplicates.minhash import band_keys, signatures
from operators.splits.near_duplicates import ByRow
from tests.data import recipe_for, spurious_table, write_shards
from tests.unit.operators.duplicates.hard_rows import arc
from tests.unit.operators.duplicates.test_minhash import texts

pytest.importorskip("rensa", reason="needs rensa, of rowsieve[duplicates]")
ROWS = 200
PARTS = ("train", "validation", "test", "dropped")


def table(n: int = ROWS, seed: int = 0) -> pa.Table:
    found = spurious_table(n, seed).append_column("text", pa.array(chained(texts(n, seed))))
    return found.append_column("site", pa.array([f"s{row % 4}" for row in range(n)]))


def chained(given: list[str]) -> list[str]:
    """Change one word more in each of the last texts: near the one before, and not near the first."""
    words = given[0].split()
    for row in range(len(given) - 40, len(given)):
        given[row] = " ".join(words)
        words[row % len(words)] += "x"
    return given


def recipe(folder: Path, split: dict[str, Any], *, weight: float = 0.0, **sections: Any) -> Recipe:
    found = recipe_for(folder / "data", folder / "out", **sections)
    found["source"]["features"] = ["a", "b", "vector"]
    duplicates = {"columns": ["text"], "weight": weight}
    # Groups that are inferred took half of a run.
    others = {"groups": {"method": "none"}, "weights": {"method": "uniform"}}
    found["operators"] = {"duplicates": duplicates, **others, "split": split}
    return Recipe.parse(found)


def published(result: RunResult) -> pa.Table:
    return pq.read_table(result.path / "data").sort_by("row_id")


def splits(result: RunResult) -> np.ndarray[Any, Any]:
    return np.array(published(result)["split"].to_pylist(), object)


def crossing(result: RunResult) -> int:
    """Return how many rows are kept that are near an older one in another split, which is kept too."""
    own = splits(result)
    apart = near_pairs(result) & (own != own[:, None]) & (own != "dropped") & (own != "dropped")[:, None]
    return int(apart.any(axis=1).sum())


def near_pairs(result: RunResult) -> np.ndarray[Any, Any]:
    """Return (n, n) whether the row of the column is an older near one of the row, by all pairs."""
    given = published(result)
    if "text" in given.column_names:
        _, signed = signatures(given["text"].to_pylist(), 8)
        near = (signed[:, None] == signed[None]).mean(axis=2) >= 0.8
        near &= (band_keys(signed, 0.8)[:, :, None] == band_keys(signed, 0.8)[:, None]).any(axis=0)
    else:
        X = np.stack(given["vector"].to_pylist()).astype(np.float64)
        X /= np.linalg.norm(X, axis=1)[:, None]
        near = 1 - X @ X.T <= 0.001
    near = np.tril(near, -1)
    assert near.any(axis=1).sum() > 30
    assert (near.any(axis=1) == pc.is_valid(given["duplicate_of"]).to_numpy()).all()
    return near


def metrics(result: RunResult) -> dict[str, float]:
    return {one.name: one.metrics for one in result.operators}["split"]


HOLDOUT = {"source": {"holdout": {"share": 0.3}}}
CASES = [
    ({"validation": 0.3, "test": 0.2}, {}),
    ({"method": "cluster", "validation": 0.3}, HOLDOUT),
    *(
        pytest.param(split, sections, marks=pytest.mark.slow)
        for split, sections in (
            ({"method": "leave_one_domain_out", "domain": "site"}, {}),
            ({"validation": 0.3, "fit_on": "all"}, {}),
            ({"validation": 0.3, "key": "site"}, {}),
            ({"validation": 0.3}, HOLDOUT),
            ({"method": "cluster", "validation": 0.3, "test": 0.1}, {}),
            ({"method": "cluster", "folds": 3}, {}),
        )
    ),
]


@pytest.mark.parametrize(("split", "sections"), CASES)
def test_no_kept_row_is_near_an_older_one_in_another_split(
    split: dict[str, Any], sections: dict[str, Any], tmp_path: Path
) -> None:
    found = []
    for weight, shards in ((1.0, 1), (0.0, 1), (0.0, 5)):
        folder = tmp_path / f"{weight}-{shards}"
        write_shards(folder / "data", table(), shards)
        found.append(run(recipe(folder, split, weight=weight, **sections)))
    marked, dropped, in_shards = found
    assert crossing(marked) > 5
    assert crossing(dropped) == 0
    assert crossing(in_shards) == 0
    if "source" not in sections:  # held-out rows are drawn by their place in their file
        assert splits(dropped).tolist() == splits(in_shards).tolist()
    changed = splits(marked) != splits(dropped)
    assert set(splits(dropped)[changed]) == {"dropped"}
    assert changed.sum() == crossing(marked)
    counts = metrics(dropped)
    if not sections:
        assert (
            counts["duplicates_in_other_split"]
            == changed.sum()
            == metrics(marked)["duplicates_in_other_split"]
        )
        assert [counts.get(part, 0) for part in PARTS] == [(splits(dropped) == part).sum() for part in PARTS]
    table_of = published(dropped)
    weight, own = table_of["weight"].to_numpy(), splits(dropped)
    assert (weight[own == "dropped"] == 0).all()
    assert (weight[pc.is_valid(table_of["duplicate_of"]).to_numpy()] == 0).all()
    if "folds" in split:
        assert set(np.array(published(dropped)["fold"])[changed]) == {-1}


@pytest.mark.parametrize("shards", [1, 4])
def test_no_kept_vector_is_near_an_older_one_in_another_split(shards: int, tmp_path: Path) -> None:
    X = arc(np.random.default_rng(2)).astype(np.float32)
    given = spurious_table(len(X)).drop_columns(["vector"])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])
    write_shards(tmp_path / "data", given.append_column("vector", vectors), shards)
    found = recipe_for(tmp_path / "data", tmp_path / "out")
    found["source"]["features"] = ["vector"]
    found["operators"] |= {"duplicates": {"distance": 0.001}, "split": {"validation": 0.3}}
    result = run(Recipe.parse(found))
    assert crossing(result) == 0
    assert metrics(result)["duplicates_in_other_split"] == (splits(result) == "dropped").sum() > 100


def test_new_rows_are_compared_with_the_parts_of_old_ones(tmp_path: Path) -> None:
    whole, split = table(240), {"validation": 0.3}
    incremental = {"incremental": {"base": "current", "mode": "predict"}}
    write_shards(tmp_path / "data", whole.slice(0, 140), 2)
    first = run(recipe(tmp_path, split, **incremental))
    old = splits(first)
    pq.write_table(whole.slice(140), tmp_path / "data" / "s9.parquet")
    result = run(recipe(tmp_path, split, **incremental))
    assert [(one.computed, one.reused) for one in result.operators if one.name == "split"] == [(1, 2)]
    assert splits(result)[:140].tolist() == old.tolist()
    assert crossing(result) == 0
    assert (splits(result)[140:] == "dropped").any()
    assert metrics(result)["duplicates_in_other_split"] == (splits(result) == "dropped").sum()


def test_dropped_rows_weigh_nothing_where_duplicates_weigh_a_part(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", table(), 3)
    made = recipe(tmp_path, {"validation": 0.3}, weight=0.5)
    weights = {"method": "robust", "trust": "all"}
    found = run(made.model_copy(update={"operators": {**made.operators, "weights": weights}}))
    weight, own = published(found)["weight"].to_numpy(), splits(found)
    assert (own == "dropped").sum() > 5
    assert (weight[own == "dropped"] == 0).all()
    duplicates = pc.is_valid(published(found)["duplicate_of"]).to_numpy()
    assert (weight[duplicates & (own == "train")] > 0).all()
    assert weight[own == "train"].mean() == pytest.approx(1, abs=1e-5)


def test_log_summary_status_and_card_name_how_many_rows_cross_and_the_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_shards(tmp_path / "data", table())
    made = recipe(tmp_path, {"validation": 0.3}, weight=1.0)
    result = run(made)
    n = crossing(result)
    told = (
        f"operators.split: {n} rows nearly duplicate an older row in another split, and duplicates.weight: 1"
    )
    assert told in caplog.text
    assert "Set duplicates.weight below 1" in caplog.text
    for warnings in (result_record(result)["warnings"], status_of(make_plan(made))["warnings"]):
        assert [warning.startswith(told) for warning in warnings] == [True]
    card = (result.path / "README.md").read_text()
    assert f"{n} rows nearly duplicate an older row" in card
    assert "| `duplicate_of` | `int64` | The row\\_id of the oldest older row that the row nearly" in card


def test_a_dropped_row_says_which_row_it_copies(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", table())
    result = run(recipe(tmp_path, {"validation": 0.3}))
    row = int(np.flatnonzero(splits(result) == "dropped")[0])
    of = published(result)["duplicate_of"][row].as_py()
    facts = [
        fact for one in explain(open_version(str(tmp_path / "out")), row).operators for fact in one.facts
    ]
    assert ("dropped as a copy of", of) in [(fact.name, fact.value) for fact in facts]


def test_without_duplicates_the_split_reads_what_it_read_before(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", table())
    made = recipe(tmp_path, {"validation": 0.3})
    operators = {name: given for name, given in made.operators.items() if name != "duplicates"}
    plan = make_plan(made.model_copy(update={"operators": operators}))
    split = next(one.operator for one in plan.operators if one.name == "split")
    assert split.requires == ("y", "group", "is_outlier", "x", "part")


def test_what_is_stored_of_rows_is_read_from_one_file_at_a_time(tmp_path: Path) -> None:
    for first in range(0, 30, 3):
        np.save(tmp_path / f"parts-{first:015d}.npy", np.full(2, first, np.int8))
    before = len(os.listdir("/proc/self/fd"))
    stored = ByRow(tmp_path, "parts", -1)
    assert stored.of(np.array([28, 0, 1, 2, 3])).tolist() == [27, 0, 0, -1, 3]
    assert len(os.listdir("/proc/self/fd")) <= before + 1
