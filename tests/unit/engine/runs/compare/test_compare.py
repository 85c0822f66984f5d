"""`rowsieve compare`: scores against plain references, what is shared, and what is refused."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score
from typer.testing import CliRunner

from engine.cli.app import app
from engine.core.errors import BudgetError, InputError
from engine.core.events import Event
from engine.plan.planner import make_plan
from engine.runs.compare.comparison import FLOOR, compare, needed, variants
from engine.runs.compare.scores import Cell, floor_of, minority_recall, score
from operators.base import Apply, Context
from operators.groups.adaptor import ClassWise
from tests.data import small_recipe

METHODS = ["grasp", "kmeans", "eiil", "oracle"]
QUICK = {"groups": {"min_samples": [5, 10], "eps": [0.1, 0.3]}}


@given(st.integers(0, 10_000))
def test_scores_are_those_of_the_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, group, true = rng.integers(0, 2, 60), rng.integers(-1, 4, 60), rng.integers(0, 4, 60)
    marked, damaged = rng.random(60) < 0.2, rng.random(60) < 0.2
    counts = count(y, group, true, marked, damaged)
    found = score(counts)
    assert found.ari == pytest.approx(adjusted_rand_score(true, group))
    assert found.floor == pytest.approx(adjusted_rand_score(true, y)) == floor_of(counts).ari
    assert found.outlier_precision == pytest.approx(damaged[marked].mean())
    assert found.outlier_recall == pytest.approx(marked[damaged].mean())
    assert found.noise == (group == -1).sum()
    assert found.sizes == tuple(sorted(np.bincount(group[group >= 0]).tolist(), reverse=True))
    assert found.minority_recall == pytest.approx(plain_recall(y, group, true, damaged), nan_ok=True)


def count(y: Any, group: Any, true: Any, marked: Any, damaged: Any) -> Counter[Cell]:
    names = [str(name) for name in true.tolist()]
    return Counter(map(Cell, y.tolist(), group.tolist(), marked.tolist(), names, damaged.tolist()))


def plain_recall(y: Any, group: Any, true: Any, damaged: Any) -> float:
    y, group, true = y[~damaged], group[~damaged], true[~damaged]

    def largest(values: Any) -> Any:
        return Counter(sorted(values.tolist())).most_common(1)[0][0]

    found = [
        g != -1 and largest(true[group == g]) == t
        for value, g, t in zip(y, group, true, strict=True)
        if t != largest(true[y == value])
    ]
    return float(np.mean(found)) if found else float("nan")


def test_minority_recall_by_hand() -> None:
    def cell(y: int, group: int, true: str) -> Cell:
        return Cell(y, group, False, true, None)

    counts = {
        cell(0, 0, "major"): 90,
        cell(0, 1, "minor"): 8,
        cell(0, 0, "minor"): 2,
        cell(1, 2, "other"): 50,
    }
    assert minority_recall(counts) == 0.8
    assert floor_of(counts).minority_recall == 0
    assert np.isnan(minority_recall({cell(0, 0, "a"): 5, cell(1, 1, "b"): 5}))


@pytest.mark.slow  # two comparisons
def test_the_rows_that_methods_set_aside_are_not_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each method sets aside 2 rows, and 1 % of 240 rows may be faulty."""
    original = ClassWise.open

    def opened(self: Any, context: Context) -> Apply:
        apply = original(self, context)

        def wrapped(table: pa.Table) -> pa.Table:
            if {70, 130}.intersection(table["row_id"].to_pylist()):
                raise ZeroDivisionError
            return apply(table)

        return wrapped

    monkeypatch.setattr(ClassWise, "open", opened)
    source = {"on_error": "quarantine", "max_error_rate": 0.01}
    found = compare(small_recipe(tmp_path, source=source), ["kmeans", "george"])
    assert [entry.method for entry in found.entries] == [FLOOR, "kmeans", "george"]
    source["max_error_rate"] = 0.008
    with pytest.raises(BudgetError, match="2 of 240 rows"):
        compare(small_recipe(tmp_path / "less", source=source), ["kmeans"])


def test_methods_share_what_comes_before_them(tmp_path: Path) -> None:
    events: list[Event] = []
    recipe = small_recipe(tmp_path, operators=QUICK)
    found = compare(recipe, METHODS, ["kmeans.k=2", "kmeans.min_rows=0"], listener=events.append)
    assert [entry.method for entry in found.entries] == [FLOOR, *METHODS]
    done = Counter(event.operator for event in events if event.kind == "finish")
    assert (done["probe"], done["gradients"], done["groups"]) == (1, 1, 4)
    by_name = {entry.method: entry.scores for entry in found.entries}
    assert by_name["oracle"].ari == 1.0 == by_name["oracle"].minority_recall
    assert len(by_name["kmeans"].sizes) == 4
    assert {s.floor for s in by_name.values()} == {by_name[FLOOR].ari}
    assert found.figure.read_bytes().startswith(b"\x89PNG")
    assert json.loads(found.record.read_text())["methods"] == found.rows()
    assert not (tmp_path / "out" / "versions").exists()

    again: list[Event] = []
    assert compare(recipe, METHODS, ["kmeans.k=2", "kmeans.min_rows=0"], listener=again.append) == found
    assert {event.kind for event in again} == {"reused"}


def test_scores_are_those_of_a_run(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, operators=QUICK)
    (_, entry) = compare(recipe, ["grasp"]).entries
    plan = make_plan(recipe)
    reader = plan.reader()
    group = np.concatenate([reader.read(s.index, ["group"]).column("group").to_numpy() for s in plan.shards])
    truth = np.concatenate(
        [reader.read_with_truth(s.index, ["truth"]).column("truth").to_numpy() for s in plan.shards]
    )
    assert entry.scores.ari == pytest.approx(adjusted_rand_score(truth, group))


def test_only_what_a_method_needs_runs(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path)
    chains = {
        method: [planned.name for planned in needed(make_plan(variant))]
        for method, variant in variants(recipe, ["feasp", "grasp", "george", "oracle"]).items()
    }
    assert chains == {
        "feasp": ["parts", "encode", "ingest", "groups"],
        "grasp": ["parts", "encode", "ingest", "probe", "gradients", "groups"],
        "george": ["parts", "encode", "ingest", "probe", "groups"],
        "oracle": ["encode", "ingest", "groups"],
    }


def test_own_parameters_stay_with_the_recipes_method(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, operators={"groups": {"eps": 0.3}})
    found = variants(recipe, ["grasp", "feasp"], ["feasp.eps=0.2"])
    assert {name: v.operators["groups"] for name, v in found.items()} == {
        "grasp": {"method": "grasp", "eps": 0.3},
        "feasp": {"method": "feasp", "eps": 0.2},
    }


@pytest.mark.parametrize(
    ("arguments", "sections", "message"),
    [
        ((["grasp"],), {"truth": {"group": None}}, "small: .*names none.*truth.group=COLUMN"),
        ((["kmeanz"],), {}, "there is no usable method 'kmeanz'. Did you mean 'kmeans'?"),
        (
            (["kmeans"], ["kmeans.n_inits=3"]),
            {},
            "operators.groups.n_inits: unknown key.* Did you mean 'n_init'",
        ),
        ((["kmeans"], ["kmean.k=3"]), {}, "--param kmean.k=3: .*compared .kmeans.*Did you mean 'kmeans'"),
        ((["kmeans"], ["kmeans=3"]), {}, "METHOD.KEY=VALUE"),
        (([],), {}, "--methods names no method"),
    ],
)
def test_what_cannot_be_compared(
    arguments: tuple[Any, ...], sections: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        compare(small_recipe(tmp_path, **sections), *arguments)
    assert not (tmp_path / "out").exists()


def test_command(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, operators=QUICK)
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(recipe.model_dump(mode="json")))
    shown = CliRunner().invoke(app, ["compare", str(path), "--methods", "grasp, none", "--json"])
    assert shown.exit_code == 0, shown.output
    rows = json.loads(shown.stdout)
    assert [row["method"] for row in rows] == [FLOOR, "grasp", "none"]
    assert rows[0]["ari"] == rows[2]["ari"]
    assert rows[0]["outlier_precision"] is None
    table = CliRunner().invoke(app, ["compare", str(path), "--methods", "grasp"], env={"COLUMNS": "140"})
    assert FLOOR in table.stdout
    assert ".png" in table.stdout
