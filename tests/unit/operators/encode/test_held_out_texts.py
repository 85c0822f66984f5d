"""Values that only held-out rows have: the run uses the column as `validate` says, wherever they lie."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.execution.local_executor import LocalExecutor
from engine.plan.planner import make_plan
from engine.plan.preview import preview
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from operators.base import Context, OperatorError, RowError
from operators.encode import fitting
from operators.encode.adaptor import Encode
from operators.encode.fitting import first_pass
from operators.encode.params import EncodeParams
from operators.ingest.adaptor import Ingest
from operators.ingest.params import IngestParams
from tests.data import recipe_for
from tests.unit.in_memory import MemoryReader

N = 200
NUMBERS = pa.table({"v": [str(i % 7) for i in range(N)]})
MONTHS_FIRST = pa.table({"v": [f"{i % 7 + 1}/{i % 11 + 1}/2020" for i in range(N)]})


def use(tmp_path, table, *held_out, shards=1, kind=None):
    """How a column is used of which ``table`` is learnt from, and ``held_out`` is not."""
    size = table.num_rows // shards
    tables = [table.slice(i * size, size) for i in range(shards)]
    others = [pa.concat_tables([tables[0], pa.table({"v": list(held_out)})]), *tables[1:]]
    context = Context(MemoryReader(tables), tmp_path, all_shards=MemoryReader(others))
    params = EncodeParams.model_validate({"features": ("v",), "columns": {"v": {"kind": kind}}})
    found = first_pass(params, context, LocalExecutor())
    assert found.summaries["v"].rows == N  # figures are those of the rows to learn from
    return found.uses["v"]


@pytest.mark.parametrize("shards", [1, 4])
def test_a_text_of_a_held_out_row_decides_the_kind(tmp_path, shards):
    assert use(tmp_path, NUMBERS, "8", "", shards=shards).kind == "numeric"
    assert use(tmp_path, NUMBERS, "74-1", shards=shards).kind == "categorical"


def test_a_held_out_date_decides_between_formats(tmp_path):
    assert use(tmp_path, MONTHS_FIRST, "2/3/2020").parameters == {"parse": "%m/%d/%Y"}
    assert use(tmp_path, MONTHS_FIRST, "25/3/2020").parameters == {"parse": "%d/%m/%Y"}


def test_nothing_else_of_a_held_out_row_reaches_the_state(tmp_path):
    """But for the kind the state is that of the rows to learn from alone."""

    def state(name, *held_out, kind=None):
        (tmp_path / name).mkdir()
        everything = MemoryReader([pa.concat_tables([NUMBERS, pa.table({"v": ["0", *held_out]})])])
        context = Context(MemoryReader([NUMBERS]), tmp_path / name, all_shards=everything)
        params = EncodeParams.model_validate({"features": ("v",), "columns": {"v": {"kind": kind}}})
        Encode(params).fit(context, LocalExecutor())
        return {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}

    assert state("numbers", "1000", "-3", "", "8") == state("none")
    assert state("texts", "74-1", "many", "many") == state("named", kind="categorical") != state("again")


def test_a_kind_that_held_out_rows_do_not_allow_is_refused_as_by_validate(tmp_path):
    with pytest.raises(OperatorError, match=r"cannot be numeric.* 200 of its 500 values could be read so"):
        use(tmp_path, NUMBERS, *["74-1"] * 300, kind="numeric")


@pytest.mark.parametrize("row", range(6))
@pytest.mark.parametrize(("n_scores", "kind"), [(7, "categorical"), (90, "numeric")])
def test_a_run_uses_the_column_as_validate_says(tmp_path, n_scores, kind, row):
    rng = np.random.default_rng(0)
    score = rng.integers(0, n_scores, N).astype(str).astype(object)
    score[row] = "74-1"  # some of these rows are drawn for validation, and some are not
    y = rng.integers(0, 2, N)
    table = pa.table({"a": rng.normal(y), "score": score, "label": np.where(y, "yes", "no")})
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data" / "0.parquet")
    operators = {"groups": {"method": "none"}, "split": {"validation": 0.5}}
    recipe = Recipe.parse(
        recipe_for(tmp_path / "data", tmp_path / "out", truth={"group": None}, operators=operators)
    )
    shown = {column.name: column.kind for column in preview(make_plan(recipe)).columns}
    run(recipe)
    (state,) = (tmp_path / "out").rglob("encoding.json")
    assert shown["score"] == json.loads(state.read_text())["uses"]["score"]["kind"] == kind


def test_a_run_judges_identifiers_by_all_rows_as_validate_does(tmp_path):
    """Of the numbers 0 to 1.43 n the rows to learn from are too few to look numbered without gaps."""
    rng = np.random.default_rng(0)
    n, y = 700, rng.integers(0, 2, 700)
    record = np.sort(rng.choice(n * 10 // 7, n, replace=False))
    code = [f"c{i}" for i in range(n - 40)] + [f"c{i}" for i in range(40)]  # 94 % distinct: categories
    table = pa.table({"a": rng.normal(y), "record": record, "code": code, "label": np.where(y, "yes", "no")})
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data" / "0.parquet")
    operators = {"groups": {"method": "none"}, "split": {"validation": 0.5}}
    recipe = Recipe.parse(
        recipe_for(tmp_path / "data", tmp_path / "out", truth={"group": None}, operators=operators)
    )
    shown = {column.name: column.kind for column in preview(make_plan(recipe)).columns}
    run(recipe)
    (state,) = (tmp_path / "out").rglob("encoding.json")
    uses = {name: use["kind"] for name, use in json.loads(state.read_text())["uses"].items()}
    assert shown["record"] == uses["record"] == "unused"
    assert shown["code"] == uses["code"] == "categorical"


def test_the_error_of_a_text_among_numbers_names_the_other_kind(tmp_path):
    old = pa.table({"v": NUMBERS["v"], "label": ["no", "yes"] * (N // 2)})
    new = pa.table({"v": ["74-1"], "label": ["no"]})
    encode = Encode(EncodeParams(features=("v",), label="label"))
    reader = MemoryReader([old, new])
    (tmp_path / "encode").mkdir()
    encode.fit(Context(MemoryReader([old]), tmp_path / "encode"), LocalExecutor())
    made = encode.open(Context(reader, tmp_path / "encode"))(reader.read(1, ["v"]))
    ingest = Ingest(IngestParams(label="label", features=None))
    context = Context(reader, tmp_path)
    (tmp_path / "classes.json").write_text('{"classes": ["no", "yes"], "widths": []}')
    table = reader.read(1, ["v", "label"]).append_column("x_fault", made["x_fault"])
    with pytest.raises(RowError, match=r"encode\.columns: \{v: categorical\}"):
        ingest.open(context)(table)


@pytest.mark.parametrize(
    ("source", "validation", "passes"), [({}, 0.5, 2), ({}, 0.0, 1), ({"holdout": 0.3}, 0.0, 2)]
)
def test_texts_are_read_again_only_where_rows_are_held_out(tmp_path, monkeypatch, source, validation, passes):
    made, summarise = [], fitting.summarise
    monkeypatch.setattr(fitting, "summarise", lambda *given: made.append(given) or summarise(*given))
    y = np.arange(N) % 2
    table = pa.table({"v": NUMBERS["v"], "a": y + np.arange(N) / N, "label": np.where(y, "yes", "no")})
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data" / "0.parquet")
    operators = {"groups": {"method": "none"}, "split": {"validation": validation}}
    sections = {"source": source, "truth": {"group": None}, "operators": operators}
    run(Recipe.parse(recipe_for(tmp_path / "data", tmp_path / "out", **sections)))
    assert len(made) == passes
    assert made[0][0].num_rows == N if passes == 1 else made[0][0].num_rows < N == made[1][0].num_rows
