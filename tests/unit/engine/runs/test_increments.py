"""Incremental runs: what is kept of the base, what is computed, when operators learn again."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from engine.cli.app import app
from engine.core.errors import InputError
from engine.plan.planner import make_plan
from engine.plan.preview import preview
from engine.publish.results import RunResult
from engine.recipe.recipe import Recipe
from engine.runs.history import history, prune
from engine.runs.replay import current_quarantine
from engine.runs.runner import run
from operators.outliers.adaptor import Outliers
from tests.data import recipe_for, spurious_table
from tests.unit.engine.runs.copies import first_run

BASE = {"incremental": {"base": "current", "mode": "predict"}}
KEPT = {"parts", "encode", "ingest", "probe", "gradients", "groups", "outliers", "split"}


def nights(folder: Path, *counts: int, seed: int = 0, name: str = "night") -> None:
    """One file of so many rows for each night that has none yet."""
    folder.mkdir(parents=True, exist_ok=True)
    table, first = spurious_table(sum(counts), seed), 0
    for index, count in enumerate(counts):
        path = folder / f"{name}-{index}.parquet"
        if not path.exists():
            pq.write_table(table.slice(first, count), path)
        first += count


def recipe(folder: Path, out: str = "out", **sections: Any) -> Recipe:
    value = recipe_for(folder / "data", folder / out, **{**BASE, **sections})
    value["operators"]["weights"] = {"trust": "all", "method": "group_balanced"}
    return Recipe.parse(value)


def uncounted(folder: Path, out: str = "out") -> Recipe:
    """Return a recipe whose increments do not count the groups of old rows again."""
    value = recipe_for(folder / "data", folder / out, **BASE)
    value["operators"]["weights"] = {"trust": "all", "method": "group_balanced", "recount": False}
    return Recipe.parse(value)


def table_of(result: RunResult) -> pa.Table:
    return pq.read_table(result.path / "data")


def computed(result: RunResult) -> dict[str, tuple[int, int]]:
    return {operator.name: (operator.computed, operator.reused) for operator in result.operators}


def mean_weight_of_train_rows(table: pa.Table) -> float:
    train = pc.equal(table["split"].cast(pa.string()), "train").to_numpy()
    return float(np.mean(table["weight"].to_numpy()[train]))


def add_night(folder: Path, rows: pa.Table, name: str) -> None:
    pq.write_table(rows, folder / "data" / f"{name}.parquet")


def test_old_shards_are_taken_over_and_new_ones_placed(tmp_path: Path) -> None:
    nights(tmp_path / "data", 160, 80)
    first = run(recipe(tmp_path))
    assert first.manifest.get("incremental") is None
    add_night(tmp_path, spurious_table(60, seed=1), "a-new-one")  # sorts before the others
    second = run(recipe(tmp_path))
    assert second.version != first.version
    for name, counts in computed(second).items():
        assert counts == ((1, 2) if name in KEPT else (3, 0)), name
    old, new = table_of(first), table_of(second)
    assert new.num_rows == 300
    assert new.column("row_id").to_pylist() == list(range(300))
    kept = [name for name in old.column_names if name != "weight"]
    assert new.slice(0, 240).select(kept).equals(old.select(kept))
    assert mean_weight_of_train_rows(new) == pytest.approx(1.0, abs=1e-5)
    record = second.manifest["incremental"]
    assert record["base"] == first.version
    assert record["base_content"] == first.manifest["content"]
    assert record["shards"] == {"old": 2, "new": 1, "gone": 0}
    assert set(record["kept"]) == KEPT | {"weights"}
    assert record["fitted"] == {}
    assert second.parts_taken_over == 0  # the weights of all rows are others


@pytest.mark.slow
def test_a_new_file_with_its_columns_in_another_order_changes_nothing_else(tmp_path: Path) -> None:
    """Columns were listed in the order of the file that sorts first, and all was fitted again."""
    nights(tmp_path / "data", 60, 30)
    value = uncounted(tmp_path).model_dump(mode="json", exclude_defaults=True)
    value["operators"] |= {"groups": {"method": "none"}, "weights": {"method": "class_balanced"}}
    columns = spurious_table(1).column_names
    found = {}
    for out, order in (("same", columns), ("other", columns[::-1])):
        value["output"] = {"path": str(tmp_path / out)}
        base = run(Recipe.parse(value))
        add_night(tmp_path, spurious_table(20, seed=1).select(order), "a-new-one")  # sorts first
        night = run(Recipe.parse(value))
        assert night.manifest["incremental"]["fitted"] == {}
        assert night.manifest["schema"] == base.manifest["schema"]
        found[out] = [path.read_bytes() for path in sorted((night.path / "data").iterdir())]
        (tmp_path / "data" / "a-new-one.parquet").unlink()
    assert found["same"] == found["other"]


def test_weights_that_are_not_counted_again_leave_the_parts_of_old_rows_as_they_are(tmp_path: Path) -> None:
    nights(tmp_path / "data", 160, 80)
    first = first_run(uncounted(tmp_path))
    for number in range(2):
        add_night(tmp_path, spurious_table(60, seed=1 + number), f"z{number}")
        second = run(uncounted(tmp_path))
        assert second.parts_taken_over == 2 + number
        assert computed(second)["weights"] == (1, 2 + number)
    old, new = table_of(first), table_of(second)
    assert new.slice(0, 240).equals(old)
    by_group: dict[tuple[str, int], set[float]] = {}
    for label, group, outlier, weight in zip(
        *(new[name].to_pylist() for name in ("label", "group", "is_outlier", "weight")), strict=True
    ):
        by_group.setdefault((label, -2 if group < 0 and outlier else group), set()).add(weight)
    assert all(
        len(weights) == 1 for weights in by_group.values()
    )  # new rows weigh as old ones of their group


@pytest.mark.slow
def test_weights_that_are_not_counted_again_are_those_from_scratch(tmp_path: Path) -> None:
    """Three nights, and one full run with one increment of all that came since, are the same bytes."""
    nights(tmp_path / "data", 160, 80)
    first_run(uncounted(tmp_path))
    run(uncounted(tmp_path, "scratch"))
    for number in range(2):
        add_night(tmp_path, spurious_table(60, seed=1 + number), f"z{number}")
        third = run(uncounted(tmp_path))
    scratch = run(uncounted(tmp_path, "scratch"))
    assert third.manifest["incremental"]["base"] != scratch.manifest["incremental"]["base"]
    assert third.manifest["content"] == scratch.manifest["content"]


@pytest.mark.slow
def test_sidecars_of_old_shards_are_the_same_files(tmp_path: Path) -> None:
    nights(tmp_path / "data", 160, 80)
    first_run(recipe(tmp_path))
    before = make_plan(recipe(tmp_path))
    add_night(tmp_path, spurious_table(60, seed=1), "z")
    run(recipe(tmp_path))
    after = make_plan(recipe(tmp_path))
    for planned in after.operators:
        if planned.name not in KEPT:
            continue
        for shard in range(2):
            old = before.store.part(before.fingerprint_of(planned.name), shard)
            assert os.path.samefile(old, after.store.part(planned.fingerprint, shard))


def test_a_repeated_night_does_nothing_and_a_full_run_stays_what_it_was(tmp_path: Path) -> None:
    nights(tmp_path / "data", 160, 80)
    plain = first_run(recipe(tmp_path, "plain", incremental={"base": None}))
    first = run(recipe(tmp_path))
    assert first.version == plain.version
    add_night(tmp_path, spurious_table(60, seed=1), "z")
    second = run(recipe(tmp_path))
    again = run(recipe(tmp_path))
    assert again.reused
    assert again.version == second.version
    assert all(counts == (0, 3) for counts in computed(again).values())


def test_a_removed_version_takes_the_decisions_that_continue_from_it_along(tmp_path: Path) -> None:
    """One file a night stayed for ever, though no plan could ask for it again."""
    nights(tmp_path / "data", 160, 80)
    made = [first_run(recipe(tmp_path))]
    for night in range(2):
        add_night(tmp_path, spurious_table(60, seed=1 + night), f"z{night}")
        made.append(run(recipe(tmp_path)))
    folder = tmp_path / "out" / "runs" / "increments"
    bases = {json.loads(path.read_text())["base"] for path in folder.iterdir()}
    assert bases == {made[0].version, made[1].version}
    (folder / "damaged.json").write_text("[")
    prune(tmp_path / "out", 2)
    left = [path for path in folder.iterdir() if path.name != "damaged.json"]
    assert [json.loads(path.read_text())["base"] for path in left] == [made[1].version]
    assert run(recipe(tmp_path)).version == made[2].version


@pytest.mark.slow
def test_same_base_and_input_give_the_same_bytes(tmp_path: Path) -> None:
    nights(tmp_path / "data", 160, 80)
    for out in ("one", "two"):
        run(recipe(tmp_path, out))
    add_night(tmp_path, spurious_table(60, seed=1), "z")
    one, two = (run(recipe(tmp_path, out)) for out in ("one", "two"))
    assert one.version == two.version
    files = [sorted(path for path in result.path.rglob("*") if path.is_file()) for result in (one, two)]
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


def test_parts_that_nothing_has_changed_are_taken_over(tmp_path: Path) -> None:
    """The same files as if all were written."""

    def night(out: str) -> RunResult:
        value = recipe(tmp_path, out).model_dump(mode="json", exclude_defaults=True)
        value["operators"]["weights"] = {"method": "uniform", "trust": "all"}
        return run(Recipe.parse(value))

    nights(tmp_path / "data", 160, 80)
    first, written = night("one"), night("two")
    assert first.parts_taken_over == 0
    add_night(tmp_path, spurious_table(60, seed=1), "z")
    second = night("one")
    assert second.parts_taken_over == 2
    for part in ("data/part-00000.parquet", "data/part-00001.parquet"):
        assert os.path.samefile(first.path / part, second.path / part)
        (written.path / part).unlink()
    afresh = night("two")
    assert (afresh.parts_taken_over, written.version) == (0, first.version)
    files = [sorted(path for path in result.path.rglob("*") if path.is_file()) for result in (second, afresh)]
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]
    (tmp_path / "data" / "night-0.parquet").unlink()  # ids move
    assert night("one").parts_taken_over == 0


def test_rows_that_go_move_ids_but_not_values(tmp_path: Path) -> None:
    nights(tmp_path / "data", 60, 160, 80)
    first = first_run(recipe(tmp_path))
    (tmp_path / "data" / "night-0.parquet").unlink()
    add_night(tmp_path, spurious_table(60, seed=1), "z")
    second = run(recipe(tmp_path))
    old, new = table_of(first), table_of(second)
    assert new.column("row_id").to_pylist() == list(range(300))
    names = ["a", "label", "group", "is_outlier", "split"]
    assert new.slice(0, 240).select(names).equals(old.slice(60).select(names))
    record = second.manifest["incremental"]
    assert record["shards"] == {"old": 2, "new": 1, "gone": 1}
    assert record["fitted"] == {"weights": "rows are gone"}
    assert mean_weight_of_train_rows(new) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.slow
def test_a_changed_file_is_new_and_named(tmp_path: Path) -> None:
    nights(tmp_path / "data", 160, 80)
    first_run(recipe(tmp_path))
    add_night(tmp_path, spurious_table(80, seed=5), "night-1")
    record = run(recipe(tmp_path)).manifest["incremental"]
    assert record["shards"] == {"old": 1, "new": 1, "gone": 1}
    assert [Path(name).name for name in record["changed_files"]] == ["night-1.parquet"]


def shifted(n: int, seed: int) -> pa.Table:
    """Rows whose cue says the opposite and lies elsewhere."""
    table = spurious_table(n, seed)
    return table.set_column(0, "a", pc.add(pc.multiply(table["a"], -1.0), 1.5))


def test_drift_is_told_by_source_columns_and_their_values(tmp_path: Path) -> None:
    """A figure names the source column, and beside it the feature of `encode` in words, never its place."""

    def jobs(n: int, share: float, seed: int) -> pa.Table:
        draws = np.random.default_rng(seed).random(n)
        rows = spurious_table(n, seed).select(["a", "b", "label", "truth"])
        return rows.append_column("workclass", pa.array(np.where(draws < share, "Private", "State").tolist()))

    (tmp_path / "data").mkdir()
    add_night(tmp_path, jobs(240, 0.3, 0), "x")
    sections = {"incremental": {"base": "current", "mode": "auto"}}
    first_run(recipe(tmp_path, **sections))
    add_night(tmp_path, jobs(120, 0.9, 1), "y")
    figures = run(recipe(tmp_path, **sections)).manifest["incremental"]["drift"]
    moved = {figure["name"]: figure for figure in figures if figure["over"]}
    assert moved["columns"]["columns"] == ["workclass"]
    assert moved["columns"]["features"] == ["workclass = State"]
    assert moved["levels"]["columns"] == ["workclass"]
    assert "features" not in moved["levels"]


def test_drift_makes_operators_learn_again(tmp_path: Path) -> None:
    nights(tmp_path / "data", 240)
    sections = {"incremental": {"base": "current", "mode": "auto"}}
    first = first_run(recipe(tmp_path, **sections))
    add_night(tmp_path, spurious_table(120, seed=1), "y")
    calm = run(recipe(tmp_path, **sections)).manifest["incremental"]
    assert calm["outcome"] == "predict"
    assert {figure["name"] for figure in calm["drift"]} == {
        "columns",
        "features",
        "gradients",
        "levels",
        "shares",
        "noise",
    }
    assert not any(figure["over"] for figure in calm["drift"])
    add_night(tmp_path, shifted(120, seed=2), "z")
    undecided = make_plan(recipe(tmp_path, **sections))
    assert undecided.increment
    assert undecided.increment.undecided
    stormy = run(recipe(tmp_path, **sections))
    record = stormy.manifest["incremental"]
    assert record["outcome"] == "refit"
    assert next(figure for figure in record["drift"] if figure["name"] == "features")["over"]
    assert set(record["kept"]) == {"parts", "encode", "ingest", "probe", "gradients"}
    assert record["fitted"]["groups"] == "it is to learn from old and new rows"
    assert record["fitted"]["split"] == "groups is fitted again"
    assert computed(stormy)["gradients"] == (1, 2)
    assert computed(stormy)["groups"] == (3, 0)
    assert make_plan(recipe(tmp_path, **sections)).version == stormy.version
    assert first.version != stormy.version


@pytest.mark.slow
def test_refit_learns_what_a_full_run_learns_from_these_gradients(tmp_path: Path) -> None:
    nights(tmp_path / "data", 160, 80)
    first_run(recipe(tmp_path, "inc"))
    add_night(tmp_path, spurious_table(60, seed=1), "z")
    sections = {"incremental": {"base": "current", "mode": "refit", "keep": []}}
    refit = run(recipe(tmp_path, "inc", **sections))
    full = run(recipe(tmp_path, "full", incremental={"base": None}))
    assert table_of(refit).equals(table_of(full))
    assert refit.manifest["incremental"]["kept"] == ["parts"]  # its parts must not change


@pytest.mark.parametrize("mode", ["auto", pytest.param("refit", marks=pytest.mark.slow)])
def test_a_new_label_computes_everything_again(tmp_path: Path, mode: str) -> None:
    nights(tmp_path / "data", 160, 80)
    sections = {"incremental": {"base": "current", "mode": mode}}
    first_run(recipe(tmp_path, **sections))
    add_night(tmp_path, relabelled("perhaps"), "z")
    record = run(recipe(tmp_path, **sections)).manifest["incremental"]
    assert record["outcome"] == "full"
    assert record["kept"] == []
    assert "perhaps" in record["why"]


def test_a_new_label_is_an_error_where_only_predicting_is_allowed(tmp_path: Path) -> None:
    nights(tmp_path / "data", 160, 80)
    first_run(recipe(tmp_path))
    add_night(tmp_path, relabelled("perhaps"), "z")
    with pytest.raises(InputError, match=r"perhaps.*incremental\.base"):
        run(recipe(tmp_path))


def relabelled(label: str) -> pa.Table:
    table = spurious_table(60, seed=1)
    return table.set_column(table.column_names.index("label"), "label", pa.array([label] * 60))


@pytest.mark.slow
def test_another_parameter_fits_again_from_there_on(tmp_path: Path) -> None:
    nights(tmp_path / "data", 160, 80)
    first_run(recipe(tmp_path))
    add_night(tmp_path, spurious_table(60, seed=1), "z")
    operators = {**recipe(tmp_path).operators, "groups": {"min_samples": [5]}}
    record = run(recipe(tmp_path, operators=operators)).manifest["incremental"]
    assert record["fitted"]["groups"] == "its parameters have changed: min_samples"
    assert set(record["kept"]) == {"parts", "encode", "ingest", "probe", "gradients"}


def test_the_report_of_a_run_without_new_rows_is_drawn(tmp_path: Path) -> None:
    """It needed the reason of a decision, which only new rows call for, and so ended as unexpected."""
    nights(tmp_path / "data", 200)
    first_run(recipe(tmp_path))
    changed = recipe(tmp_path, report={"enabled": True, "title": "again"}, seed=4)
    again = run(changed)
    assert "why" not in again.manifest["incremental"]
    assert "Outcome: predict." in again.report.read_text("utf-8")


def test_an_operator_of_another_version_fits_again_and_versions_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights(tmp_path / "data", 160, 80)
    first_run(recipe(tmp_path))
    add_night(tmp_path, spurious_table(60, seed=1), "z")
    version = Outliers.version
    monkeypatch.setattr(Outliers, "version", version + 1)
    record = run(recipe(tmp_path)).manifest["incremental"]
    why = f"its method has another version: {version} then, {version + 1} now"
    assert (record["outcome"], record["fitted"]["outliers"]) == ("predict", why)
    assert history(tmp_path / "out")[0]["fitted"] == record["fitted"]
    shown = " ".join(CliRunner().invoke(app, ["versions", str(tmp_path / "out")]).output.split())
    assert "fitted again all the same" in shown


@pytest.mark.slow
def test_a_lost_store_fits_again(tmp_path: Path) -> None:
    nights(tmp_path / "data", 160, 80)
    first_run(recipe(tmp_path))
    shutil.rmtree(tmp_path / "out" / "store")
    add_night(tmp_path, spurious_table(60, seed=1), "z")
    record = run(recipe(tmp_path)).manifest["incremental"]
    assert record["kept"] == []
    assert record["fitted"]["parts"] == "the store no longer has what it left"
    assert record["fitted"]["ingest"] == "encode is fitted again"


def test_a_base_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    nights(tmp_path / "data", 160)
    with pytest.raises(InputError, match=r"incremental\.base.*v123"):
        make_plan(recipe(tmp_path, incremental={"base": "v123"}))


def test_a_broken_off_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from operators.groups.base import GroupsBase

    nights(tmp_path / "data", 160, 80)
    run(recipe(tmp_path))
    add_night(tmp_path, spurious_table(60, seed=1), "z")
    whole = run(recipe(tmp_path, "out")).manifest
    (tmp_path / "out" / "CURRENT").write_text(whole["incremental"]["base"] + "\n")
    plan = make_plan(recipe(tmp_path))
    assert plan.version == whole["version"]
    for name in ("groups", "split"):
        shutil.rmtree(plan.store.folder(plan.fingerprint_of(name)))
    shutil.rmtree(tmp_path / "out" / "versions" / plan.version)

    def fails(*_: Any) -> Any:
        raise RuntimeError("power cut")

    with monkeypatch.context() as patched:
        patched.setattr(GroupsBase, "partial_fit", fails)
        with pytest.raises(RuntimeError, match="power cut"):
            run(recipe(tmp_path))
    result = run(recipe(tmp_path))
    assert json.dumps(result.manifest, sort_keys=True) == json.dumps(whole, sort_keys=True)


def quarantined(rows: Sequence[int], n: int = 80) -> pa.Table:
    table = spurious_table(n, seed=9)
    values = [float("inf") if row in rows else value for row, value in enumerate(table["a"].to_pylist())]
    return table.set_column(0, "a", pa.array(values, pa.float64()))


def test_rows_set_aside_stay_so_and_their_ids_move(tmp_path: Path) -> None:
    from engine.execution.quarantine import read_quarantine

    nights(tmp_path / "data", 160)
    add_night(tmp_path, quarantined([3, 7]), "p")
    source = {"on_error": "quarantine", "max_error_rate": 0.1}
    first_run(recipe(tmp_path, source=source))
    before = read_quarantine(make_plan(recipe(tmp_path, source=source)))
    (tmp_path / "data" / "night-0.parquet").unlink()
    add_night(tmp_path, spurious_table(100, seed=1), "z")
    result = run(recipe(tmp_path, source=source))
    after = read_quarantine(make_plan(recipe(tmp_path, source=source)))
    assert before.column("row_id").to_pylist() == [163, 167]
    assert after.column("row_id").to_pylist() == [3, 7]
    assert before.drop_columns(["row_id"]).equals(after.drop_columns(["row_id"]))
    assert result.manifest["summary"]["quarantined"] == 2


def test_rows_set_aside_are_found_in_the_file_that_holds_them_now(tmp_path: Path) -> None:
    from engine.execution.quarantine import read_quarantine

    nights(tmp_path / "data", 160)
    names = ("p", "q")
    for place, name in enumerate(names):
        add_night(tmp_path, quarantined([3 + place]), name)
    source = {"on_error": "quarantine", "max_error_rate": 0.1}
    first_run(recipe(tmp_path, source=source))
    files = [tmp_path / "data" / f"{name}.parquet" for name in (*names, "r")]
    for old, new in ((0, 2), (1, 0), (2, 1)):  # the two change their names
        files[old].rename(files[new])

    def places(rows: pa.Table) -> set[tuple[str, int]]:
        return {(Path(row["file"]).name, row["row"]) for row in rows.to_pylist()}

    now = {("q.parquet", 3), ("p.parquet", 4)}
    assert places(read_quarantine(make_plan(recipe(tmp_path, source=source)))) == now
    add_night(tmp_path, spurious_table(100, seed=1), "z")
    run(recipe(tmp_path, source=source))
    assert places(current_quarantine(tmp_path / "out")) == now


STANDARD_CHAIN: dict[str, Any] = {"cues": {}, "groups": {"method": "cues"}, "weights": {}, "split": {}}


def standard(folder: Path, on_error: str = "fail", **sections: Any) -> Recipe:
    """Return a recipe in which `encode` makes the features, so that it is kept without `ingest`."""
    source = {"on_error": on_error, "max_error_rate": 0.1}
    value = recipe_for(folder / "data", folder / "out", **{**BASE, "source": source, **sections})
    return Recipe.parse(value | {"operators": STANDARD_CHAIN})


@pytest.mark.parametrize("mode", ["auto", pytest.param("predict", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("before", "after"), [("fail", "quarantine"), ("quarantine", "fail")])
def test_the_treatment_of_faulty_rows_may_change_when_a_shard_arrives(
    tmp_path: Path, before: str, after: str, mode: str
) -> None:
    """`ingest` is fitted again then, and drift was looked for in parts that it had not made yet."""
    nights(tmp_path / "data", 160)
    first_run(standard(tmp_path, before))
    rows = spurious_table(60, seed=1)
    if after == "quarantine":
        a = rows["a"].to_numpy().copy()
        a[7] = np.inf
        rows = rows.set_column(rows.column_names.index("a"), "a", pa.array(a))
    add_night(tmp_path, rows, "z")
    found = run(standard(tmp_path, after, incremental={"base": "current", "mode": mode}))
    record = found.manifest["incremental"]
    assert record["fitted"]["ingest"] == "its parameters have changed: on_error"
    assert "encode" in record["kept"]
    assert {"columns", "features"} <= {figure["name"] for figure in record["drift"]}


def test_what_ingest_left_in_the_store_may_be_gone(tmp_path: Path) -> None:
    nights(tmp_path / "data", 160)
    plan = make_plan(standard(tmp_path))
    first_run(standard(tmp_path))
    shutil.rmtree(plan.store.state(plan.fingerprint_of("ingest")).parent)
    add_night(tmp_path, spurious_table(60, seed=1), "z")
    record = run(standard(tmp_path)).manifest["incremental"]
    assert record["fitted"]["ingest"] == "the store no longer has what it left"
    assert "encode" in record["kept"]


def test_refit_without_new_rows_fits_again_what_was_only_placed(tmp_path: Path) -> None:
    nights(tmp_path / "data", 160)
    first_run(recipe(tmp_path))
    add_night(tmp_path, spurious_table(60, seed=1), "z")
    placed = run(recipe(tmp_path))
    assert placed.manifest["incremental"]["outcome"] == "predict"
    refit = {"base": "current", "mode": "refit"}
    fitted = run(recipe(tmp_path, incremental=refit))
    record = fitted.manifest["incremental"]
    assert fitted.version != placed.version
    assert (record["base"], record["outcome"]) == (placed.version, "refit")
    assert record["fitted"]["groups"] == "it is to learn from old and new rows"
    assert run(recipe(tmp_path, incremental=refit)).version == fitted.version
    assert run(recipe(tmp_path)).version == fitted.version


@pytest.mark.parametrize("text", ["[]", '{"outcome": "x"}', '{"outcome": "predict"}', "1"])
def test_a_damaged_decision_is_taken_again(tmp_path: Path, text: str) -> None:
    nights(tmp_path / "data", 160)
    base = first_run(recipe(tmp_path)).version
    add_night(tmp_path, spurious_table(60, seed=1), "z")
    whole = run(recipe(tmp_path)).manifest
    (file,) = (tmp_path / "out" / "runs" / "increments").glob("*.json")
    file.write_text(text)
    (tmp_path / "out" / "CURRENT").write_text(base)
    shutil.rmtree(tmp_path / "out" / "versions" / whole["version"])
    assert run(recipe(tmp_path)).manifest["incremental"] == whole["incremental"]


@pytest.mark.parametrize("base", ["current", None])
def test_a_file_that_is_left_out_is_told_by_a_version_of_its_own(tmp_path: Path, base: str | None) -> None:
    nights(tmp_path / "data", 160)
    sections: dict[str, Any] = {"source": {"on_corrupt": "skip"}, "incremental": {"base": base}}
    whole = first_run(recipe(tmp_path, **sections))
    damaged = tmp_path / "data" / "z.parquet"
    damaged.write_bytes((tmp_path / "data" / "night-0.parquet").read_bytes()[:3000])
    plan = make_plan(recipe(tmp_path, **sections))
    assert "1 file left out, as reading failed: " in next(text for _, text in preview(plan).warnings())
    without = run(recipe(tmp_path, **sections))
    assert without.version not in ("", whole.version)
    assert [Path(name).name for name in without.manifest["source"]["skipped"]] == ["z.parquet"]
    assert "z.parquet" in without.manifest["warnings"][0]
    assert run(recipe(tmp_path, **sections)).version == without.version
    assert without.manifest["content"] == whole.manifest["content"]
    damaged.unlink()
    assert run(recipe(tmp_path, **sections)).manifest["source"]["skipped"] == {}
