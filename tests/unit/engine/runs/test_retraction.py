"""Withdrawing a version: readers get the one before, nothing is deleted, and it can be taken back."""

from __future__ import annotations

import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient
from typer.testing import CliRunner

import rowsieve
from engine import report as report_package
from engine.cli.app import app
from engine.core.errors import InputError
from engine.core.json_files import to_json
from engine.plan.planner import make_plan
from engine.publish.lineage import trace
from engine.publish.tracking import OUTPUT_TAG, VERSION_TAG
from engine.publish.withdrawn_models import WITHDRAWN_TAG
from engine.recipe.recipe import Recipe
from engine.report.withdrawn import BODY
from engine.runs import retraction
from engine.runs.history import history, prune, remove
from engine.runs.replay import current_quarantine
from engine.runs.retraction import retract, undo_retraction
from engine.runs.runner import run
from engine.runs.status import status_of
from engine.storage.manifest import NUMBER, pointed_version
from engine.storage.version_inputs import inputs_of
from engine.storage.withdrawals import (
    FOLDER,
    MAX_EARLIER,
    MAX_REASON,
    current_version,
    withdrawal_of,
    write_withdrawal,
)
from engine.training.data.version import open_version
from engine.training.serving.stored_models import _artifact
from operators.weights.adaptor import Weights
from tests.data import recipe_for, small_recipe, spurious_table

OPERATORS = {"groups": {"method": "none"}, "weights": {}, "split": {}}
PAGE = "<html>\n<body>\n<p>groups</p>\n</body>\n</html>\n"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recipe]:
    folder = tmp_path_factory.mktemp("published")
    recipe = small_recipe(folder, operators=OPERATORS)
    run(recipe)
    return folder / "out", recipe


@pytest.fixture
def out(published: tuple[Path, Recipe], tmp_path: Path) -> Path:
    """An output with the versions va, vb and the one of the recipe, the latest and current."""
    folder = tmp_path / "out"
    shutil.copytree(published[0], folder)
    last = (folder / "CURRENT").read_text().strip()
    for number, name in enumerate(("va", "vb", last), 1):
        version = folder / "versions" / name
        if name != last:
            shutil.copytree(folder / "versions" / last, version)
        manifest = json.loads((version / "manifest.json").read_text()) | {"version": name, NUMBER: number}
        (version / "manifest.json").write_text(json.dumps(manifest))
    return folder


def files(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if path.is_file() and ".lease" not in path.parts}


def command(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["retract", *arguments])
    assert done.exit_code == code, done.output
    return done.output


def test_readers_get_the_version_before(out: Path, caplog: pytest.LogCaptureFixture) -> None:
    before, last = files(out), str(pointed_version(out))
    shown = command(f"{out}@{last}", "--why", "labels of\nMay")
    assert f"{last} is withdrawn: labels of May" in shown
    assert "readers get vb from now on" in shown
    assert pointed_version(out) == current_version(out) == open_version(out).name == "vb"
    assert files(out) - before == {str(out / FOLDER / f"{last}.json")}
    with caplog.at_level(logging.WARNING, "rowsieve"):
        assert open_version(f"{out}@{last}").name == last
        assert open_version(out / "versions" / last).name == last
    assert caplog.text.count(f"{last} was withdrawn: labels of May") == 2
    assert [entry["withdrawn"] for entry in history(out)] == ["labels of May", None, None]
    assert "withdrawn: labels" in CliRunner().invoke(app, ["versions", str(out)]).output
    assert "withdrawn: labels of May" in CliRunner().invoke(app, ["lineage", f"{out}@{last}"]).output
    assert trace(f"{out}@{last}", None)["withdrawn"] == "labels of May"
    assert trace(f"{out}@vb", None)["withdrawn"] is None
    assert retract(out, last, "other reason").why == "other reason"
    assert command(f"{out}@{last}", "--undo").startswith(f"{last} stands again")
    assert current_version(out) == last
    assert files(out) == before


def test_another_reason_keeps_the_earlier_ones(out: Path) -> None:
    last = str(pointed_version(out))
    command(f"{out}@{last}", "--why", "labels of May")
    foreseen = command(f"{out}@{last}", "--why", "labels of June", "--dry-run")
    for shown in (foreseen, command(f"{out}@{last}", "--why", "labels of June")):
        assert "the record keeps the earlier reasons: labels of May\n" in shown
        assert "readers get vb, as before" in shown
    same = command(f"{out}@{last}", "--why", "labels of June")
    assert "the record keeps the earlier reasons: labels of May\n" in same
    record = withdrawal_of(out, last)
    assert record is not None
    assert (record.why, [one.why for one in record.earlier]) == ("labels of June", ["labels of May"])
    for number in range(2 * MAX_EARLIER):
        record = write_withdrawal(out, last, f"reason {number}")
    assert [one.why for one in record.earlier][-1] == f"reason {2 * MAX_EARLIER - 2}"
    assert withdrawal_of(out, last) == record
    assert len(record.earlier) == MAX_EARLIER


def continues(out: Path, name: str, base: str, **record: Any) -> None:
    place = out / "versions" / name / "manifest.json"
    increment = {"base": base, "outcome": "predict", "shards": {"old": 1}, "kept": ["probe"], **record}
    place.write_text(json.dumps(json.loads(place.read_text()) | {"incremental": increment}))


def test_versions_that_continue_from_it_are_named(
    out: Path, published: tuple[Path, Recipe], caplog: pytest.LogCaptureFixture
) -> None:
    last = str(pointed_version(out))
    continues(out, "vb", "va")
    continues(out, last, "vb")
    before = (out / "versions" / last / "README.md").read_text()
    shown = command(f"{out}@va", "--why", "labels of *May*")
    for name in ("vb", last):
        assert f"{name} continues from it" in shown
        card = (out / "versions" / name / "README.md").read_text()
        assert "> **Continues from `va`, which was withdrawn.** labels of \\*May\\*" in card
    assert "**Withdrawn.**" not in before
    assert "readers get" in shown
    assert "as before" in shown
    open_version(out)
    assert f"The version {last} continues from va, which was withdrawn: labels of *May*" in caplog.text
    here = published[1].output.model_copy(update={"path": str(out)})
    found = status_of(make_plan(published[1].model_copy(update={"output": here})))
    assert found["withdrawn_bases"] == {"va": "labels of *May*"}
    assert retract(out, last, "x").continued_by == ()
    assert retract(out, "va", "x").continued_by == ("vb",)
    command(f"{out}@va", "--undo")
    command(f"{out}@{last}", "--undo")
    assert (out / "versions" / last / "README.md").read_text() == before


def test_a_version_that_keeps_nothing_of_its_base_does_not_continue_from_it(out: Path) -> None:
    last = str(pointed_version(out))
    continues(out, last, "va", kept=[])
    continues(out, "vb", last)
    continues(out, "va", "vb")
    assert retract(out, "va", "x").continued_by == ()
    assert set(retract(out, last, "x").continued_by) == {"vb"}


def test_a_removed_version_is_not_withdrawn(out: Path) -> None:
    last = str(pointed_version(out))
    to = f"parquet:{out}/../t"
    assert CliRunner().invoke(app, ["export", f"{out}@va", "--to", to, "--executor", "local"]).exit_code == 0
    assert "va" in prune(out, 1).versions
    before = files(out)
    shown = " ".join(command(f"{out}@va", "--why", "x", code=2).split())
    assert f"The version va of 240 rows was removed from {out} on " in shown
    assert re.search("It was exported to parquet .*t: change these tables by hand", shown)
    assert files(out) == before
    assert pointed_version(out) == last


def test_the_card_and_the_description_say_it(out: Path) -> None:
    last = out / "versions" / (out / "CURRENT").read_text().strip()
    published = json.loads((last / "croissant.json").read_text()) | {"datePublished": "2020-02-29"}
    (last / "croissant.json").write_text(to_json(published))
    card, described = ((last / name).read_bytes() for name in ("README.md", "croissant.json"))
    old = out / "versions" / "va"  # as an earlier release published it
    (old / "README.md").unlink()
    manifest = json.loads((old / "manifest.json").read_text())
    del manifest["outputs"]
    (old / "manifest.json").write_text(json.dumps(manifest))
    command(f"{out}@{last.name}", "--why", "labels of <May>")
    command(f"{out}@va", "--why", "old")
    assert "> **Withdrawn.** labels of &lt;May&gt;\n\n# " in (last / "README.md").read_text()
    status = json.loads((last / "croissant.json").read_text())["creativeWorkStatus"]
    assert status == "Withdrawn: labels of <May>"
    assert not (old / "README.md").exists()
    command(f"{out}@{last.name}", "--undo")
    assert (last / "README.md").read_bytes() == card
    assert (last / "croissant.json").read_bytes() == described


def test_the_report_says_it(out: Path) -> None:
    assert Path(str(report_package.__file__)).with_name("report.html.j2").read_text().count(BODY) == 1
    last = str(pointed_version(out))
    report = out / "reports" / f"{last}.html"
    retract(out, last, "no report, no matter")
    assert not report.exists()
    report.parent.mkdir(exist_ok=True)
    report.write_text(PAGE)
    retract(out, last, "labels of <May>")
    retract(out, last, "labels of <b> & June")
    shown = report.read_text()
    assert shown.count("withdrawn.</strong>") == 1
    assert '<body>\n<p class="note"' in shown
    assert "withdrawn.</strong> labels of &lt;b&gt; &amp; June</p>" in shown
    undo_retraction(out, last)
    assert report.read_text() == PAGE
    report.unlink()
    report.symlink_to(out / "versions" / last / "README.md")
    retract(out, last, "a link is left alone")
    assert report.is_symlink()
    assert b"alert" not in report.read_bytes()


def test_an_older_version_changes_nothing_for_readers(out: Path) -> None:
    last = current_version(out)
    assert retract(out, "va", "x").current == last
    assert retract(out, str(last), "x").current == "vb"
    assert undo_retraction(out, "va").current == "vb"
    assert retract(out, "vb", "x").current == "va"


def test_undo_moves_nothing_that_it_had_not_moved(out: Path) -> None:
    last = str(current_version(out))
    (out / "CURRENT").write_text("va")  # the recipe of va was run again
    retract(out, last, "x")
    assert undo_retraction(out, last).current == "va"
    retract(out, "va", "x")
    retract(out, "va", "interrupted and given again")
    assert current_version(out) == last
    assert undo_retraction(out, "va").current == "va"  # though last was published later
    retract(out, "va", "x")
    (out / "CURRENT").write_text("vb")  # the recipe of vb was run again
    assert undo_retraction(out, "va").current == "vb"  # which was published later and is not its successor


def test_an_interruption_leaves_the_older_version(out: Path) -> None:
    last = str(current_version(out))
    write_withdrawal(out, last, "x")
    assert (pointed_version(out), current_version(out), open_version(out).name) == (last, "vb", "vb")


def test_an_interrupted_restoral_is_completed_by_the_same_command(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = str(current_version(out))
    retract(out, last, "x")
    with monkeypatch.context() as patch:
        patch.setattr(retraction, "remove_withdrawal", interrupt)
        with pytest.raises(KeyboardInterrupt):
            undo_retraction(out, last)
    assert (open_version(out).name, current_version(out)) == ("vb", "vb")
    assert undo_retraction(out, last).current == last
    assert (pointed_version(out), current_version(out)) == (last, last)


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def withdraw_all(out: Path) -> str:
    """Withdraw every version, and return the one that was current first."""
    last = str(pointed_version(out))
    for name in ("va", "vb", last):
        done = retract(out, name, "all wrong.")
    assert done.current is None
    return last


def test_no_version_stands(out: Path) -> None:
    last = withdraw_all(out)
    assert not (out / "CURRENT").exists()
    told = f"No version of {out} is current: of 3 published versions the latest, {last}, was withdrawn: all"
    for reader in (open_version, rowsieve.open, current_quarantine):
        with pytest.raises(InputError, match=re.escape(told)):
            reader(out)
    for words in (
        ["export", str(out), "--to", f"parquet:{out}/x"],
        ["diff", str(out), f"{out}@va"],
        ["retrain", "--dataset", str(out), "--executor", "local"],
        ["lineage", str(out)],
        ["groups", str(out)],
        ["explain", str(out), "0"],
    ):
        shown = CliRunner().invoke(app, words)
        assert shown.exit_code == 2, (words, shown.output)
        assert told in " ".join(shown.output.split()), words
    assert [entry["current"] for entry in history(out)] == [False] * 3
    assert open_version(f"{out}@va").name == "va"
    assert prune(out, 1).versions != ()
    assert len(history(out)) == 1


def test_where_none_stands_the_one_that_is_taken_back_is_current(out: Path) -> None:
    last = withdraw_all(out)
    assert undo_retraction(out, "va").current == pointed_version(out) == "va"
    assert undo_retraction(out, last).current == last


def test_where_none_stands_a_changed_recipe_publishes_from_nothing(
    out: Path, published: tuple[Path, Recipe]
) -> None:
    here = published[1].output.model_copy(update={"path": str(out)})
    recipe = published[1].model_copy(update={"output": here})
    last = withdraw_all(out)
    with pytest.raises(InputError, match=f"{last} was withdrawn: all wrong.*--undo"):
        run(recipe)
    found = status_of(make_plan(recipe))
    assert (found["published"], found["current"], found["withdrawn"]) == (True, False, "all wrong.")
    increment = recipe.incremental.model_copy(update={"base": "current"})
    done = run(recipe.model_copy(update={"incremental": increment, "seed": 4}))
    assert "incremental" not in done.manifest
    assert pointed_version(out) == done.version


def test_no_model_of_it_becomes_champion(out: Path) -> None:
    last = str(pointed_version(out))
    retract(out, last, "labels of May")
    before = files(out)
    words = ["--register", "model", "--promote-if", "worst_group_accuracy >= 0"]
    done = CliRunner().invoke(app, ["retrain", "--dataset", f"{out}@{last}", *words, "--executor", "local"])
    assert done.exit_code == 2, done.output
    assert "was withdrawn: labels of May" in " ".join(done.output.split())
    assert files(out) == before, "refused before the training"


def test_a_run_does_not_bring_it_back(out: Path, published: tuple[Path, Recipe]) -> None:
    recipe = published[1].model_copy(
        update={"output": published[1].output.model_copy(update={"path": str(out)})}
    )
    last = run(recipe).version
    retract(out, last, "labels of May")
    with pytest.raises(InputError, match=f"{last} was withdrawn: labels of May.*--undo"):
        run(recipe)
    assert current_version(out) == "vb"
    found = status_of(make_plan(recipe))
    assert (found["current"], found["withdrawn"]) == (False, "labels of May")
    increment = recipe.incremental.model_copy(update={"base": last})
    with pytest.raises(InputError, match="was withdrawn"):
        run(recipe.model_copy(update={"incremental": increment, "seed": 4}))
    shown = CliRunner().invoke(app, ["export", str(out / "versions" / last), "--to", f"parquet:{out}/x"])
    assert shown.exit_code == 2
    assert "was withdrawn" in shown.output
    assert run(recipe.model_copy(update={"seed": 4})).version == current_version(out) != "vb"


def nightly(folder: Path, *counts: int, base: str | None = "current", **sections: Any) -> Recipe:
    """A recipe over one file for each count, which continues from a base version."""
    table, first = spurious_table(600), 0
    (folder / "nights").mkdir(exist_ok=True)
    for index, count in enumerate(counts):
        pq.write_table(table.slice(first, count), folder / "nights" / f"n{index}.parquet")
        first += count
    changes = {"operators": OPERATORS, "incremental": {"base": base, "mode": "predict"}} | sections
    return Recipe.parse(recipe_for(folder / "nights", folder / "grown", **changes))


@pytest.mark.parametrize(
    "removed",
    [pytest.param(False, id="published"), pytest.param(True, id="removed", marks=pytest.mark.slow)],
)
def test_a_run_does_not_bring_it_back_from_another_base(removed: bool, tmp_path: Path) -> None:
    """Its rows, operators, columns and seed count: its name also depends on the base version."""
    out = tmp_path / "grown"
    names = [run(nightly(tmp_path, *counts)).version for counts in ((200,), (200, 100), (200, 100, 100))]
    for name, stands in ((names[2], names[1]), (names[1], names[0]), (names[0], None)):
        assert retract(out, name, f"labels of {name}.").current == stands
        if removed and name == names[2]:
            prune(out, 2)
        before = files(out)
        for base in ("current", None):
            again = nightly(tmp_path, 200, 100, 100, base=base)
            with pytest.raises(InputError, match=f"{names[2]} .*withdrawn: labels of {names[2]}"):
                run(again)
            found = status_of(make_plan(again))
            assert (found["withdrawn"], found["withdrawn_as"]) == (f"labels of {names[2]}.", names[2])
        assert files(out) == before, "nothing was computed"
        assert current_version(out) == stands
    assert run(nightly(tmp_path, 200, 100, 100, base=None, seed=4)).version == current_version(out)
    if not removed:  # what is asked for by name is published, and stands whatever else is withdrawn
        undo_retraction(out, names[2])
        full = nightly(tmp_path, 200, 100, 100, base=None)
        version = run(full).version
        retract(out, names[2], "x")
        assert run(full).version == version == current_version(out) != names[2]
    assert run(nightly(tmp_path, 200, 100, 100, 60)).version == current_version(out)


def upgrade(monkeypatch: pytest.MonkeyPatch, by: int = 1) -> None:
    monkeypatch.setattr(Weights, "version", Weights.version + by)


@pytest.mark.parametrize("removed", [False, True], ids=["published", "removed"])
def test_newer_methods_do_not_bring_it_back(
    removed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A withdrawal speaks of the rows and of what the recipe says about them, not of a release."""
    out, grown = tmp_path / "grown", nightly(tmp_path, 200, base=None)
    version, last = run(grown).version, run(grown.model_copy(update={"seed": 4})).version
    retract(out, version, "labels of May.")
    if removed:
        remove(out, version)
    before = files(out)
    upgrade(monkeypatch)
    made = make_plan(grown)
    assert made.version != version
    numbers = f"weights (version {Weights.version - 1} then, {Weights.version} now)"
    with pytest.raises(InputError, match=f"{version} again.*labels of May\\.") as refused:
        run(grown)
    assert f"Newer are only the methods of {numbers}." in str(refused.value)
    assert ("--method" in str(refused.value)) != removed
    found = status_of(made)
    assert (found["withdrawn"], found["withdrawn_as"]) == ("labels of May.", version)
    assert files(out) == before
    assert current_version(out) == last


def test_newer_methods_publish_where_the_method_was_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    out, grown = tmp_path / "grown", nightly(tmp_path, 200, base=None)
    version = run(grown).version
    command(f"{out}@{version}", "--why", "weights of rare rows")
    shown = command(f"{out}@{version}", "--why", "weights of rare rows", "--method")
    assert "a release with a newer version of one of its operators may publish the rows again" in shown
    record = withdrawal_of(out, version)
    assert record is not None
    assert (record.method, record.earlier) == (True, ())
    with pytest.raises(InputError, match="was withdrawn: weights of rare rows"):
        run(grown)
    with monkeypatch.context() as patch:
        upgrade(patch)
        mended = run(grown).version
    assert current_version(out) == mended != version
    assert f"all rows of the version {version}, which was withdrawn: weights of rare rows" in caplog.text
    command(f"{out}@{version}", "--why", "labels of May")
    upgrade(monkeypatch, 2)
    with pytest.raises(InputError, match="was withdrawn: labels of May"):
        run(grown)


def test_a_parameter_that_a_release_does_not_know_makes_no_other_recipe(tmp_path: Path) -> None:
    plan = make_plan(nightly(tmp_path, 200, base=None))
    record = plan.to_dict() | {"seed": 3, "outputs": plan.outputs}
    record["source"] = {"files": record["files"], "shards": record["shards"], "label": "y", "features": []}
    now = inputs_of(record)
    then = json.loads(json.dumps(record))
    last = then["operators"][-1]
    last["params"].pop("method" if "method" in last["params"] else next(iter(last["params"])))
    assert now.is_same_recipe(inputs_of(then).record)
    key = next(iter(last["params"]))
    last["params"][key] = "other"
    assert not now.is_same_recipe(inputs_of(then).record)
    assert not now.is_same_recipe(inputs_of(record | {"seed": 4}).record)
    assert not now.is_same_recipe(inputs_of(record | {"operators": record["operators"][1:]}).record)


def test_a_run_over_withdrawn_rows_and_others_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "grown"
    run(nightly(tmp_path, 200))
    second = run(nightly(tmp_path, 200, 100)).version
    retract(out, second, "labels of May.")
    told = f"The source holds all rows of the version {second}, which was withdrawn: labels of May. They"
    third = run(nightly(tmp_path, 200, 100, 60))
    assert caplog.text.count(told) == 1
    caplog.clear()
    (out / "CURRENT").write_text("../x")
    again = run(nightly(tmp_path, 200, 100, 60, base=None, seed=4))  # a damaged pointer stops no run
    assert caplog.text.count(told) == 1
    retract(out, again.version, "another seed")
    caplog.clear()
    assert run(nightly(tmp_path, 200, 100, 60)).version == third.version
    run(nightly(tmp_path, 200, 100, 60, 40))
    assert told not in caplog.text, "the version that readers get holds them already"


def test_a_record_of_an_earlier_release_counts(tmp_path: Path) -> None:
    out, grown = tmp_path / "grown", nightly(tmp_path, 200, base=None)
    version = run(grown).version
    retract(out, version, "labels")
    place, exact = out / FOLDER / f"{version}.json", make_plan(grown).inputs.exact
    old = {key: json.loads(place.read_text())[key] for key in ("version", "why", "at", "was_current")}
    for record in (old, old | {"earlier": [], "inputs": exact}):
        place.write_text(json.dumps(record))
        with pytest.raises(InputError, match="was withdrawn: labels"):
            run(nightly(tmp_path, 200, base="current"))
    remove(out, version)
    with pytest.raises(InputError, match="was withdrawn: labels"):
        run(nightly(tmp_path, 200, base="current"))


def test_status_and_plan_say_that_a_run_is_refused(tmp_path: Path) -> None:
    recipe, yaml = nightly(tmp_path, 200), tmp_path / "recipe.yaml"
    first = run(recipe).version
    grown = run(nightly(tmp_path, 200, 100)).version
    for name in (grown, first):
        retract(tmp_path / "grown", name, "labels")
    changes = {"operators": OPERATORS, "incremental": {"base": "current"}}
    yaml.write_text(json.dumps(recipe_for(tmp_path / "nights", tmp_path / "grown", **changes)))
    for verb in ("status", "plan"):
        shown = " ".join(CliRunner().invoke(app, [verb, str(yaml)]).output.split())
        assert f"a run is refused: {grown} has the same rows, operators and seed, and was withdrawn" in shown
        record = json.loads(CliRunner().invoke(app, [verb, str(yaml), "--json"]).stdout)
        assert (record["withdrawn"], record["withdrawn_as"]) == ("labels", grown)
    done = CliRunner().invoke(app, ["run", str(yaml)])
    assert done.exit_code == 2, done.output
    undo = f"rowsieve retract {tmp_path}/grown@{grown} --undo"
    assert undo in " ".join(done.output.split())


def test_pruning_removes_withdrawn_versions_and_keeps_the_record(out: Path) -> None:
    last = str(current_version(out))
    retract(out, last, "x")
    assert prune(out, 2).versions == (last,)
    assert current_version(out) == "vb"
    assert (out / FOLDER / f"{last}.json").exists()


def test_what_is_refused(out: Path, tmp_path: Path) -> None:
    last, before = str(current_version(out)), files(out)
    assert "give the reason" in command(f"{out}@{last}", code=2)
    assert f"name the version; the current one is {out}@{last}" in command(str(out), "--why", "x", code=2)
    assert "Did you mean" in command(f"{out}@{last[:-1]}", "--why", "x", code=2)
    assert "is not withdrawn" in command(f"{out}@{last}", "--undo", code=2)
    assert "neither --why nor --models" in command(f"{out}@{last}", "--undo", "--why", "x", code=2)
    assert "characters" in command(f"{out}@{last}", "--why", "x" * (MAX_REASON + 1), code=2)
    assert "characters" in command(f"{out}@{last}", "--why", " ", code=2)
    shutil.copytree(out / "versions" / last, tmp_path / last)
    assert "is a copy" in command(str(tmp_path / last), "--why", "x", code=2)
    assert files(out) == before


@pytest.mark.parametrize(
    "change",
    [
        {"version": "v2"},
        {"version": "v1/../v2"},
        {"why": ""},
        {"why": "x" * (MAX_REASON + 1)},
        {"why": ["x"]},
        {"at": "1"},
        {"was_current": 1},
        {"successor": "../v2"},
        {"more": "x"},
        {"method": 1},
        {"data": {"rows": "x", "settings": "0" * 32, "operators": {}}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_forged_record_is_an_error(change: dict[str, Any], tmp_path: Path) -> None:
    record = {"version": "v1", "why": "mislabelled", "at": 1.0, "was_current": True}
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "v1.json").write_text(json.dumps(record))
    found = withdrawal_of(tmp_path, "v1")
    assert found is not None
    assert found.why == "mislabelled"
    (tmp_path / FOLDER / "v1.json").write_text(json.dumps(record | change))
    with pytest.raises(InputError, match=r"v1\.json says that the version was withdrawn, but cannot be read"):
        withdrawal_of(tmp_path, "v1")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', "[" * 100_000])
def test_a_damaged_record_is_an_error(text: str, out: Path) -> None:
    last = str(current_version(out))
    (out / FOLDER).mkdir()
    (out / FOLDER / f"{last}.json").write_text(text)
    for reader in (open_version, history):
        with pytest.raises(InputError, match=f"{last}.json says that the version was withdrawn, but cannot"):
            reader(out)
    assert retract(out, last, "anew").current == "vb"
    (out / FOLDER / f"{last}.json").unlink()
    (out / "CURRENT").write_text(last)
    (out / FOLDER / f"{last}.json").symlink_to("/etc/hostname")
    with pytest.raises(InputError, match="cannot be read"):
        open_version(out)


def test_models_of_another_output_are_left_alone(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version's name says nothing of its output, and whoever can write to an output can choose it."""
    last, uri = str(current_version(out)), f"sqlite:///{tmp_path}/server.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    mlflow = MlflowClient(uri, uri)
    owners = {"ours": str(out.resolve()), "theirs": "/other/out", "untold": None}
    runs = {}
    for name, owner in owners.items():
        tags = {VERSION_TAG: last} | ({OUTPUT_TAG: owner} if owner else {})
        runs[name] = mlflow.create_run("0", tags=tags).info.run_id
        mlflow.create_registered_model(name)
        mlflow.create_model_version(name, str(out), run_id=runs[name], tags={VERSION_TAG: "va"})
        mlflow.create_model_version(name, str(out), run_id=runs[name], tags={VERSION_TAG: last})
        mlflow.set_registered_model_alias(name, "champion", "2")
    shown = command(f"{out}@{last}", "--why", "x", "--models")
    assert "MLflow also has this version in /other/out, which is left alone" in shown
    assert "theirs" not in shown
    champions = {name: mlflow.get_model_version_by_alias(name, "champion").version for name in owners}
    assert {name: str(number) for name, number in champions.items()} == {
        "ours": "1",
        "theirs": "2",
        "untold": "1",
    }
    for name, run_id in runs.items():
        assert (WITHDRAWN_TAG in mlflow.get_run(run_id).data.tags) == (name != "theirs")
        assert (WITHDRAWN_TAG in mlflow.get_model_version(name, "2").tags) == (name != "theirs")


def test_models_are_told_and_aliases_move(
    out: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    last, uri = str(current_version(out)), f"sqlite:///{out}/mlflow.db"
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    mlflow = MlflowClient(uri, uri)
    mlflow.create_registered_model("churn")
    ran = mlflow.create_run("0", tags={VERSION_TAG: last}).info.run_id
    for version in ("va", "vb", last):
        mlflow.create_model_version("churn", str(out), tags={VERSION_TAG: version})
    mlflow.set_registered_model_alias("churn", "champion", "3")
    retract(out, "vb", "x")
    before = {path: Path(path).read_bytes() for path in files(out)}
    shown = command(f"{out}@{last}", "--why", "labels of May", "--models", "--dry-run")
    assert shown.startswith("Nothing is changed. Without --dry-run:")
    assert "readers get va from now on" in shown
    assert "champion now points to version 1" in shown
    after = {path: Path(path).read_bytes() for path in files(out)}
    changed = {path for path in before | after if before.get(path) != after.get(path)}
    assert all("mlflow.db" in path for path in changed)  # SQLite's own pages, at most
    assert WITHDRAWN_TAG not in mlflow.get_model_version("churn", "3").tags
    assert str(mlflow.get_model_version_by_alias("churn", "champion").version) == "3"
    shown = command(f"{out}@{last}", "--why", "labels of May")
    assert "model churn 3 was trained on it; champion points to it" in shown
    assert "--models moves aliases" in shown
    assert mlflow.get_model_version("churn", "3").tags[WITHDRAWN_TAG] == "labels of May"
    assert mlflow.get_run(ran).data.tags[WITHDRAWN_TAG] == "labels of May"
    with caplog.at_level(logging.WARNING, "rowsieve"):
        assert _artifact(mlflow, "models:/churn@champion")[1] == _artifact(mlflow, "models:/churn/3")[1]
    assert caplog.text.count(f"was trained on the version {last}, which was withdrawn: labels of May") == 2
    assert str(mlflow.get_model_version_by_alias("churn", "champion").version) == "3"
    shown = command(f"{out}@{last}", "--why", "labels of May", "--models")
    assert "champion now points to version 1" in shown
    assert str(mlflow.get_model_version_by_alias("churn", "champion").version) == "1"
    undo_retraction(out, last)
    assert WITHDRAWN_TAG not in mlflow.get_model_version("churn", "3").tags
    assert WITHDRAWN_TAG not in mlflow.get_run(ran).data.tags
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert "MLflow at http://127.0.0.1:9 was not told" in command(f"{out}@{last}", "--why", "x", code=2)
    assert current_version(out) == "va"
