"""The contract of run plugins, checked on every one, and the moments at which the runner calls them."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from engine.cli.output import show_status
from engine.core.errors import Exit, InputError, LockedError, RowsieveError
from engine.core.events import Event
from engine.plan.planner import make_plan
from engine.recipe.recipe import ExportSection, Recipe
from engine.runs.plugins import PLUGINS, RunContext, RunPlugin
from engine.runs.plugins.journal import ERROR, PROGRESS, read_journal
from engine.runs.run_record import run_values
from engine.runs.runner import run
from engine.runs.status import status_of
from engine.storage.withdrawals import current_version
from tests.data import small_recipe

EVERY_PLUGIN = pytest.mark.parametrize("kind", PLUGINS, ids=lambda kind: kind.name)
MOMENTS = ("planned", "operator_started", "operator_progressed", "operator_finished", "failed", "closed")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A recipe that has run, so that a version with another prefix costs only its publication."""
    recipe = small_recipe(tmp_path_factory.mktemp("plugins"))
    run(recipe)
    return recipe


@pytest.fixture
def recipe(base: Recipe, request: pytest.FixtureRequest) -> Recipe:
    """A recipe of a version that nobody has published yet."""
    prefix = "p" + "".join(c for c in request.node.name.lower() if c.isalnum()) + "_"
    return base.model_copy(update={"output": base.output.model_copy(update={"prefix": prefix})})


def broken(*_: Any) -> Any:
    raise ValueError("this plugin is broken")


def record_of(recipe: Recipe, version: str) -> dict[str, Any]:
    path = Path(recipe.output.path) / "runs" / f"{version}.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@EVERY_PLUGIN
def test_a_plugin_that_fails_after_publishing_keeps_nothing_from_being_current(
    kind: type[RunPlugin], recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(recipe)
    with monkeypatch.context() as patched:
        patched.setattr(kind, "published", broken)
        with pytest.raises(RowsieveError, match=rf"(?s){kind.name} failed.*same command") as caught:
            run(recipe)
    assert caught.value.exit_code == Exit.CRASH
    assert plan.version in str(caught.value)
    assert current_version(plan.output) == plan.version
    (failed,) = status_of(plan)["unfinished_steps"]
    assert (failed["name"], failed["status"], failed["exit_code"]) == (kind.name, "failed", 1)
    assert "this plugin is broken" in failed["error"]
    others = [step for step in record_of(recipe, plan.version)["steps"] if step["name"] != kind.name]
    assert {step["status"] for step in others} == {"done"}

    again = run(recipe)
    assert (again.version, again.reused) == (plan.version, True)
    assert status_of(plan)["unfinished_steps"] == []
    assert status_of(plan)["last_error"] is None


@EVERY_PLUGIN
def test_a_plugin_that_fails_at_any_other_moment_never_ends_the_run(
    kind: type[RunPlugin], recipe: Recipe, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for moment in MOMENTS:
        monkeypatch.setattr(kind, moment, broken)
    with caplog.at_level("WARNING", "rowsieve"):
        result = run(recipe)
    assert current_version(make_plan(recipe).output) == result.version
    assert any(kind.name in message and "closed" in message for message in caplog.messages)


@EVERY_PLUGIN
def test_a_plugin_hides_no_error_of_the_run(
    kind: type[RunPlugin], recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    for moment in MOMENTS:
        monkeypatch.setattr(kind, moment, broken)
    monkeypatch.setattr("engine.runs.runner.publish", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(recipe)


@EVERY_PLUGIN
@pytest.mark.parametrize("fails", [False, True])
def test_a_plugin_is_closed_once_after_everything_else(
    kind: type[RunPlugin], fails: bool, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []

    def listening(moment: str, method: Any) -> Any:
        def call(self: RunPlugin, *values: Any) -> None:
            heard.append(moment)
            method(self, *values)

        return call

    for moment in (*MOMENTS, "published"):
        monkeypatch.setattr(kind, moment, listening(moment, getattr(kind, moment)))
    if fails:
        monkeypatch.setattr("engine.runs.runner.publish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(recipe)
    else:
        run(recipe)
    assert heard[0] == "planned"
    assert heard[-1] == "closed"
    assert [heard.count(moment) for moment in ("planned", "closed")] == [1, 1]
    assert heard.count("published") == (0 if fails else 1)
    assert heard.count("failed") == int(fails)
    if fails:
        assert heard[-2] == "failed"


class Recorder(RunPlugin):
    """Keeps the moments that it hears."""

    name = "recorder"

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.current: str | None = None

    def planned(self, run: RunContext) -> None:
        self.heard.append(f"planned {run.plan.version}")

    def operator_started(self, run: RunContext, event: Event) -> None:
        self.heard.append(f"started {event.operator}")

    def operator_finished(self, run: RunContext, event: Event) -> None:
        self.heard.append(f"finished {event.operator}")

    def published(self, run: RunContext) -> None:
        self.current = current_version(run.plan.output)
        self.heard.append("published")

    def closed(self, run: RunContext) -> None:
        self.heard.append("closed")


def test_moments_come_in_order_and_the_version_is_current_when_it_is_published(tmp_path: Path) -> None:
    recorder = Recorder()
    result = run(small_recipe(tmp_path), plugins=[recorder])
    names = [operator.name for operator in result.operators]
    steps = [f"{verb} {name}" for name in (*names, "publish") for verb in ("started", "finished")]
    heard = [moment for moment in recorder.heard if not moment.endswith(" local")]
    assert heard == [f"planned {result.version}", *steps, "published", "closed"]
    assert recorder.current == result.version


def test_several_steps_that_fail_are_all_named_and_the_first_known_exit_code_counts(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise InputError("the table has other columns.")

    by_name = {kind.name: kind for kind in PLUGINS}
    monkeypatch.setattr(by_name["report"], "published", broken)
    monkeypatch.setattr(by_name["exports"], "published", refused)
    with pytest.raises(InputError, match=r"report failed: ValueError: .*exports failed: the table") as caught:
        run(recipe)
    assert caught.value.exit_code == Exit.BAD_INPUT


def test_a_step_that_was_interrupted_is_shown_as_pending(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    by_name = {kind.name: kind for kind in PLUGINS}
    with monkeypatch.context() as patched:
        patched.setattr(by_name["exports"], "published", stopped)
        with pytest.raises(KeyboardInterrupt):
            run(recipe)
    plan = make_plan(recipe)
    assert current_version(plan.output) == plan.version
    error = read_journal(plan.output, ERROR, plan.version)
    assert error is not None
    assert error["error"] == "stopped"
    pending = [step["name"] for step in status_of(plan)["unfinished_steps"]]
    assert pending == ["exports", "training", "tracking"]
    run(recipe)
    assert status_of(plan)["unfinished_steps"] == []


def test_the_command_says_what_failed_and_status_shows_it(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import yaml
    from typer.testing import CliRunner

    from engine.cli.app import app

    by_name = {kind.name: kind for kind in PLUGINS}
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(recipe.model_dump(mode="json", exclude_none=True)))
    with monkeypatch.context() as patched:
        patched.setattr(by_name["report"], "published", broken)
        ended = CliRunner().invoke(app, ["run", str(file)])
    assert ended.exit_code == Exit.CRASH
    assert "report failed: ValueError: this plugin is broken" in ended.output
    shown = " ".join(CliRunner().invoke(app, ["status", str(file)]).output.split())
    assert "report failed: ValueError: this plugin is broken. Run the same command again" in shown
    assert CliRunner().invoke(app, ["run", str(file)]).exit_code == Exit.DONE
    assert "report failed" not in CliRunner().invoke(app, ["status", str(file)]).output


@pytest.mark.parametrize("name", [PROGRESS, ERROR])
@pytest.mark.parametrize("damage", ["missing", "wrong type", "list"])
def test_status_takes_a_damaged_journal_as_missing(name: str, damage: str, recipe: Recipe) -> None:
    plan = make_plan(recipe)
    path = Path(recipe.output.path) / "runs" / name
    whole: dict[str, Any] = {"version": plan.version, "error": "it failed", "exit_code": 2, "at": 1.0}
    if name == PROGRESS:
        whole = {"version": plan.version, **asdict(Event("start", "probe")), "at": 1.0}
    path.write_text(json.dumps(whole))
    assert read_journal(plan.output, name, plan.version) == whole
    for key in whole:
        damaged: Any = {
            "missing": {k: v for k, v in whole.items() if k != key},
            "wrong type": whole | {key: []},
        }
        path.write_text(json.dumps(damaged.get(damage, [whole])))
        assert read_journal(plan.output, name, plan.version) is None
    show_status(status_of(plan))
    path.unlink()


def test_a_repetition_keeps_the_values_of_the_run_that_published(recipe: Recipe) -> None:
    version = run(recipe).version
    first = record_of(recipe, version)
    for _ in range(2):
        run(recipe)
        record = record_of(recipe, version)
        kept = ("seconds", "mlflow_run_id", "parts_taken_over")
        assert {key: record[key] for key in kept} == {key: first[key] for key in kept}
        assert record["repetition"]["seconds"] != first["seconds"]
        assert record["repetition"]["at"] > 0
    assert "repetition" not in first


def test_an_mlflow_run_that_the_first_run_lacked_is_taken_from_a_repetition() -> None:
    now = {"seconds": 2.0, "mlflow_run_id": "b", "parts_taken_over": 0}
    found = run_values(now, {"seconds": 1.0, "mlflow_run_id": None, "parts_taken_over": 3}, 9.0)
    assert found == {
        "seconds": 1.0,
        "mlflow_run_id": "b",
        "parts_taken_over": 3,
        "repetition": now | {"at": 9.0},
    }


def test_a_failed_export_that_the_recipe_no_longer_names_stays_in_the_record(
    recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    failing = ExportSection.model_validate({"format": "delta", "path": str(tmp_path / "file" / "table")})
    working = ExportSection.model_validate({"format": "parquet", "path": str(tmp_path / "copy")})

    def exporting(*sections: ExportSection) -> Recipe:
        return recipe.model_copy(update={"output": recipe.output.model_copy(update={"export": sections})})

    with pytest.raises(InputError, match="exports failed"):
        run(exporting(failing, working))
    plan = make_plan(exporting(failing, working))
    assert status_of(plan)["dropped_exports"] == []
    (failed,) = record_of(recipe, plan.version)["failed_exports"]
    assert (failed["format"], failed["path"]) == ("delta", failing.path)
    for _ in range(2):
        run(exporting(working))
        found = status_of(make_plan(exporting(working)))
        assert (found["dropped_exports"], found["unfinished_steps"]) == ([failed], [])
    show_status(found)
    assert "an earlier export failed" in capsys.readouterr().out


@pytest.mark.parametrize("ours", [True, False])
def test_the_journal_of_another_run_is_left_alone(
    ours: bool, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that has lost its output notes nothing there; one that waits for a model's lock does."""
    plan = make_plan(recipe)

    def lose(*_: object) -> None:
        if not ours:
            monkeypatch.setattr("engine.storage.lease.base.newest_token", lambda folder: 10**6)
        raise LockedError("it belongs to another run")

    monkeypatch.setattr("engine.runs.runner.publish", lose)
    with pytest.raises(LockedError):
        run(recipe)
    assert (read_journal(plan.output, ERROR, plan.version) is not None) == ours
