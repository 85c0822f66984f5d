"""OpenLineage: events of runs, trainings and exports, received over HTTP or kept until they are."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from connectors.tables.export import open_export
from engine.cli.app import app
from engine.core.errors import InputError
from engine.execution.local_executor import LocalExecutor
from engine.publish import lineage_outbox, run_process
from engine.publish.export import export
from engine.publish.lineage import sync_records
from engine.publish.lineage_events import Datasets, begin, finish, recorded_job
from engine.publish.lineage_facets import (
    PRODUCER,
    catalog_name,
    dataset_name,
    drift_tests,
    model_name,
    promotion_tests,
    quality_facet,
)
from engine.publish.lineage_outbox import (
    abort_killed,
    is_configured,
    keep,
    keep_open,
    lineage_folder,
    outbox_of,
)
from engine.publish.results import RunResult
from engine.publish.run_process import has_ended
from engine.recipe.trainers import parse_params
from engine.runs.history import remove
from engine.runs.retraction import retract, undo_retraction
from engine.runs.runner import run
from engine.storage.lease.folder import FolderLease
from engine.training.retrain import RetrainOptions, retrain
from engine.training.training_run import TrainSpec
from tests.data import free_port, small_recipe, spurious_table, write_shards
from tests.unit.engine.publish.event_forms import build_event
from tests.unit.engine.publish.published_schemas import check_received

pytest.importorskip("openlineage.client", reason="needs openlineage-python, of rowsieve[openlineage]")
FINAL = {"COMPLETE", "FAIL", "ABORT"}


class Endpoint(ThreadingHTTPServer):
    """An endpoint that keeps what it receives, for :func:`check_received` at the end of the test."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.events: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Any = self.server
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = getattr(server, "refused", {}).get(event["run"]["runId"], 201)
        if status == 201:
            server.events.append(event)
            server.headers.append(dict(self.headers))
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with Endpoint() as server:
        _configure(monkeypatch, server.server_address[1])
        yield server
        server.shutdown()
    check_received(server.events)


def _configure(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    settings = {"TYPE": "http", "URL": f"http://127.0.0.1:{port}", "RETRY": '{"total": 0}'}
    for name, value in settings.items():
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name}", value)


def _check_form(event: dict[str, Any]) -> None:
    """Check an event by the client's classes, and that every facet names Rowsieve as its producer."""
    build_event(event)
    facets = {
        key: facet for key, facet in event["run"]["facets"].items() if key != "tags"
    }  # the client's own
    datasets = [*event["inputs"], *event["outputs"]]
    holders = [facets, event["job"]["facets"]]
    holders += [one.get(key) or {} for one in datasets for key in ("facets", "inputFacets", "outputFacets")]
    assert {facet["_producer"] for holder in holders for facet in holder.values()} == {PRODUCER}


def _of_run(events: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        found.setdefault(event["run"]["runId"], []).append(event)
    return list(found.values())


@pytest.fixture
def curated(
    endpoint: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> tuple[RunResult, list[list[dict[str, Any]]]]:
    """A run with an export, started by an orchestrator, and its events by run."""
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", "airflow/nightly.curate/01890a5d-ac96-774b-bcce-b302099a8057")
    table = {"format": "parquet", "path": str(tmp_path / "table")}
    output = {"path": str(tmp_path / "out"), "export": [table]}
    result = run(_recipe(tmp_path, output))
    assert not list(lineage_folder(tmp_path / "out").iterdir())
    return result, _of_run(endpoint.events)


def test_a_run_with_an_export_is_received(
    curated: tuple[RunResult, list[list[dict[str, Any]]]], tmp_path: Path
) -> None:
    result, runs = curated
    assert len(runs) == 2
    main, child = runs
    for event in (*main, *child):
        _check_form(event)
    kinds = [event["eventType"] for event in main]
    assert kinds[0] == "START"
    assert set(kinds[1:-1]) == {"RUNNING"}
    assert kinds[-1] == "COMPLETE"
    assert [event["eventType"] for event in child] == ["START", "COMPLETE"]
    at = {entry["run"]["facets"]["executionParameters"]["parameters"][0]["value"] for entry in main[1:-1]}
    assert at == {one.name for one in result.operators}

    done = main[-1]
    assert done["schemaURL"].startswith("https://openlineage.io/spec/2-0-2/")
    assert done["job"]["name"] == "small"
    assert done["job"]["facets"]["jobType"]["jobType"] == "RUN"
    started_by = done["run"]["facets"]["parent"]["job"]
    assert (started_by["namespace"], started_by["name"]) == ("airflow", "nightly.curate")
    assert done["run"]["facets"]["processing_engine"]["name"] == "rowsieve"
    (source,), (version,) = done["inputs"], done["outputs"]
    assert (source["namespace"], source["name"]) == ("file", str(tmp_path / "data"))
    assert (version["namespace"], version["name"]) == ("file", str(tmp_path / "out"))
    facets = version["facets"]
    assert facets["version"]["datasetVersion"] == result.version
    assert [field["name"] for field in facets["schema"]["fields"]][-1] == "split"
    assert facets["dataQualityMetrics"]["rowCount"] == 240
    assert version["outputFacets"]["outputStatistics"]["rowCount"] == 240
    lineage = facets["columnLineage"]["fields"]
    label = [one["field"] for one in lineage["label"]["inputFields"]]
    assert label == ["label"]
    read = {one["field"] for one in lineage["group"]["inputFields"]}
    assert read == {*result.manifest["source"]["features"], "label"}

    copied = child[-1]
    assert copied["job"]["name"] == "small.export.parquet"
    assert copied["run"]["facets"]["parent"]["run"]["runId"] == done["run"]["runId"]
    assert copied["run"]["facets"]["parent"]["root"]["job"]["namespace"] == "airflow"
    assert copied["inputs"][0]["inputFacets"]["dataQualityMetrics"]["rowCount"] == 240
    assert copied["outputs"][0]["name"] == str(tmp_path / "table")


def _recipe(folder: Path, output: dict[str, Any]) -> Any:
    recipe = small_recipe(folder)
    return type(recipe).parse({**recipe.model_dump(mode="json", exclude_unset=True), "output": output})


def test_an_error_is_reported_without_secrets(
    endpoint: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2-hunter2")
    with (
        pytest.raises(InputError),
        recorded_job(tmp_path, "small.train.erm", "TRAINING", lambda _: Datasets()),
    ):
        raise InputError("cannot read postgres://me:pass-word@host/x, hunter2-hunter2")
    first, last = endpoint.events
    assert (first["eventType"], last["eventType"]) == ("START", "FAIL")
    text = last["run"]["facets"]["errorMessage"]["message"]
    assert "host/x" in text
    assert "pass-word" not in json.dumps(endpoint.events)
    assert "hunter2" not in json.dumps(endpoint.events)


def test_a_run_without_a_plan_is_reported_once(endpoint: Any, tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path)
    values = recipe.model_dump(mode="json", exclude_unset=True)
    missing = type(recipe).parse({**values, "source": {**values["source"], "path": str(tmp_path / "absent")}})
    with pytest.raises(InputError) as failed:
        run(missing)
    first, last = endpoint.events
    assert (first["eventType"], last["eventType"]) == ("START", "FAIL")
    assert first["eventTime"] < last["eventTime"]
    assert first["run"]["runId"] == last["run"]["runId"]
    assert last["run"]["facets"]["errorMessage"]["message"] == str(failed.value)
    assert last["inputs"][0]["name"] == str(tmp_path / "absent")
    assert last["outputs"][0]["name"] == str(tmp_path / "out")
    endpoint.events.clear()
    done = run(recipe)
    retract(tmp_path / "out", done.version, "wrong")
    endpoint.events.clear()
    with pytest.raises(InputError, match="was withdrawn"):
        run(recipe)
    assert [event["eventType"] for event in endpoint.events] == ["START", "FAIL"]


def test_without_a_configuration_a_run_without_a_plan_writes_and_warns_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recipe = small_recipe(tmp_path)
    values = recipe.model_dump(mode="json", exclude_unset=True)
    absent = {**values["source"], "path": str(tmp_path / "absent")}
    with pytest.raises(InputError):
        run(type(recipe).parse({**values, "source": absent, "output": {"path": "s3:///no-bucket"}}))
    with pytest.raises(InputError):
        run(type(recipe).parse({**values, "source": absent}))
    assert "openlineage" not in caplog.text
    assert not (tmp_path / "out").exists()


def test_a_signal_is_an_abort(endpoint: Any, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), recorded_job(tmp_path, "x", "RUN", lambda _: Datasets()):
        raise KeyboardInterrupt
    assert [event["eventType"] for event in endpoint.events] == ["START", "ABORT"]


def test_events_wait_for_an_endpoint_that_is_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _configure(monkeypatch, free_port())
    with recorded_job(tmp_path, "x", "RUN", lambda _: Datasets()):
        pass
    assert [place.name[-11:-5] for place in outbox_of(tmp_path).waiting()] == ["000001", "999999"]
    with pytest.raises(InputError, match="does not take events"):
        sync_records(None, tmp_path)
    with Endpoint() as server:
        _configure(monkeypatch, server.server_address[1])
        assert sync_records(None, tmp_path).endswith("2 of 2 events delivered to OpenLineage.")
        server.shutdown()
        assert [event["eventType"] for event in server.events] == ["START", "COMPLETE"]
        check_received(server.events)  # type: ignore[attr-defined]
    assert not outbox_of(tmp_path).waiting()


def test_a_slow_endpoint_does_not_delay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _configure(monkeypatch, free_port())
    monkeypatch.setattr(lineage_outbox, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(lineage_outbox, "deliver", lambda *_: time.sleep(30))
    started = time.perf_counter()
    with recorded_job(tmp_path, "x", "RUN", lambda _: Datasets()):
        pass
    assert time.perf_counter() - started < 15
    assert len(outbox_of(tmp_path).waiting()) == 2


def test_a_note_of_an_earlier_release_is_judged_by_host_and_process_number(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host, now = os.uname().nodename, datetime.now(UTC).isoformat()
    note = tmp_path / "a.open.json"
    assert has_ended(note, {"host": host, "pid": ended.pid}, now)
    assert not has_ended(note, {"host": host, "pid": os.getpid()}, now)
    assert not has_ended(note, {"host": "elsewhere", "pid": ended.pid}, now)
    assert not has_ended(note, {"host": host, "pid": "x"}, now)


def test_a_killed_run_is_reported_as_aborted(
    endpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the next run has its host name and number, as in containers: it stayed open for ever."""
    monkeypatch.setattr(run_process, "JUST_STARTED", timedelta(0))
    script = (
        "import os; from pathlib import Path\n"
        f"os.getpid = lambda: {os.getpid()}\n"
        "from engine.publish.lineage_events import Datasets, begin\n"
        f"run = begin(Path({str(tmp_path)!r}), 'x', 'RUN'); run.start(Datasets()); run._sender.close()\n"
        "os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    abort_killed(tmp_path)
    sync_records(None, tmp_path)
    assert [event["eventType"] for event in endpoint.events] == ["START", "ABORT"]
    assert len(_of_run(endpoint.events)) == 1


@pytest.mark.parametrize(("days", "sent"), [(1, []), (31, ["ABORT"])])
def test_a_run_on_another_system_is_given_up_after_a_month(
    days: int, sent: list[str], endpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = (datetime.now(UTC) - timedelta(days=days)).isoformat()
    with monkeypatch.context() as patch:
        patch.setattr(run_process, "boot_id", lambda: "another system")
        held = keep_open(tmp_path, _event(RUN_IDS[0]) | {"eventType": "ABORT", "eventTime": started})
    assert held is not None
    os.close(held)
    sync_records(None, tmp_path)
    assert [event["eventType"] for event in endpoint.events] == sent


def test_a_run_that_goes_on_is_not_aborted(
    endpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_process, "JUST_STARTED", timedelta(0))
    found = begin(tmp_path, "x", "RUN")
    assert found is not None
    found.start(Datasets())
    abort_killed(tmp_path)
    finish(found, None, None)
    assert [event["eventType"] for event in endpoint.events] == ["START", "COMPLETE"]


def test_a_forged_file_is_not_delivered(endpoint: Any, tmp_path: Path) -> None:
    run_id = "01890a5d-ac96-774b-bcce-b302099a8057"
    event = {"producer": "https://example.org", "run": {"runId": run_id}, "eventType": "COMPLETE"}
    keep(tmp_path, event, 1)
    sync_records(None, tmp_path)
    assert not endpoint.events
    assert len(outbox_of(tmp_path).waiting()) == 1


RUN_IDS = ("01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-ac96-774b-bcce-b302099a8058")
FORGED: dict[str, dict[str, Any]] = {
    "time": {"eventTime": "yesterday"},
    "no time": {"eventTime": None},
    "no names": {"inputs": [{}]},
    "names": {"outputs": [{"namespace": {"a": 1}, "name": [1]}]},
    "facets": {"inputs": [{"namespace": "n", "name": "x", "facets": "x"}]},
    "facet": {"job": {"namespace": "n", "name": "x", "facets": {"a": 1}}},
}


def _event(run_id: str) -> dict[str, Any]:
    start = {"eventType": "START", "eventTime": "2026-11-23T00:00:00Z", "producer": PRODUCER}
    job = {"namespace": "n", "name": "x"}
    return start | {"run": {"runId": run_id}, "job": job, "inputs": [], "outputs": []}


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_event_keeps_no_other_from_its_delivery(
    forgery: str, endpoint: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = RUN_IDS
    forged = keep(tmp_path, _event(first) | FORGED[forgery], 1)
    keep(tmp_path, _event(second), 1)
    sync_records(None, tmp_path)
    assert [event["run"]["runId"] for event in endpoint.events] == [second]
    assert outbox_of(tmp_path).waiting() == [forged]
    assert f"{forged} holds no event of Rowsieve" in caplog.text


def test_a_run_warns_once_of_a_file_that_holds_no_event(
    endpoint: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = RUN_IDS
    forged = keep(tmp_path, _event(first) | FORGED["time"], 1)
    sender = lineage_outbox.Sender(tmp_path)
    for number in (1, 2, 3):
        keep(tmp_path, _event(second), number)
        sender.notify()
        last = time.monotonic() + 30
        while len(outbox_of(tmp_path).waiting()) > 1 and time.monotonic() < last:
            time.sleep(0.01)
    sender.close()
    assert len(endpoint.events) == 3
    assert outbox_of(tmp_path).waiting() == [forged]
    assert caplog.text.count(f"{forged} holds no event of Rowsieve") == 1


@pytest.mark.parametrize("forged", ["1e999", "NaN", "9" * 30, '"x"', "[]", '{"kernel": []}'])
def test_a_forged_note_of_a_run_ends_no_command(forged: str, endpoint: Any, tmp_path: Path) -> None:
    note = keep(tmp_path, _event(RUN_IDS[0]), 1).with_name(f"{RUN_IDS[0]}.open.json")
    for event in (forged, f'{{"eventTime": {forged}}}', '{"eventTime": "2020-01-01"}'):
        note.write_text(f'{{"process": {forged}, "event": {event}}}')  # type: ignore[union-attr]
        abort_killed(tmp_path)
    sync_records(None, tmp_path)
    assert len(endpoint.events) == 1


@pytest.mark.parametrize("status", [400, 422])
def test_a_refused_event_is_set_aside_and_keeps_no_other_from_its_delivery(
    status: int, endpoint: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = RUN_IDS
    place = keep(tmp_path, _event(first), 1)
    keep(tmp_path, _event(second), 1)
    endpoint.refused = {first: status}
    assert sync_records(None, tmp_path).endswith("1 of 2 events delivered to OpenLineage.")
    assert [event["run"]["runId"] for event in endpoint.events] == [second]
    assert not outbox_of(tmp_path).waiting()
    aside = place.with_suffix(".refused.json")
    assert json.loads(aside.read_text())["run"]["runId"] == first
    assert f"{status} " in caplog.text
    assert str(aside) in caplog.text


@pytest.mark.parametrize("status", [401, 404, 500])
def test_events_wait_where_the_endpoint_takes_none(status: int, endpoint: Any, tmp_path: Path) -> None:
    keep(tmp_path, _event(RUN_IDS[0]), 1)
    endpoint.refused = {RUN_IDS[0]: status}
    with pytest.raises(InputError, match=rf"{status} .* still wait"):
        sync_records(None, tmp_path)
    assert len(outbox_of(tmp_path).waiting()) == 1


def test_nothing_is_imported_without_an_endpoint(tmp_path: Path) -> None:
    script = (
        "import sys; from engine.publish.lineage_events import begin; from pathlib import Path\n"
        "assert begin(Path('.'), 'x', 'RUN') is None\n"
        "assert not [name for name in sys.modules if name.startswith('openlineage')]"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_file_in_the_working_directory_is_not_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = "transport: {type: http, url: 'http://evil.example'}"
    (tmp_path / "openlineage.yml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert not is_configured()
    _configure(monkeypatch, 9)
    assert lineage_outbox.open_client().transport.url == "http://127.0.0.1:9"
    monkeypatch.delenv("OPENLINEAGE__TRANSPORT__TYPE")
    monkeypatch.delenv("OPENLINEAGE__TRANSPORT__URL")
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(tmp_path / "openlineage.yml"))
    assert is_configured()
    assert lineage_outbox.open_client().transport.url == "http://evil.example"
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert not is_configured()


@pytest.mark.parametrize(
    ("path", "table", "expected"),
    [
        ("/data/a b", "", ("file", "/data/a b")),
        ("file:///data/x", "", ("file", "/data/x")),
        ("s3://KEY:SECRET@bucket/x/y?region=eu", "", ("s3://bucket", "x/y")),
        ("gs://bucket/x", "", ("gs://bucket", "x")),
        ("abfss://box@acc.dfs.core.windows.net/x", "", ("abfss://box@acc.dfs.core.windows.net", "x")),
        ("az://box/x", "", ("az://box", "x")),
        ("postgresql://u:p@db:5433/shop", "public.t", ("postgres://db:5433", "shop.public.t")),
        ("duckdb:///data/x.db", "t", ("file", "/data/x.db.t")),
    ],
)
def test_datasets_have_names_of_the_convention(path: str, table: str, expected: tuple[str, str]) -> None:
    assert dataset_name(path, table) == expected


def test_a_table_of_a_catalog_is_named_by_it() -> None:
    assert catalog_name("ns.t", {"uri": "https://u:p@host:8181/x"}) == ("iceberg://host:8181", "ns.t")
    assert catalog_name("ns.t", "prod") == ("iceberg://prod", "ns.t")


def test_checks_are_tests() -> None:
    figures = [{"name": "x", "over": True, "threshold": 0.1, "excess": 0.2}, {"name": "g", "over": False}]
    found = drift_tests({"incremental": {"drift": figures}})
    assert [(one.name, one.status) for one in found] == [("drift.x", "fail"), ("drift.g", "pass")]
    assert found[0].actual == "excess 0.2"
    (check,) = promotion_tests({"promoted": False, "reason": "worse"}, "accuracy > champion")
    assert (check.name, check.status, check.expected) == ("promotion", "fail", "accuracy > champion")
    assert promotion_tests(None, "") == []


def test_an_export_by_command_fails_with_its_error(endpoint: Any, tmp_path: Path) -> None:
    result = run(small_recipe(tmp_path))
    endpoint.events.clear()
    (tmp_path / "file").write_text("x")
    table = open_export("delta", str(tmp_path / "file"), "create", None, str(tmp_path))
    with pytest.raises(InputError):
        export(result.path, result.manifest, table, LocalExecutor)
    assert [event["eventType"] for event in endpoint.events] == ["START", "FAIL"]
    assert "parent" not in endpoint.events[0]["run"]["facets"]


def test_an_export_of_a_withdrawn_version_is_received_as_refused(endpoint: Any, tmp_path: Path) -> None:
    result = run(small_recipe(tmp_path))
    retract(tmp_path / "out", result.version, "labels of May")
    endpoint.events.clear()
    words = [
        "export",
        f"{tmp_path}/out@{result.version}",
        "--to",
        f"parquet:{tmp_path}/t",
        "--executor",
        "local",
    ]
    assert CliRunner().invoke(app, words).exit_code == 2
    assert [event["eventType"] for event in endpoint.events] == ["START", "FAIL"]
    assert "labels of May" in endpoint.events[1]["run"]["facets"]["errorMessage"]["message"]
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("words", "job", "kind"),
    [
        (["export", "OUT", "--to", "parquet:t", "--executor", "local"], "small.export.parquet", "EXPORT"),
        (["retrain", "--dataset", "OUT", "--trainer", "erm"], "small.train.erm", "TRAINING"),
        (["retrain", "--dataset", "OUT", "--executor", "local"], "small.train.erm", "TRAINING"),
    ],
)
def test_where_no_version_stands_a_job_is_received_as_refused(
    words: list[str], job: str, kind: str, endpoint: Any, tmp_path: Path
) -> None:
    result = run(small_recipe(tmp_path))
    retract(tmp_path / "out", result.version, "labels of May")
    endpoint.events.clear()
    done = CliRunner().invoke(app, [word.replace("OUT", f"{tmp_path}/out") for word in words])
    assert done.exit_code == 2, done.output
    assert [event["eventType"] for event in endpoint.events] == ["START", "FAIL"]
    for event in endpoint.events:
        _check_form(event)
        assert (event["job"]["name"], event["job"]["facets"]["jobType"]["jobType"]) == (job, kind)
    assert "labels of May" in endpoint.events[1]["run"]["facets"]["errorMessage"]["message"]
    endpoint.events.clear()
    missing = [word.replace("OUT", f"{tmp_path}/none") for word in words]
    assert CliRunner().invoke(app, missing).exit_code == 2
    assert endpoint.events == []
    assert not (tmp_path / "none").exists()


def test_a_removal_is_received(endpoint: Any, tmp_path: Path) -> None:
    first, output = run(small_recipe(tmp_path)), tmp_path / "out"
    run(small_recipe(tmp_path, seed=4))
    endpoint.events.clear()
    remove(output, first.version)
    removal = _of_run(endpoint.events)[0]
    assert [event["eventType"] for event in removal] == ["START", "COMPLETE"]
    assert {event["job"]["name"] for event in removal} == {"small.remove"}
    assert "tags" not in removal[0]["outputs"][0]["facets"]
    (gone,) = removal[-1]["outputs"]
    assert gone["facets"]["version"]["datasetVersion"] == first.version
    assert gone["facets"]["tags"]["tags"][0]["key"] == "rowsieve.removed"
    for event in endpoint.events:
        _check_form(event)


def test_a_removal_that_fails_is_received(
    endpoint: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = run(small_recipe(tmp_path))
    run(small_recipe(tmp_path, seed=4))
    endpoint.events.clear()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system", "manifest.json")

    monkeypatch.setattr(FolderLease, "discard", full)
    with pytest.raises(OSError, match="Read-only"):
        remove(tmp_path / "out", first.version)
    assert [event["eventType"] for event in endpoint.events] == ["START", "FAIL"]
    assert "tags" not in endpoint.events[-1]["outputs"][0]["facets"]


def test_a_run_that_would_publish_withdrawn_rows_is_received_as_refused(
    endpoint: Any, tmp_path: Path
) -> None:
    recipe = small_recipe(tmp_path)
    result = run(recipe)
    retract(tmp_path / "out", result.version, "labels of May")
    endpoint.events.clear()
    with pytest.raises(InputError, match="labels of May"):
        run(recipe)
    assert [event["eventType"] for event in endpoint.events] == ["START", "FAIL"]
    assert "labels of May" in endpoint.events[1]["run"]["facets"]["errorMessage"]["message"]


@pytest.mark.slow
def test_an_incremental_run_a_training_and_a_withdrawal_are_received(
    endpoint: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    incremental = {"base": "current", "mode": "predict"}
    recipe = small_recipe(tmp_path, shards=2, incremental=incremental, tracking={"enabled": True})
    first, output = run(recipe), tmp_path / "out"
    endpoint.events.clear()
    write_shards(tmp_path / "data", spurious_table(), 3)
    second = run(recipe)
    assert second.version != first.version
    (events,) = _of_run(endpoint.events)
    assert [events[0]["eventType"], events[-1]["eventType"]] == ["START", "COMPLETE"]
    checks = events[-1]["run"]["facets"]["test"]["tests"]
    assert {check["type"] for check in checks} == {"drift"}
    assert len(checks) == len(second.manifest["incremental"]["drift"])
    assert events[-1]["outputs"][0]["facets"]["version"]["datasetVersion"] == second.version

    spec = TrainSpec(str(output), parse_params({"trainer": "erm", "epochs": 1}))
    found = retrain(spec, LocalExecutor(), RetrainOptions(name="churn", promote_if="accuracy > 0"))
    training = _of_run(endpoint.events)[1]
    assert [event["eventType"] for event in training] == ["START", "COMPLETE"]
    assert training[0]["outputs"] == []
    assert training[-1]["inputs"][0]["facets"]["version"]["datasetVersion"] == second.version
    folder, model = training[-1]["outputs"]
    assert folder["name"] == str(found.result.place)
    assert (model["namespace"], model["name"]) == (f"mlflow://{output}/mlflow.db", "models/churn")
    assert model["facets"]["version"]["datasetVersion"] == "1"
    (check,) = training[-1]["run"]["facets"]["test"]["tests"]
    assert (check["type"], check["status"]) == ("promotion", "pass")

    retract(output, second.version, "labels of May")
    undo_retraction(output, second.version)
    withdrawal, restoral = _of_run(endpoint.events)[2:]
    (version,) = withdrawal[-1]["outputs"]
    assert withdrawal[-1]["job"]["name"] == "small.retract"
    assert version["facets"]["version"]["datasetVersion"] == second.version
    assert version["facets"]["tags"]["tags"] == [
        {"key": "rowsieve.withdrawn", "value": "labels of May", "source": "rowsieve"}
    ]
    assert "tags" not in restoral[-1]["outputs"][0]["facets"]
    for event in endpoint.events:
        _check_form(event)


def test_columns_of_the_contract_are_found_by_their_place(
    curated: tuple[RunResult, list[list[dict[str, Any]]]],
) -> None:
    manifest = dict(curated[0].manifest)
    prefixed = [{**one, "name": f"r_{one['name']}"} for one in manifest["outputs"]]
    manifest["outputs"] = [*prefixed, {"name": "r_second_group"}, {"name": "r_kmeans_split"}]
    assert [*quality_facet(manifest).columnMetrics] == ["r_group", "r_is_outlier", "r_split"]


@pytest.mark.parametrize(
    ("uri", "namespace"),
    [
        ("https://me:word@mlflow.internal:5000/x", "mlflow://mlflow.internal:5000"),
        ("sqlite:////data/out/mlflow.db", "mlflow:///data/out/mlflow.db"),
        ("file:///data/mlruns", "mlflow:///data/mlruns"),
        ("databricks", "mlflow://databricks"),
    ],
)
def test_models_are_named_by_their_server(uri: str, namespace: str) -> None:
    assert model_name(uri, "churn") == (namespace, "models/churn")


def test_the_check_of_events_finds_faults(curated: tuple[RunResult, list[list[dict[str, Any]]]]) -> None:
    good = curated[1][0][-1]
    for change in (
        {"eventType": "DONE"},
        {"other": 1},
        {"job": {"namespace": "x"}},
        {"run": {**good["run"], "runId": "7"}},
        {"outputs": [{**good["outputs"][0], "outputFacets": good["outputs"][0]["facets"]}]},
    ):
        with pytest.raises((TypeError, ValueError)):
            build_event({**good, **change})
