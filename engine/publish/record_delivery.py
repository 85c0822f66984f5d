"""Delivery of a run's record to MLflow, in this process or in one of its own.

Importing MLflow and making its database takes some five seconds during which Python's lock is held, so a
thread would slow the operators down. A process of its own does not. It reads messages as lines of JSON and
answers each with a line.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import IO

from connectors.storage import Place, place_of
from engine.core.child_process import command_of
from engine.core.errors import InputError, one_line
from engine.core.redaction import redact
from engine.publish.mlflow_outbox import (
    RUNNING,
    Answer,
    Record,
    RefusedRecordError,
    Sender,
    deliver,
    pending_folder,
    record_of,
    refusal_text,
)
from engine.publish.outbox_sync import LONG_TRY, sync
from engine.publish.tracking import client, tracking_uri

PAUSE_FACTOR = 10
"""Length of the pause after a long try that failed, in multiples of the time that the try took."""
_log = logging.getLogger("rowsieve")


def sender_for(output: Place) -> Sender:
    """Return what delivers to MLflow: a process of its own, unless MLflow is imported here already."""
    return DirectSender(output) if "mlflow" in sys.modules or not sys.executable else ProcessSender(output)


class Patience:
    """Decides when a server is asked again: tries that fail take about a tenth of the time at most.

    A server that is away refuses at once, so the next delivery asks it again. One that accepts connections
    and does not answer holds each try for half a minute, and would hold a short run at its start and its end.
    """

    def __init__(self) -> None:
        self._problem, self._next = "", 0.0

    def problem(self) -> str:
        """Return why the last try failed if it is too early for another; else nothing."""
        return self._problem if time.monotonic() < self._next else ""

    def note_failure(self, problem: str, started: float) -> None:
        """Note a try that failed, and when it started on the monotonic clock."""
        now = time.monotonic()
        took = now - started
        self._problem, self._next = problem, now + (PAUSE_FACTOR * took if took >= LONG_TRY else 0.0)


class DirectSender:
    """Delivers in this process."""

    def __init__(self, output: Place) -> None:
        self._output, self._patience = output, Patience()

    def send(self, record: Record, *, first: bool) -> Answer:
        """Keep the record as a file, then try to deliver it, unless the last try was long and in vain."""
        if problem := self._patience.problem():
            with suppress(OSError):
                record.write(self._output)
            return Answer(record.run_id, problem)
        started = time.monotonic()
        try:
            mlflow_client = client(self._output)
            if first:
                sync(mlflow_client, self._output, has_lease=True)
            record.write(self._output)
            deliver(record, mlflow_client, self._output)
            if record.status != RUNNING:
                record.forget(self._output)
            else:
                record.write(self._output)  # with the run's id
        except RefusedRecordError as error:
            return Answer(
                record.run_id, redact(f"{refusal_text(record, self._output, error)} The run goes on.")
            )
        except Exception as error:  # MLflow's client raises errors of many kinds, and none may end the run
            with suppress(OSError):
                record.write(self._output)
            problem = redact(unreachable_text(self._output, error))
            self._patience.note_failure(problem, started)
            return Answer(record.run_id, problem)
        return Answer(record.run_id)

    def close(self) -> None:
        """Keep nothing open, so there is nothing to free."""


class ProcessSender:
    """Delivers in a process of its own, which starts at once and ends with this one."""

    def __init__(self, output: Place) -> None:
        self._output = output
        # Of its own session, so that Ctrl-C reaches this process only, which then records what happened.
        self._process = subprocess.Popen(  # noqa: S603
            command_of(__name__, serve.__name__, str(output)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def send(self, record: Record, *, first: bool) -> Answer:
        """Have the record delivered; if the process has died, keep it as a file."""
        try:
            answer = self._ask(json.dumps({"record": asdict(record), "first": first}))
        except (OSError, ValueError):
            with suppress(OSError):
                record.write(self._output)
            error = InputError("the process that delivers to MLflow has died")
            return Answer(record.run_id, unreachable_text(self._output, error))
        for warning in answer.warnings:
            _log.warning("%s", warning)
        record.run_id = answer.run_id
        return answer

    def _ask(self, message: str) -> Answer:
        """Send one line and read one. Raises OSError or ValueError if the process has died."""
        to, back = self._process.stdin, self._process.stdout
        if to is None or back is None:  # pragma: no cover
            raise OSError
        to.write(message + "\n")
        to.flush()
        found = json.loads(back.readline())
        return Answer(found["run_id"], found["problem"], tuple(found["warnings"]))

    def close(self) -> None:
        """End the process."""
        with suppress(OSError):
            self._process.communicate()


def serve() -> None:
    """Answer messages until standard input ends: the program of the process, whose argument is the output."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what MLflow prints is not an answer
    _serve(DirectSender(place_of(sys.argv[1])), sys.stdin, answers)
    os._exit(0)  # nothing is left to do, and freeing all modules takes half a second


def _serve(sender: Sender, messages: IO[str], answers: IO[str]) -> None:
    for line in messages:
        message = json.loads(line)
        with _collected_warnings() as warnings:
            answer = sender.send(record_of(message["record"]), first=message["first"])
        answers.write(json.dumps(asdict(answer) | {"warnings": warnings}) + "\n")
        answers.flush()


@contextmanager
def _collected_warnings() -> Iterator[list[str]]:
    """Collect what is logged as a warning, in place of showing it."""
    texts: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    propagates = _log.propagate
    _log.addHandler(handler)
    _log.propagate = False
    try:
        yield texts
    finally:
        _log.removeHandler(handler)
        _log.propagate = propagates


def unreachable_text(output: Place, error: Exception, what: str = "The run") -> str:
    """Return the warning that MLflow does not take a record, which waits, while ``what`` goes on."""
    uri = tracking_uri(output)
    if uri and not isinstance(error, InputError):
        problem = f"MLflow at {uri} takes no records at present ({one_line(error)})"
    else:
        problem = str(error).rstrip(".")
    return (
        f"{problem}. {what} goes on; its record waits in {pending_folder(output)} and is delivered by the "
        f"next run, or by `rowsieve lineage --sync --output {output}`."
    )
