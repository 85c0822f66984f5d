"""Records reach MLflow through a process of its own, which may die."""

import io
import json
import logging
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from engine.publish.mlflow_outbox import Answer, Record, pending
from engine.publish.record_delivery import DirectSender, ProcessSender, _serve, sender_for
from engine.publish.tracking import client

RECORD = Record("0" * 32, "rowsieve", "first", 1)


def test_a_process_delivers_each_state_of_a_record(tmp_path: Path) -> None:
    sender = ProcessSender(tmp_path)
    record = Record(RECORD.id, "rowsieve", "first", 1, texts={"plan.json": "{}", "other.txt": "x"})
    assert sender.send(record, first=True).problem == ""
    assert [waiting.run_id for waiting in pending(tmp_path)] == [record.run_id]
    record.status, record.end_ms, record.metrics = "FINISHED", 2, {"rows": 3.0}
    sender.send(record, first=False)
    sender.close()
    found = client(tmp_path).get_run(str(record.run_id))
    assert (found.info.status, found.data.metrics) == ("FINISHED", {"rows": 3.0})
    assert pending(tmp_path) == []


def test_a_process_that_dies_leaves_the_record(tmp_path: Path) -> None:
    sender = ProcessSender(tmp_path)
    sender._process.kill()
    record = Record(RECORD.id, "rowsieve", "first", 1)
    answer = sender.send(record, first=True)
    assert answer.run_id is None
    assert "the process that delivers to MLflow has died" in answer.problem
    assert "rowsieve lineage --sync" in answer.problem
    assert [waiting.id for waiting in pending(tmp_path)] == [RECORD.id]
    sender.close()


def test_warnings_of_the_process_are_told_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    sender = ProcessSender(tmp_path)
    monkeypatch.setattr(sender, "_ask", lambda _: Answer("7", "", ("one", "two")))
    with caplog.at_level("WARNING", "rowsieve"):
        assert sender.send(Record(RECORD.id, "x", "y", 1), first=False).run_id == "7"
    assert caplog.messages == ["one", "two"]
    sender.close()


class Loud:
    """A sender that logs."""

    def send(self, record: Record, *, first: bool) -> Answer:
        logging.getLogger("rowsieve").warning("%s of %s", "refused" if first else "sent", record.name)
        return Answer(None, "away")

    def close(self) -> None:
        pass


def test_the_program_answers_every_line() -> None:
    lines = "".join(json.dumps({"record": asdict(RECORD), "first": first}) + "\n" for first in (True, False))
    answers = io.StringIO()
    _serve(Loud(), io.StringIO(lines), answers)
    found = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert [(one["problem"], one["warnings"]) for one in found] == [
        ("away", ["refused of first"]),
        ("away", ["sent of first"]),
    ]


def test_where_mlflow_is_imported_no_process_starts(tmp_path: Path) -> None:
    client(tmp_path)  # imports it
    assert isinstance(sender_for(tmp_path), DirectSender)
    program = "from engine.publish.record_delivery import *; print(type(sender_for(place_of('/'))).__name__)"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == "ProcessSender\n"


def test_a_server_that_does_not_answer_holds_a_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short run waited at its start and again at its end, 100 seconds in all."""
    calls, now = [], [0.0]

    def hang(output: Path) -> None:
        calls.append(now[0])
        now[0] += hangs[0]
        raise TimeoutError("no answer")

    monkeypatch.setattr("engine.publish.record_delivery.client", hang)
    monkeypatch.setattr("engine.publish.record_delivery.time.monotonic", lambda: now[0])
    sender, record, hangs = DirectSender(tmp_path), Record(RECORD.id, "rowsieve", "first", 1), [30.0]
    first = sender.send(record, first=True).problem
    record.status = "FINISHED"
    assert sender.send(record, first=False).problem == first
    assert calls == [0.0]
    assert [waiting.status for waiting in pending(tmp_path)] == ["FINISHED"]
    now[0] = hangs[0] = 331.0  # the end of a long run
    sender.send(record, first=False)
    assert calls == [0.0, 331.0]
    sender, hangs[0] = DirectSender(tmp_path), 3.7  # away, which is known as soon as MLflow is imported
    for first_one in (True, False):
        sender.send(record, first=first_one)
    assert len(calls) == 4
