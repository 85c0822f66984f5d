"""Rows that cannot be used and files that cannot be read: named, set aside, counted; the others go on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from engine.cli.app import app
from engine.core.errors import BudgetError, InputError, RowsieveError
from engine.execution.quarantine import read_quarantine
from engine.execution.row_faults import apply_without_faulty
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from operators.base import Apply, Context, OperatorError
from operators.gradients.adaptor import Gradients
from tests.data import recipe_for, spurious_table, write_shards
from tests.unit.engine.runs.test_run import computed, content, published

QUARANTINE = {"on_error": "quarantine", "max_error_rate": 0.02}


@given(st.integers(1, 60), st.sets(st.integers(0, 59), max_size=8), st.integers(0, 8))
def test_a_batch_is_searched_down_to_its_faulty_rows(n: int, faulty: set[int], allowed: int) -> None:
    faulty = {row for row in faulty if row < n}
    calls = []

    def apply(table: pa.Table) -> pa.Table:
        calls.append(table.num_rows)
        found = faulty.intersection(table["row"].to_pylist())
        if found:
            raise ValueError(f"cannot use {min(found)}")
        return pa.table({"twice": pa.compute.multiply(table["row"], 2)})

    table = pa.table({"row": pa.array(range(n), pa.int64())})
    if faulty and len(faulty) > allowed:
        with pytest.raises(ValueError, match="cannot use"):
            apply_without_faulty(apply, table, allowed)
        return
    result, faults = apply_without_faulty(apply, table, allowed)
    assert dict(faults) == {row: f"ValueError: cannot use {row}" for row in faulty}
    assert result["twice"].to_pylist() == [2 * row for row in range(n) if row not in faulty]
    assert len(calls) <= 2 + 2 * len(faulty) * (n - 1).bit_length()


@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "disk full"), RowsieveError("lost")])
def test_what_is_no_matter_of_rows_is_not_searched(error: Exception) -> None:
    calls = []

    def apply(table: pa.Table) -> pa.Table:
        calls.append(1)
        raise error

    with pytest.raises(type(error)):
        apply_without_faulty(apply, pa.table({"row": [1, 2, 3]}), 3)
    assert calls == [1]


def raising_on(*row_ids: int, error: type[Exception] = ZeroDivisionError) -> Callable[..., Apply]:
    """``Gradients.open`` with a function that raises where it meets one of these rows."""
    original = Gradients.open

    def opened(self: Any, context: Context) -> Apply:
        apply = original(self, context)

        def wrapped(table: pa.Table) -> pa.Table:
            if set(row_ids).intersection(table["row_id"].to_pylist()):
                raise error("a <b>user's</b> function")
            return apply(table)

        return wrapped

    return opened


@pytest.mark.slow
@pytest.mark.parametrize("error", [ZeroDivisionError, pytest.param(OperatorError, marks=pytest.mark.faults)])
def test_rows_on_which_an_operator_raises(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = spurious_table()
    column = table.column("label").to_pylist()
    column[9] = None
    write_shards(tmp_path / "data", table.set_column(3, "label", pa.array(column)))
    recipe = Recipe.parse(recipe_for(tmp_path / "data", tmp_path / "out", source=QUARANTINE))
    monkeypatch.setattr(Gradients, "open", raising_on(70, 130, error=error))
    result = run(recipe)
    rows = published(result).to_pylist()
    assert [row["row_id"] for row in rows if row["outlier_source"] == "quarantine"] == [9, 70, 130]
    assert all(
        (rows[i]["group"], rows[i]["weight"], rows[i]["split"]) == (-1, 0.0, "dropped") for i in (9, 70)
    )
    assert result.manifest["summary"]["quarantined"] == 3
    found = read_quarantine(make_plan(recipe)).to_pylist()
    assert [(fault["row_id"], fault["operator"]) for fault in found] == [
        (9, "ingest"),
        (70, "gradients"),
        (130, "gradients"),
    ]
    assert found[1]["error"] == f"{error.__name__}: a <b>user's</b> function"
    assert (found[1]["row"], Path(found[1]["file"]).name) == (10, "s1.parquet")
    raw = json.loads(found[1]["raw"])
    assert raw["b"] == table["b"][70].as_py()
    assert "truth" not in raw
    before = content(result.path)
    monkeypatch.undo()
    assert set(computed(run(recipe)).values()) == {0}
    assert content(result.path) == before


def test_too_many_rows_and_none_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows raise: that is no matter of rows, and the operator's own error is shown."""
    write_shards(tmp_path / "data", spurious_table())
    monkeypatch.setattr(Gradients, "open", raising_on(*range(240)))
    for source in (QUARANTINE, {"on_error": "fail"}):
        recipe = Recipe.parse(recipe_for(tmp_path / "data", tmp_path / "out", source=source))
        with pytest.raises(RowsieveError, match=r"operators\.gradients failed on shard 0: ZeroDivisionError"):
            run(recipe)
    monkeypatch.undo()
    monkeypatch.setattr(Gradients, "open", raising_on(0, 1, 100, 101))
    recipe = recipe_for(tmp_path / "data", tmp_path / "out", source=QUARANTINE | {"max_error_rate": 0.0125})
    with pytest.raises(BudgetError, match="4 of 240 rows"):
        run(Recipe.parse(recipe))


def hurt_footer(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def hurt_pages(path: Path) -> None:
    """Zeros over the data; the footer, and so the number of rows, stays."""
    pq.write_table(pq.read_table(path), path, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[60:200] = bytes(140)
    path.write_bytes(data)


@pytest.mark.parametrize(("hurt", "rows"), [(hurt_footer, 180), (hurt_pages, 240)])
def test_a_corrupt_file_is_named_or_skipped(hurt: Callable[[Path], None], rows: int, tmp_path: Path) -> None:
    write_shards(tmp_path / "data", spurious_table())
    hurt(tmp_path / "data" / "s2.parquet")
    recipe = recipe_for(tmp_path / "data", tmp_path / "out")
    with pytest.raises(InputError, match=r"s2\.parquet.*write or copy it again"):
        run(Recipe.parse(recipe))
    recipe["source"]["on_corrupt"] = "skip"
    result = run(Recipe.parse(recipe))
    found = published(result).to_pylist()
    assert len(found) == rows == result.manifest["rows"]
    kept = [row for row in found if row["outlier_source"] != "quarantine"]
    assert len(kept) == 180
    assert result.manifest["summary"]["quarantined"] == rows - 180
    skipped = result.manifest["source"]["skipped"]
    assert [Path(path).name for path in skipped] == (["s2.parquet"] if rows == 180 else [])
    if rows == 240:
        assert {row["row_id"] for row in found if row["split"] == "dropped"} >= set(range(120, 180))
        faults = read_quarantine(make_plan(Recipe.parse(recipe))).to_pylist()
        assert [fault["row_id"] for fault in faults] == list(range(120, 180))
        assert "s2.parquet" in faults[0]["error"]
    assert [row["b"] for row in kept] == [
        b for i, b in enumerate(spurious_table()["b"].to_pylist()) if i // 60 != 2
    ]


def test_a_csv_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    rows = "".join(f"{i % 7},{i % 3},{'yes' if i % 2 else 'no'}\n" for i in range(60))
    for name in ("a", "c"):
        (tmp_path / "data" / f"{name}.csv").write_text("a,b,label\n" + rows)
    (tmp_path / "data" / "b.csv").write_bytes(b"a,b,label\n1,2,\xff\xfe\n")
    recipe = recipe_for(tmp_path / "data", tmp_path / "out", truth={"group": None})
    with pytest.raises(InputError, match=r"b\.csv"):
        make_plan(Recipe.parse(recipe))
    recipe["source"]["on_corrupt"] = "skip"
    plan = make_plan(Recipe.parse(recipe))
    assert plan.n_rows == 120
    assert [Path(path).name for path in plan.listing.skipped] == ["b.csv"]


@pytest.mark.faults
def test_the_command_lists_exports_and_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shards(tmp_path / "data", spurious_table())
    recipe = recipe_for(tmp_path / "data", tmp_path / "out", source=QUARANTINE)
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))

    def command(*words: str) -> Result:
        return CliRunner().invoke(app, ["quarantine", str(path), *words])

    assert command("replay").exit_code == 2
    with monkeypatch.context() as broken:
        broken.setattr(Gradients, "open", raising_on(70, 130))
        first = run(Recipe.parse(recipe))
    assert "ZeroDivisionError" in command("list").output
    for name in ("a.parquet", "a.csv", "a.jsonl"):
        assert "2 rows written" in command("export", "--to", str(tmp_path / name)).output
    assert [json.loads(line)["row_id"] for line in (tmp_path / "a.jsonl").read_text().splitlines()] == [
        70,
        130,
    ]
    assert pq.read_table(tmp_path / "a.parquet").num_rows == 2
    for words in (["export"], ["export", "--to", "a.txt"], ["lst"]):
        refused = command(*words)
        assert (refused.exit_code, "Traceback" in refused.output) == (2, False)
    done = command("replay")
    assert "of 2 rows that were set aside, 2 no longer are" in done.output
    second = run(Recipe.parse(recipe))
    assert second.reused
    assert second.version != first.version
    assert second.manifest["summary"]["quarantined"] == 0
    fresh = run(Recipe.parse(recipe | {"output": {"path": str(tmp_path / "fresh")}}))
    assert published(second).equals(published(fresh))
