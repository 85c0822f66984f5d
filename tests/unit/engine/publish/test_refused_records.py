"""Records that MLflow refuses for what they say, and sources and schemas of any size."""

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.publish.lineage import sync_records
from engine.publish.mlflow_outbox import (
    Record,
    deliver,
    experiment_id,
    outbox_of,
    pending,
    pending_folder,
)
from engine.publish.outbox_sync import sync
from engine.publish.record_delivery import DirectSender
from engine.publish.tracking import SCHEMA_CHARS, SOURCE_CHARS, client, schema_text, source_text

DATASET = {"name": "d", "digest": "e", "source_type": "rowsieve", "source": "{}"}
REFUSED = Record("1" * 32, "rowsieve", "too long", 1, dataset=DATASET | {"source": "x" * 65_536})
HARMLESS = Record("2" * 32, "rowsieve", "harmless", 2, dataset=DATASET)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """An output with MLflow's database; making it takes seconds, so the tests share it."""
    out = tmp_path_factory.mktemp("refused")
    return out, client(out)


@pytest.fixture
def out(server: tuple[Path, Any]) -> Iterator[Path]:
    yield server[0]
    for path in pending_folder(server[0]).glob("*"):
        path.unlink()


def finished(record: Record) -> Record:
    return replace(record, status="FINISHED", end_ms=record.start_ms + 1)


def test_a_refused_record_is_set_aside_and_the_next_gets_through(
    out: Path, server: tuple[Path, Any], caplog: pytest.LogCaptureFixture
) -> None:
    for record in (REFUSED, HARMLESS):
        finished(record).write(out)
    with caplog.at_level(logging.WARNING, "rowsieve"):
        assert sync_records(None, out).startswith("1 records delivered to MLflow.")
    aside = outbox_of(out).refused(REFUSED.id)
    (warning,) = caplog.messages
    assert warning.startswith("MLflow refuses the record of 'too long' ('source' exceeds the maximum length")
    assert str(aside) in warning
    assert pending(out) == []
    assert [path.name for path in pending_folder(out).iterdir()] == [aside.name]
    found = server[1].search_runs([server[1].get_experiment_by_name("rowsieve").experiment_id])
    assert {run.info.run_name: run.info.status for run in found} == dict.fromkeys(
        ("too long", "harmless"), "FINISHED"
    )


def test_a_record_that_is_renamed_is_delivered_again(out: Path, server: tuple[Path, Any]) -> None:
    """An experiment that was deleted takes no runs until somebody restores it."""
    lost = experiment_id(server[1], "lost", out)
    server[1].delete_experiment(lost)
    record = finished(Record("3" * 32, "lost", "late", 3))
    record.write(out)
    assert sync(server[1], out) == (0, 0, 1)
    server[1].restore_experiment(lost)
    outbox_of(out).refused(record.id).rename(pending_folder(out) / f"{record.id}.json")
    assert sync(server[1], out) == (1, 0, 0)
    assert [run.info.run_name for run in server[1].search_runs([lost])] == ["late"]


def test_a_run_whose_record_is_refused_says_so_and_does_not_wait(out: Path) -> None:
    sender = DirectSender(out)
    record = replace(REFUSED, id="4" * 32)
    for state in (record, finished(record)):
        problem = sender.send(state, first=state is record).problem
        assert problem.endswith(f"rename it to {record.id}.json. The run goes on.")
        assert "at present" not in problem
        assert pending(out) == []
        assert json.loads(outbox_of(out).refused(record.id).read_text("utf-8"))["status"] == state.status
    record.dataset = DATASET
    assert sender.send(finished(record), first=False).problem == ""
    assert not outbox_of(out).refused(record.id).exists()


def test_a_source_of_many_files_is_recorded_by_its_first_files(out: Path, server: tuple[Path, Any]) -> None:
    files = {f"/data/part-{i:05d}.parquet": f"sha256:{i:064x}" for i in range(2_000)}
    source = source_text("/data/*.parquet", files)
    found = json.loads(source)
    assert (found["path"], found["n_files"]) == ("/data/*.parquet", 2_000)
    assert list(found["files"].items()) == list(files.items())[: len(found["files"])]
    assert SOURCE_CHARS - 2_000 < len(source) <= SOURCE_CHARS
    columns = [{"name": f"column {i}", "type": "double"} for i in range(30_000)]
    schema = schema_text(columns)
    assert json.loads(schema)["n_columns"] == 30_000
    assert json.loads(schema)["columns"] == columns[: len(json.loads(schema)["columns"])]
    assert SCHEMA_CHARS - 100 < len(schema) <= SCHEMA_CHARS
    dataset = DATASET | {"digest": "large", "source": source, "schema": schema}
    record = Record("5" * 32, "rowsieve", "large", 5, dataset=dataset)
    run = server[1].get_run(deliver(finished(record), server[1], out))
    assert run.inputs.dataset_inputs[0].dataset.source == source


def test_a_source_and_a_schema_that_fit_are_recorded_in_full() -> None:
    assert json.loads(source_text("s3://key:secret@x", {"a": "b"})) == {
        "path": "s3://***@x",
        "n_files": 1,
        "files": {"a": "b"},
    }
    assert json.loads(schema_text([{"name": "x"}])) == {"n_columns": 1, "columns": [{"name": "x"}]}
