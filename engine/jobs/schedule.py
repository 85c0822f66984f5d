"""``rowsieve schedule``: a recipe at cron times, in the foreground, one run at a time.

Every run is a process of its own: one that runs out of memory takes nothing else down, and its libraries
cannot take the scheduler's signals away.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from connectors.storage import Place
from engine.core.errors import Exit
from engine.core.json_files import write_json
from engine.jobs.cron import CatchUp, Cron, caught_up

Job = Callable[[], int]
"""Carries the recipe out once; returns the exit code of ``rowsieve run``."""
Log = Callable[[dict[str, Any]], None]
OUTCOMES = {Exit.DONE: "finished", Exit.LOCKED: "skipped"}
WAIT_SECONDS = 60.0
"""Longest sleep: a clock that is put forward, or a laptop that slept, is noticed by then."""


class Clock(Protocol):
    """The time, and waiting for it."""

    def now(self) -> datetime: ...  # noqa: D102
    def wait(self, seconds: float) -> None: ...  # noqa: D102

    @property
    def stopped(self) -> bool: ...  # noqa: D102


class SystemClock:
    """The real one; a signal ends its waits."""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def now(self) -> datetime:
        """In UTC."""
        return datetime.now(UTC)

    def wait(self, seconds: float) -> None:
        """Sleep, unless stopped."""
        self._stop.wait(seconds)

    @property
    def stopped(self) -> bool:
        """Whether somebody asked to stop."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Start nothing any more."""
        self._stop.set()


@dataclass(frozen=True)
class Schedule:
    """When, and what becomes of times that went by while nothing, or the run before, was running."""

    cron: Cron
    catch_up: CatchUp = "last"
    max_runs: int | None = None


def follow(schedule: Schedule, job: Job, clock: Clock, file: Place, log: Log) -> int:
    """Run the job at every time of the schedule until stopped, or ``max_runs`` runs were started.

    The last time that was seen to is kept in ``file``. A run that fails ends nothing: the next time comes.
    One whose output somebody else is writing (exit code 5) is skipped. Returns the last run's exit code; 0
    where it was skipped or there was none.
    """
    last, runs, code = read_last(file, schedule.cron), 0, 0
    if last is None:
        last = clock.now()
        write_last(file, schedule.cron, last)
    while not clock.stopped and runs != schedule.max_runs:
        due, chosen = _due(schedule, last, clock, log)
        if not due:
            break
        for moment in due:
            if moment not in chosen:
                why = f"--catch-up {schedule.catch_up}"
                log(_entry(clock, "missed", scheduled=moment.isoformat(), why=why))
            elif clock.stopped or runs == schedule.max_runs:
                break  # it is missed, and caught up with next time
            else:
                runs, code = runs + 1, _run(moment, job, clock, log)
            last = moment
            write_last(file, schedule.cron, last)
    log(_entry(clock, "stopped", runs=runs))
    return code


def _due(schedule: Schedule, last: datetime, clock: Clock, log: Log) -> tuple[list[datetime], list[datetime]]:
    """Times to see to and those of them to run: what was missed, else the next one, once it has come."""
    missed = schedule.cron.missed(last, clock.now())
    if missed:
        return missed, caught_up(missed, schedule.catch_up)
    coming = next(schedule.cron.after(last), None)
    if coming is None:
        log(_entry(clock, "ended", why="the cron expression has no further time"))
        return [], []
    _wait_until(coming, clock, log)
    return ([], []) if clock.stopped else ([coming], [coming])


def _wait_until(due: datetime, clock: Clock, log: Log) -> None:
    log(_entry(clock, "waiting", scheduled=due.isoformat()))
    while not clock.stopped and (left := (due - clock.now()).total_seconds()) > 0:
        clock.wait(min(left, WAIT_SECONDS))


def _run(due: datetime, job: Job, clock: Clock, log: Log) -> int:
    started = clock.now()
    log(_entry(clock, "started", scheduled=due.isoformat()))
    code = job()
    seconds = (clock.now() - started).total_seconds()
    outcome = next((text for known, text in OUTCOMES.items() if code == known), "failed")
    log(_entry(clock, outcome, scheduled=due.isoformat(), exit_code=code, seconds=round(seconds, 1)))
    return 0 if code == Exit.LOCKED else code


def _entry(clock: Clock, event: str, **values: Any) -> dict[str, Any]:
    return {"at": clock.now().isoformat(timespec="seconds"), "event": event, **values}


def schedule_file(output: Place) -> Place:
    """Where the times lie that were seen to."""
    return output / "runs" / "schedule.json"


def read_last(file: Place, cron: Cron) -> datetime | None:
    """The last time of this cron that was seen to; None before the first."""
    try:
        return datetime.fromisoformat(json.loads(file.read_text("utf-8"))[_key(cron)])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_last(file: Place, cron: Cron, moment: datetime) -> None:
    """Keep it, beside those of other crons over the same output."""
    try:
        known = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        known = {}
    write_json(file, {**known, _key(cron): moment.isoformat()})


def _key(cron: Cron) -> str:
    return f"{cron.expression} {cron.timezone}"


class Process:
    """A job that is a command."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._running: subprocess.Popen[bytes] | None = None

    def __call__(self) -> int:
        """Run it to its end, in a session of its own, so that signals to this process do not reach it."""
        self._running = subprocess.Popen(self._command, start_new_session=True)
        try:
            return self._running.wait()
        finally:
            self._running = None

    def interrupt(self) -> None:
        """Ask it to stop: what it has committed is kept."""
        if self._running is not None:
            self._running.send_signal(signal.SIGINT)


def rowsieve_run(arguments: Sequence[str]) -> Process:
    """``rowsieve run`` with these arguments, by the Python that runs now."""
    return Process([sys.executable, "-m", "engine.cli", "run", *arguments])


@contextmanager
def signals(clock: SystemClock, job: Process) -> Iterator[None]:
    """SIGTERM and Ctrl-C: the first lets the run end and stops then; the second stops the run too."""

    def handle(*_: Any) -> None:
        if clock.stopped:
            job.interrupt()
        clock.stop()

    names = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(name, handle) for name in names]
    try:
        yield
    finally:
        for name, handler in zip(names, before, strict=True):
            signal.signal(name, handler)
