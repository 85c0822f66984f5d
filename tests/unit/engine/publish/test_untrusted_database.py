"""A shared output's database and waiting records lead no run to files or servers outside the output."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mlflow.tracking._tracking_service.utils import _artifact_repos_cache
from typer.testing import CliRunner

from engine.cli.app import app
from engine.core.errors import InputError
from engine.publish import lineage
from engine.publish.mlflow_outbox import (
    GROUPS_TABLE,
    RECORD_TAG,
    TEXTS,
    Record,
    deliver,
    experiment_id,
    pending,
    pending_folder,
)
from engine.publish.own_artifacts import check_artifacts, download_artifacts
from engine.publish.record_delivery import DirectSender
from engine.publish.tracking import VERSION_TAG, Tracker, client
from engine.training import registration
from engine.training.serving import stored_models
from tests.tables import forge_journal

ID, OTHER = "a" * 32, "b" * 32


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A database with one run of our own and one without the record's tag; making it takes seconds."""
    out = tmp_path_factory.mktemp("database")
    server = client(out)
    made = server.create_run(experiment_id(server, "rowsieve", out), tags={RECORD_TAG: ID})
    return out / "mlflow.db", str(made.info.run_id)


@pytest.fixture
def shared(
    database: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, str, Path]:
    """An output with a run of its own, the run's id, and the folder of a victim."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    _artifact_repos_cache.clear()  # it goes by runs, and the tests' databases are copies with the same run
    out, victim = tmp_path / "out", tmp_path / "victim"
    out.mkdir()
    victim.mkdir()
    shutil.copy(database[0], out / "mlflow.db")
    experiment = (out / "mlartifacts").as_uri()
    update(out, "update experiments set artifact_location = ?", experiment)
    update(out, "update runs set artifact_uri = ?", f"{experiment}/{database[1]}/artifacts")
    return out, database[1], victim


def update(out: Path, statement: str, *values: str) -> None:
    with closing(sqlite3.connect(out / "mlflow.db")) as connection, connection:
        connection.execute(statement, values)


def waiting(out: Path, **values: Any) -> Record:
    """Write a record as an attacker does."""
    pending_folder(out).mkdir(parents=True)
    fields = {"id": ID, "experiment": "rowsieve", "name": "x", "start_ms": 1, "end_ms": 2} | values
    (pending_folder(out) / f"{fields['id']}.json").write_text(json.dumps({"status": "FINISHED"} | fields))
    return Record(**fields)


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def sync(out: Path) -> str:
    return CliRunner().invoke(app, ["lineage", "--sync", "--output", str(out)]).output


def test_a_record_of_rowsieve_is_delivered(shared: tuple[Path, str, Path]) -> None:
    out, run_id, _ = shared
    texts = dict.fromkeys(sorted(TEXTS), "text")
    waiting(out, run_id=run_id, texts=texts, tables={GROUPS_TABLE: '{"columns": [], "data": []}'})
    assert "1 records delivered" in sync(out)
    assert below(out / "mlartifacts" / run_id / "artifacts") == sorted([*TEXTS, GROUPS_TABLE])


@pytest.mark.parametrize("name", [".bashrc", ".ssh/authorized_keys", "../../../mlflow.db", "recipe.yaml/x"])
@pytest.mark.parametrize("kind", ["texts", "tables"])
def test_only_artifacts_of_rowsieve_are_written(
    kind: str, name: str, shared: tuple[Path, str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    out, run_id, _ = shared
    waiting(out, run_id=run_id, **{kind: {name: "payload"}})
    with caplog.at_level("WARNING", "rowsieve"):
        assert "1 records delivered" in sync(out)
    assert below(out / "mlartifacts") == []
    assert repr(name) in "".join(caplog.messages)


def place_of(kind: str, out: Path, victim: Path) -> str:
    """Places outside the artifacts of an output, and spellings of them."""
    return {
        "uri": victim.as_uri(),
        "path": str(victim),
        "dots": f"{(out / 'mlartifacts').as_uri()}/../../victim",
        "escaped": f"{(out / 'mlartifacts').as_uri()}/%2e%2e/%2e%2e/victim",
        "host": f"file://host{out / 'mlartifacts'}",
        "zero": f"{(out / 'mlartifacts').as_uri()}/%00",
        "relative": "mlartifacts",
        "server": "http://127.0.0.1:9/loot",
        "bucket": "s3://loot/x",
        "neighbour": f"{(out / 'mlartifacts').as_uri()}-of-others",
    }[kind]


KINDS = ["uri", "path", "dots", "escaped", "host", "zero", "relative", "server", "bucket", "neighbour"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", ["runs.artifact_uri", "experiments.artifact_location"])
def test_a_record_is_not_delivered_outside(column: str, kind: str, shared: tuple[Path, str, Path]) -> None:
    out, run_id, victim = shared
    place = place_of(kind, out, victim)
    table, name = column.split(".")
    update(out, f"update {table} set {name} = ?", place)
    waiting(out, run_id=run_id, texts={"plan.json": "payload"})
    shown = " ".join(sync(out).split())
    for part in ("which is not in", "MLFLOW_TRACKING_URI", "aside"):
        assert part in shown
    assert below(victim) == []
    assert len(pending(out)) == 1


@pytest.mark.parametrize("kind", ["server", "uri"])
def test_a_run_uploads_nothing_elsewhere(
    kind: str, shared: tuple[Path, str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    out, _, victim = shared
    update(out, "update experiments set artifact_location = ?", place_of(kind, out, victim))
    tracker = Tracker(Record(OTHER, "rowsieve", "x", 1, texts={"plan.json": "text"}), DirectSender(out))
    with caplog.at_level("WARNING", "rowsieve"):
        tracker.end("FINISHED")
    assert "which is not in" in caplog.text
    assert "does not answer" not in caplog.text
    assert below(victim) == []
    assert [record.id for record in pending(out)] == [OTHER]


@pytest.mark.parametrize("at", ["plan.json", "", "../.."])
def test_nothing_is_written_behind_links(at: str, shared: tuple[Path, str, Path]) -> None:
    out, run_id, victim = shared
    (victim / "plan.json").write_text("precious")
    artifacts = out / "mlartifacts" / run_id / "artifacts"
    place = {"": artifacts, "../..": out / "mlartifacts"}.get(at, artifacts / at)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(victim / "plan.json" if at == "plan.json" else victim)
    record = waiting(out, run_id=run_id, texts={"plan.json": "payload"})
    with pytest.raises(InputError, match=r"is a link|not in"):
        deliver(record, client(out), out)
    assert (victim / "plan.json").read_text() == "precious"
    assert below(victim) == ["plan.json"]


@pytest.mark.parametrize("ending", ["", "-journal", "-wal", "-shm"])
def test_the_database_is_no_link(ending: str, shared: tuple[Path, str, Path]) -> None:
    out, _, victim = shared
    (victim / "x").write_bytes(b"")
    file = out / f"mlflow.db{ending}"
    file.unlink(missing_ok=True)
    file.symlink_to(victim / "x")
    with pytest.raises(InputError, match=f"mlflow.db{ending} is a link"):
        client(out)


@pytest.mark.parametrize("command", ["versions", "lineage", "predict", "sync"])
def test_a_forged_journal_removes_no_file(command: str, shared: tuple[Path, str, Path]) -> None:
    out, _, victim = shared
    (victim / "keys").write_text("precious")
    forge_journal(out / "mlflow.db", victim / "keys")
    waiting(out)
    words = {
        "versions": ["versions", str(out), "prune", "--keep", "1"],
        "lineage": ["lineage", "v1", "--output", str(out)],
        "predict": ["predict", "models:/m/1", "rows.csv", str(out / "x"), "--tracking", str(out)],
        "sync": ["lineage", "--sync", "--output", str(out)],
    }[command]
    shown = CliRunner().invoke(app, words)
    assert (victim / "keys").read_text() == "precious"
    if command in ("predict", "sync"):  # the others find no version, and may not ask MLflow
        assert "mlflow.db-journal names another file" in " ".join(shown.output.split())


def test_a_database_with_views_or_triggers_is_not_opened(shared: tuple[Path, str, Path]) -> None:
    """A view without an end would hold up the reader for ever, in code that no signal interrupts."""
    out, _, _ = shared
    update(out, "create trigger t after insert on tags begin update runs set artifact_uri = '/'; end")
    with pytest.raises(InputError, match="trigger 't'"):
        client(out)
    update(out, "drop trigger t")
    update(out, "alter table tags rename to former")
    update(out, "create view tags as with recursive c(x) as (select 1 union all select x from c) select 1")
    with pytest.raises(InputError, match="view 'tags'"):
        client(out)


@pytest.mark.parametrize(
    "change",
    [
        "update runs set start_time = 'soon'",
        "update runs set start_time = null",
        "update alembic_version set version_num = 'other'",
    ],
)
def test_what_mlflow_cannot_read_is_one_paragraph(change: str, shared: tuple[Path, str, Path]) -> None:
    out, run_id, _ = shared
    update(out, "insert into tags values (?, ?, ?)", VERSION_TAG, "v1", run_id)
    update(out, change)
    with pytest.raises(InputError, match=r"does not say which runs and models.*mlflow db upgrade"):
        lineage._recorded("v1", out)
    if "alembic" in change:
        with pytest.raises(InputError, match="does not give this model"):
            stored_models.download("models:/m/1", out / "x", out)


def test_a_record_does_not_choose_a_run_of_others(shared: tuple[Path, str, Path]) -> None:
    out, run_id, _ = shared
    server = client(out)
    for foreign in (run_id, "c" * 32, "../x"):  # another record's run, none, no id at all
        record = Record(OTHER, "rowsieve", "x", 1, params={"k": foreign}, run_id=foreign)
        assert deliver(record, server, out) != run_id
        update(out, "delete from tags where value = ?", OTHER)
    assert server.get_run(run_id).data.params == {}


@pytest.mark.parametrize(
    "values",
    [{"id": "a' or 1=1"}, {"id": "a"}, {"texts": ["x"]}, {"metrics": {"m": "x"}}, {"start_ms": "soon"}],
)
def test_what_is_no_record_is_ignored(values: dict[str, Any], tmp_path: Path) -> None:
    waiting(tmp_path, **values)
    assert pending(tmp_path) == []


def test_a_model_is_read_from_the_output_alone(shared: tuple[Path, str, Path], tmp_path: Path) -> None:
    out, run_id, victim = shared
    (victim / "model").mkdir()
    (victim / "model" / "secret").write_text("secret")
    inside = out / "mlartifacts" / run_id / "artifacts" / "model"
    inside.mkdir(parents=True)
    (inside / "MLmodel").write_text("model")
    server, scratch = client(out), tmp_path / "scratch"
    found = download_artifacts(server, run_id, "model", scratch, out)
    assert (found, below(found)) == (scratch / "model", ["MLmodel"])
    assert stored_models.download(f"runs:/{run_id}", tmp_path / "second", out).name == "model"
    with pytest.raises(InputError, match="not below the artifacts"):
        download_artifacts(server, run_id, "../../..", scratch, out)
    with pytest.raises(InputError, match=f"{run_id} has no model at 'none'.*retrain` with --register NAME"):
        stored_models.download(f"runs:/{run_id}/none", tmp_path / "third", out)
    update(out, "update runs set artifact_uri = ?", victim.as_uri())
    with pytest.raises(InputError, match="which is not in"):
        stored_models.download(f"runs:/{run_id}", tmp_path / "fourth", out)
    server.create_registered_model("m")
    number = server.create_model_version("m", str(inside), run_id).version
    server.set_registered_model_alias("m", "champion", number)
    with pytest.raises(InputError, match="which is not in"):
        stored_models.champion_of(server, "m", tmp_path / "fifth", out)
    assert "secret" not in "".join(below(tmp_path / "scratch"))


@pytest.mark.parametrize("kind", ["server", "uri"])
def test_a_model_is_registered_in_the_output_alone(kind: str, shared: tuple[Path, str, Path]) -> None:
    out, _, victim = shared
    update(
        out,
        "update experiments set name = 'rowsieve-train', artifact_location = ? where name = 'rowsieve'",
        place_of(kind, out, victim),
    )
    result = SimpleNamespace(version=SimpleNamespace(output=out, name="v1"), folder=victim)
    with pytest.raises(InputError, match="which is not in"):
        registration.register(cast(Any, result), cast(Any, None), "m", seed=0)
    assert below(victim) == []


def test_a_model_is_not_registered_where_the_place_changes_after_its_check(
    shared: tuple[Path, str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can write the database may do so at any time: the place of the run itself is checked too."""
    out, _, victim = shared
    update(out, "update experiments set name = 'rowsieve-train' where name = 'rowsieve'")

    def checked(*given: Any) -> str:
        found = experiment_id(*given)
        update(out, "update experiments set artifact_location = ?", victim.as_uri())
        return found

    monkeypatch.setattr(registration, "experiment_id", checked)
    monkeypatch.setattr(registration, "_log", lambda *_: pytest.fail("something was logged"))
    result = SimpleNamespace(version=SimpleNamespace(output=out, name="v1"), folder=victim)
    with pytest.raises(InputError, match="which is not in"):
        registration.register(cast(Any, result), cast(Any, None), "m", seed=0)
    assert below(victim) == []


def test_a_server_that_the_operator_names_is_trusted(
    shared: tuple[Path, str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, run_id, victim = shared
    update(out, "update runs set artifact_uri = ?", victim.as_uri())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{out / 'mlflow.db'}")
    assert check_artifacts(client(out), run_id, out) is None
    deliver(Record(ID, "rowsieve", "x", 1, texts={"plan.json": "text"}, run_id=run_id), client(out), out)
    assert below(victim) == ["plan.json"]
