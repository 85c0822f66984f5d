"""Whole runs in this process: what is published, what is reused, what is the same to the byte."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import engine
from engine.core.errors import BudgetError, InputError, LockedError
from engine.core.events import Event
from engine.plan.planner import make_plan
from engine.publish.results import RunResult
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from engine.storage.lease import hold_lease
from engine.training.data.version import open_version
from tests.data import recipe_for, small_recipe, spurious_table, write_csv, write_shards


def published(result: RunResult) -> pa.Table:
    return pq.read_table(result.path / "data")


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*.*"))}


def computed(result: RunResult) -> dict[str, int]:
    return {operator.name: operator.computed for operator in result.operators}


def changed(recipe: Recipe, **operators: dict[str, Any]) -> Recipe:
    return recipe.model_copy(update={"operators": {**recipe.operators, **operators}})


def test_the_package_offers_it() -> None:
    assert engine.run is run
    assert engine.Recipe is Recipe


def test_publishes_the_contract_beside_the_source(tmp_path: Path) -> None:
    result = run(small_recipe(tmp_path))
    table = published(result)
    source = spurious_table()
    assert table.select(source.column_names).to_pylist() == source.to_pylist()
    assert table.column("row_id").to_pylist() == list(range(source.num_rows))
    assert table.schema.field("group").type == pa.int32()
    assert table.schema.field("weight").type == pa.float32()
    assert table.schema.field("split").type == pa.dictionary(pa.int8(), pa.string())
    assert all(table.column(name).null_count == 0 for name in table.column_names)
    kept = [row["weight"] for row in table.to_pylist() if row["split"] != "dropped"]
    assert sum(kept) / len(kept) == pytest.approx(1.0)
    assert (tmp_path / "out" / "CURRENT").read_text().strip() == result.version
    assert (result.report, [*(tmp_path / "out" / "reports").glob("*.html")]) == (None, [])


def test_the_manifest_describes_the_files(tmp_path: Path) -> None:
    import hashlib

    result = run(small_recipe(tmp_path))
    manifest = json.loads((result.path / "manifest.json").read_text())
    assert sum(part["rows"] for part in manifest["parts"]) == manifest["rows"] == 240
    for part in manifest["parts"]:
        data = (result.path / part["path"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == part["sha256"]
    assert set(manifest["source"]["files"].values()) >= {
        "sha256:" + hashlib.sha256((tmp_path / "data" / "s0.parquet").read_bytes()).hexdigest()
    }
    assert sum(manifest["summary"]["groups"].values()) == 240


def test_a_second_run_computes_nothing(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path)
    first, events = run(recipe), []
    before = content(first.path)
    second = run(recipe, listener=events.append)
    assert second.reused
    assert not first.reused
    assert set(computed(second).values()) == {0}
    assert content(second.path) == before
    assert {event.operator for event in events if event.kind == "reused"} == {*computed(first), "publish"}


def test_a_changed_operator_recomputes_itself_and_what_follows(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, shards=4)
    run(recipe)
    result = run(changed(recipe, groups={"min_samples": [7]}))
    assert computed(result) == {
        "parts": 0,
        "encode": 0,
        "ingest": 0,
        "probe": 0,
        "gradients": 0,
        "groups": 4,
        "outliers": 4,
        "weights": 4,
        "split": 4,
    }
    result = run(changed(recipe, weights={"method": "group_balanced"}))
    assert computed(result) == {
        "parts": 0,
        "encode": 0,
        "ingest": 0,
        "probe": 0,
        "gradients": 0,
        "groups": 0,
        "outliers": 0,
        "weights": 4,
        "split": 0,
    }
    assert len(list((tmp_path / "out" / "versions").glob("v*"))) == 3


def test_where_it_runs_is_no_part_of_the_fingerprint(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path)
    plan, other = make_plan(recipe), make_plan(changed(recipe, gradients={"resources": {"actors": 1}}))
    assert plan.version == other.version


def test_a_changed_row_changes_the_version(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path)
    before = make_plan(recipe).version
    write_shards(tmp_path / "data", spurious_table(seed=1))
    assert make_plan(recipe).version != before


@pytest.mark.slow
def test_two_folders_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        write_shards(folder / "data", spurious_table())
        monkeypatch.chdir(folder)
        found.append(content(run(Recipe.parse(recipe_for(Path("data"), Path("out")))).path))
    assert found[0] == found[1]


@pytest.mark.slow
def test_groups_do_not_depend_on_sharding(tmp_path: Path) -> None:
    labels = []
    for shards in (1, 3, 7):
        result = run(small_recipe(tmp_path / str(shards), shards=shards))
        labels.append(published(result).select(["group", "is_outlier", "split"]).to_pylist())
    assert labels[0] == labels[1] == labels[2]


def test_faulty_rows_are_set_aside_with_a_reason(tmp_path: Path) -> None:
    table = spurious_table()
    column = table.column("a").to_pylist()
    column[5], column[100] = float("nan"), None
    write_shards(tmp_path / "data", table.set_column(0, "a", pa.array(column)))
    source = {"on_error": "quarantine", "max_error_rate": 0.01}
    strict = {"encode": {"numeric": {"missing": "fail"}}}
    recipe = Recipe.parse(recipe_for(tmp_path / "data", tmp_path / "out", source=source, operators=strict))
    result = run(recipe)
    rows = published(result).to_pylist()
    assert [row["row_id"] for row in rows if row["outlier_source"] == "quarantine"] == [5, 100]
    assert rows[5]["split"] == "dropped"
    assert (rows[5]["group"], rows[5]["weight"], rows[5]["is_outlier"]) == (-1, 0.0, True)
    from engine.execution.quarantine import read_quarantine

    found = read_quarantine(make_plan(recipe), 10).to_pylist()
    assert [(fault["row_id"], fault["column"], fault["operator"]) for fault in found] == [
        (5, "a", "ingest"),
        (100, "a", "ingest"),
    ]
    assert json.loads(found[1]["raw"])["a"] is None
    assert all(fault["file"].endswith(".parquet") and fault["error"] for fault in found)


def test_missing_numbers_are_filled_unless_the_recipe_says_otherwise(tmp_path: Path) -> None:
    table = spurious_table()
    column = table.column("a").to_pylist()
    column[5], column[100] = float("nan"), None
    write_shards(tmp_path / "data", table.set_column(0, "a", pa.array(column)))
    result = run(Recipe.parse(recipe_for(tmp_path / "data", tmp_path / "out")))
    assert all(row["outlier_source"] != "quarantine" for row in published(result).to_pylist())


def test_too_many_faulty_rows_end_the_run(tmp_path: Path) -> None:
    table = spurious_table()
    faulty = pa.array([float("inf")] * 10 + [1.0, 2.0] * 115)
    write_shards(tmp_path / "data", table.set_column(0, "a", faulty))
    source = {"on_error": "quarantine", "max_error_rate": 0.01}
    recipe = Recipe.parse(recipe_for(tmp_path / "data", tmp_path / "out", source=source))
    for _ in range(2):
        with pytest.raises(BudgetError, match=r"10 of 240 rows .*max_error_rate"):
            run(recipe)
    assert not (tmp_path / "out" / "CURRENT").exists()


def test_a_locked_output_says_who_holds_it(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path)
    with (
        hold_lease(tmp_path / "out", "weekly"),
        pytest.raises(LockedError, match=r"weekly \(process \d+ on"),
    ):
        run(recipe)
    assert run(recipe).version


def test_a_crash_keeps_what_was_committed(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, shards=4)

    class StopError(Exception):
        pass

    def stop_at_third(event: Event) -> None:
        if event.kind == "progress" and event.operator == "gradients" and event.shards == 3:
            raise StopError

    with pytest.raises(StopError):
        run(recipe, listener=stop_at_third)
    assert not (tmp_path / "out" / "CURRENT").exists()
    resumed = run(recipe)
    assert computed(resumed)["gradients"] == 1
    assert computed(resumed)["probe"] == 0
    whole = run(
        recipe.model_copy(update={"output": recipe.output.model_copy(update={"path": str(tmp_path / "new")})})
    )
    assert content(whole.path) == content(resumed.path)


def test_a_name_clash_is_refused_and_a_prefix_mends_it(tmp_path: Path) -> None:
    table = spurious_table()
    write_shards(tmp_path / "data", table.append_column("weight", pa.array([1.0] * 240)))
    with pytest.raises(InputError, match=r"'weight'.*output\.prefix"):
        make_plan(Recipe.parse(recipe_for(tmp_path / "data", tmp_path / "out")))
    recipe = Recipe.parse(recipe_for(tmp_path / "data", tmp_path / "out", output={"prefix": "rowsieve_"}))
    assert "rowsieve_weight" in published(run(recipe)).column_names


@pytest.mark.parametrize(
    ("operators", "words"),
    [
        ({"groups": {}}, "needs the column 'gradient'"),
        ({"probe": {}, "gradients": {}}, "nothing adds the column 'group'"),
        ({"gradients": {}}, "uses what probe has fitted"),
        ({"grups": {}}, "Did you mean 'groups'"),
        ({"ingest": {}}, "always runs first"),
        ({"probe": {"epocs": 1}}, "operators.probe.epocs: unknown key. Did you mean 'epochs'"),
        ({"probe": {"l2": "big"}}, "operators.probe.l2"),
    ],
)
def test_chains_that_do_not_close(tmp_path: Path, operators: dict[str, Any], words: str) -> None:
    recipe = small_recipe(tmp_path).model_copy(update={"operators": operators})
    with pytest.raises(InputError) as caught:
        make_plan(recipe)
    assert words in str(caught.value)


def test_the_order_in_the_recipe_does_not_matter(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path)
    turned = recipe.model_copy(update={"operators": dict(reversed(recipe.operators.items()))})
    names = [planned.name for planned in make_plan(turned).operators]
    assert names.index("probe") < names.index("gradients") < names.index("groups")
    assert make_plan(turned).version == make_plan(recipe).version


@pytest.mark.parametrize("suffix", ["csv", pytest.param("jsonl", marks=pytest.mark.slow)])
def test_text_files_give_what_parquet_gives(suffix: str, tmp_path: Path) -> None:
    table = spurious_table().drop_columns(["vector"])
    write_shards(tmp_path / "data", table)
    if suffix == "csv":
        write_csv(tmp_path / "data.csv", spurious_table())
    else:
        lines = [json.dumps(row) for row in table.to_pylist()]
        (tmp_path / "data.jsonl").write_text("\n".join(lines))
    ours = ["row_id", "group", "is_outlier", "weight", "split"]
    expected = published(run(Recipe.parse(recipe_for(tmp_path / "data", tmp_path / "parquet"))))
    source = {"shard_bytes": 4000}
    recipe = Recipe.parse(recipe_for(tmp_path / f"data.{suffix}", tmp_path / "text", source=source))
    assert len(make_plan(recipe).shards) > 2
    assert published(run(recipe)).select(ours).to_pylist() == expected.select(ours).to_pylist()


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ({"fields": ["a", "lable"]}, r"report\.fields.*'lable'.*'label'"),
        ({"image": {"column": "vektor", "height": 1, "width": 2}}, r"report\.image\.column.*'vector'"),
    ],
)
def test_report_columns_are_checked_first(report: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        make_plan(small_recipe(tmp_path, report=report))


def test_truth_is_out_of_reach(tmp_path: Path) -> None:
    from operators.base import OperatorError

    recipe = small_recipe(tmp_path)
    plan = make_plan(recipe)
    assert "truth" not in plan.features
    with pytest.raises(OperatorError, match="scoring only"):
        plan.reader().read_source(0, ["truth"])
    peeking = recipe.source.model_copy(update={"features": ("a", "truth")})
    with pytest.raises(InputError, match="scoring only"):
        make_plan(recipe.model_copy(update={"source": peeking}))


@pytest.mark.parametrize("operator", ["ingest", "probe", "split"])
def test_a_source_file_that_is_replaced_during_a_run_ends_it(operator: str, tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, shards=2)
    file = tmp_path / "data" / "s1.parquet"
    old, other = file.read_bytes(), spurious_table(seed=1)

    def replace_file(event: Event) -> None:
        if event.operator == operator and event.kind == "finish":
            pq.write_table(other.slice(0, 120), tmp_path / "new.parquet")
            (tmp_path / "new.parquet").replace(file)

    with pytest.raises(InputError, match=r"s1\.parquet has changed since it was listed.*Run again"):
        run(recipe, listener=replace_file)
    assert not (tmp_path / "out" / "CURRENT").exists()
    file.write_bytes(old)  # what was computed from the listed content still holds
    source = spurious_table()
    assert published(run(recipe)).select(source.column_names).to_pylist() == source.to_pylist()


def test_a_version_that_has_lost_a_part_is_told(tmp_path: Path) -> None:
    recipe = small_recipe(
        tmp_path, shards=4, operators={"groups": {"method": "none"}, "weights": {}, "split": {}}
    )
    done = run(recipe)
    (done.path / "data" / "part-00001.parquet").unlink()
    told = rf"part-00001\.parquet is not there: the version {done.version} has lost 1 of its 4 parts"
    with pytest.raises(InputError, match=told):
        run(recipe)
    with pytest.raises(InputError, match=told):
        open_version(done.path).reader().read_source(1, ["row_id"])
    shutil.rmtree(done.path)
    again = run(recipe)
    assert again.manifest["content"] == done.manifest["content"]
    assert all(not operator.computed for operator in again.operators)
