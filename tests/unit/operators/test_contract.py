"""The contract of operators, on every registered one: shards, empty shards, resume, bad input.

Operators are discovered from ``operators.registry``. Each needs an entry in ``EXAMPLES``: parameters with
which it runs on the small dataset here. The first examples of all operators form one chain, whose runs the
tests share; every other example replaces its operator in a chain of its own.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.core.errors import InputError
from engine.core.output_layout import version_folder
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from operators.base import Operator
from operators.registry import operator_class, operator_names
from tests.data import recipe_for, spurious_table

Finished: TypeAlias = Callable[[str, int, str], tuple[Path, Recipe]]

ROWS = 120
WRONG = [0, 41]
"""Rows that `ingest` rejects."""
LAYOUTS = {
    "one shard": [ROWS],
    "four shards": [30, 30, 30, 30],
    "an empty shard": [0, 50, 0, 70],
    "a shard of one row": [1, 60, 1, 58],
}
QUICK = {"gpus": 0}
EMBED = {"model": "tests.unit.operators.embed.test_embed:letters", "column": "word", "resources": QUICK}

EXAMPLES: dict[str, tuple[dict[str, Any], ...]] = {
    "ingest": ({},),
    "embed": (EMBED,),
    "encode": ({}, {"categorical": {"rare": "target", "min_share": 0.3}}),
    "probe": ({"l2": 0.05, "trainer": "in_process"}, {"model": "mlp", "epochs": 3, "trainer": "in_process"}),
    "gradients": ({}, {"projection": 8}, {"form": "factored"}),
    "groups": (
        {"min_samples": [5, 10], "min_rows": 0},
        {"method": "feasp", "min_samples": [5], "metric": "euclidean", "eps": [0.5, 1.0]},
        {"min_samples": [5], "block_rows": 16},
        {"preset": "grasp_paper"},
        {"min_samples": [0.05], "min_rows": 5, "fit_rows": 100},
        {"method": "kmeans", "k": [2, 3], "n_init": 2},
        {"method": "george", "k": [2], "overcluster": [1, 2], "n_init": 1, "components": 2},
        {"method": "eiil"},
        {"method": "jtt", "epochs": 3, "trainer": "in_process"},
        {"method": "none"},
        {"method": "cues"},
        {"method": "oracle", "column": "truth"},
    ),
    "outliers": ({"rule": "any"},),
    "cues": ({}, {"robustness": "bold"}),
    "neighbours": ({"n_neighbors": 3}, {"eps": 0.2, "per_class": False, "space": "x"}),
    "duplicates": ({"columns": ["word"], "shingle": 3, "weight": 1.0}, {"distance": 0.01}),
    "dckm": ({"n_clusters": 2, "max_iter": 3},),
    "decorrelation": ({"max_iter": 3},),
    "eos": ({"model": "gaussian"},),
    "weights": ({"method": "group_balanced"}, {"method": "robust"}),
    "split": ({}, {"method": "cluster", "kernel": "linear"}, {"method": "leave_one_domain_out"}),
}
"""Name of an operator -> parameters to try it with."""
ALONE = ("embed",)
"""Operators whose first example needs a chain of its own: the encoder replaces the features of the others."""

for_every_operator = pytest.mark.parametrize(
    ("name", "number"),
    [
        # The first example of every operator always runs, the others with the slow tests.
        pytest.param(name, number, id=f"{name}-{number}", marks=[pytest.mark.slow] if number else [])
        for name in operator_names()
        for number in range(len(EXAMPLES.get(name, ((),))))
    ],
)


def test_every_method_has_an_example() -> None:
    for name, examples in EXAMPLES.items():
        kind = operator_class(name)
        tried = {kind.variant(params) for params in examples}
        assert {*kind.variants().values()} <= tried, f"{name}: add an example of each method to EXAMPLES"


def params_of(name: str, number: int) -> dict[str, Any]:
    if name not in EXAMPLES:
        pytest.fail(
            f"operator {name!r} is registered and has no example parameters. Add an entry to EXAMPLES in "
            f"{__file__}, with which it runs on the dataset there."
        )
    return EXAMPLES[name][number]


def rows() -> pa.Table:
    """Two classes with a spurious cue, and a text column for an encoder."""
    table = spurious_table(ROWS, seed=4)
    words = ["a" * (3 + int(value > 0) * 3 + row % 2) for row, value in enumerate(table["a"].to_pylist())]
    return table.append_column("word", pa.array(words))


def write(folder: Path, table: pa.Table, sizes: list[int]) -> None:
    folder.mkdir(parents=True)
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    for number, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        pq.write_table(table.slice(start, size), folder / f"s{number}.parquet")


def recipe(folder: Path, name: str, number: int, *, extra: Any = None, **source: Any) -> Recipe:
    """A chain with an example of an operator, whose parameters get those in ``extra`` too."""
    found = recipe_for(folder / "data", folder / "out", source=source)
    chain = {**found["operators"], "eos": {"model": "gaussian"}}
    if is_joint(name, number):
        chain |= {other: params_of(other, 0) for other in operator_names() if is_joint(other, 0)}
    chain[name] = {**params_of(name, number), **(extra or {})}
    if chain["groups"].get("method") == "cues":
        chain["cues"] = {}
    if name == "ingest":  # runs in every recipe; its parameters are those of the source
        found["source"].update(chain["ingest"])
    chain.pop("ingest", None)
    found["operators"] = {"embed": chain.pop("embed"), **chain} if "embed" in chain else chain
    if chain["groups"].get("method") == "oracle":
        found["truth"] = {"group": chain["groups"]["column"]}
    return Recipe.parse(found)


def is_joint(name: str, number: int) -> bool:
    """Return whether an example is part of the chain of all first examples."""
    return not number and name not in ALONE


def sidecars(done: Recipe, name: str) -> list[pa.Table]:
    """The parts that an operator wrote, in the order of the shards."""
    plan = make_plan(done)
    folder = plan.store.folder(plan.fingerprint_of(name))
    return [pq.read_table(path) for path in sorted(folder.glob("part-*.parquet"))]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Folder and recipe of a finished run of an example; runs are shared by the tests."""
    runs: dict[tuple[Any, ...], tuple[Path, Recipe]] = {}

    def of(name: str, number: int, layout: str) -> tuple[Path, Recipe]:
        key = ("joint", layout) if is_joint(name, number) else (name, number, layout)
        if key not in runs:
            folder = tmp_path_factory.mktemp("contract")
            write(folder / "data", rows(), LAYOUTS[layout])
            done = recipe(folder, name, number)
            run(done)
            runs[key] = folder, done
        return runs[key]

    return of


def assert_equal_columns(found: pa.Table, expected: pa.Table) -> None:
    """Floats may differ by the rounding of sums in another order; everything else is equal."""
    assert found.schema == expected.schema
    for column in expected.column_names:
        ours, theirs = found[column].to_pylist(), expected[column].to_pylist()
        kind = expected.schema.field(column).type
        if pa.types.is_list(kind) and pa.types.is_floating(kind.value_type):
            assert [len(row or ()) for row in ours] == [len(row or ()) for row in theirs], column
            ours, theirs = (table[column].combine_chunks().flatten() for table in (found, expected))
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5, err_msg=column)
        elif pa.types.is_floating(kind):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5, err_msg=column)
        else:
            assert ours == theirs, column


@for_every_operator
def test_adds_the_columns_that_it_declares_to_every_row(name: str, number: int, finished: Finished) -> None:
    _, done = finished(name, number, "one shard")
    (table,) = sidecars(done, name)
    operator = next(planned.operator for planned in make_plan(done).operators if planned.name == name)
    assert set(table.column_names) >= {field.name for field in operator.adds}
    for field in operator.adds:
        assert table.schema.field(field.name).type == field.type
    assert table.num_rows == ROWS


@for_every_operator
@pytest.mark.parametrize("layout", ["four shards", "an empty shard", "a shard of one row"])
def test_results_do_not_depend_on_the_shards(name: str, number: int, layout: str, finished: Finished) -> None:
    _, whole = finished(name, number, "one shard")
    _, cut = finished(name, number, layout)
    parts = sidecars(cut, name)
    assert [part.num_rows for part in parts] == [size for size in LAYOUTS[layout] if size]
    assert_equal_columns(pa.concat_tables(parts), sidecars(whole, name)[0])


@for_every_operator
def test_an_interrupted_run_computes_only_what_is_missing(name: str, number: int, finished: Finished) -> None:
    _, done = finished(name, number, "four shards")
    plan = make_plan(done)
    version = version_folder(plan.output, plan.version)
    published = {path.name: path.read_bytes() for path in version.rglob("*.parquet")}
    assert published
    for path in plan.store.folder(plan.fingerprint_of(name)).glob("part-00002.*"):
        path.unlink()
    shutil.rmtree(version)
    second = run(done)
    computed = {operator.name: operator.computed for operator in second.operators}
    assert computed == {**dict.fromkeys(computed, 0), name: 1}
    assert {path.name: path.read_bytes() for path in second.path.rglob("*.parquet")} == published


@for_every_operator
def test_an_unknown_parameter_is_named(name: str, number: int, finished: Finished) -> None:
    folder, _ = finished(name, number, "one shard")
    section = "source" if name == "ingest" else f"operators.{name}"
    with pytest.raises(InputError, match=rf"{section}\.no_such_key"):
        make_plan(recipe(folder, name, number, extra={"no_such_key": 1}))


@pytest.fixture(scope="module")
def with_rejected_rows(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Recipe]:
    """The recipe of a finished run on data whose rows 0 and 41 are rejected; runs are shared by the tests."""
    runs: dict[tuple[str, int], Recipe] = {}

    def of(name: str, number: int) -> Recipe:
        key = ("joint", 0) if is_joint(name, number) else (name, number)
        if key not in runs:
            folder, table = tmp_path_factory.mktemp("rejected"), rows()
            for column in ("a", "word"):
                bad = float("inf") if column == "a" else None
                values = [bad if row in WRONG else v for row, v in enumerate(table[column].to_pylist())]
                field = table.schema.field(column)
                table = table.set_column(
                    table.column_names.index(column), field, pa.array(values, field.type)
                )
            write(folder / "data", table, LAYOUTS["a shard of one row"])
            runs[key] = recipe(folder, name, number, on_error="quarantine", max_error_rate=0.05)
            run(runs[key])
        return runs[key]

    return of


@for_every_operator
def test_rejected_rows_leave_every_sidecar_whole(
    name: str, number: int, with_rejected_rows: Callable[[str, int], Recipe]
) -> None:
    """The first shard has one row, which is rejected: later operators get no row of it."""
    done = with_rejected_rows(name, number)
    assert [part.num_rows for part in sidecars(done, name)] == LAYOUTS["a shard of one row"]
    (split,) = {part.schema.names.index("split") for part in sidecars(done, "split")}
    parts = pa.concat_tables(sidecars(done, "split")).column(split).to_pylist()
    dropped = [row for row, value in enumerate(parts) if value in (None, "dropped")]
    # With `duplicates`, split also drops near copies of rows of another part.
    assert dropped == WRONG or (name == "duplicates" and set(WRONG) < set(dropped))


def test_every_example_belongs_to_a_registered_operator() -> None:
    assert set(EXAMPLES) <= set(operator_names())


def test_an_operator_with_the_old_signature_of_warnings_is_refused_when_it_is_loaded() -> None:
    """It ended the run after it had published, with a TypeError that named no class."""
    with pytest.raises(
        TypeError, match=r"Old\.warnings\(self, metrics\) has an old signature\. Define it as"
    ):
        type("Old", (Operator,), {"warnings": lambda self, metrics: ()})
    type("Current", (Operator,), {"warnings": lambda self, metrics, state: ()})
