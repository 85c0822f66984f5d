"""``rowsieve schedule``: runs a recipe at cron times, in the foreground, one run at a time.

Every run is a process of its own: a run that is out of memory does not end the scheduler, and its libraries
cannot replace the scheduler's signal handlers.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from connectors.storage import Place
from engine.core.child_process import command_of
from engine.core.errors import Exit
from engine.core.json_files import read_json, write_json
from engine.jobs.cron import CatchUp, Cron, caught_up

Job = Callable[[], int]
"""Runs the recipe once and returns the exit code of ``rowsieve run``."""
Log = Callable[[dict[str, Any]], None]
OUTCOMES = {Exit.DONE: "finished", Exit.LOCKED: "skipped"}
LONGEST_DOWNTIME = timedelta(days=31)
"""Time back from now within which missed times are made up for; the file may be damaged or forged."""
WAIT_SECONDS = 60.0
"""Longest sleep in seconds, after which a changed clock or a suspension of the machine is noticed."""


class Clock(Protocol):
    """Gives the time and waits; tests inject a clock of their own."""

    def now(self) -> datetime: ...  # noqa: D102
    def wait(self, seconds: float) -> None: ...  # noqa: D102

    @property
    def stopped(self) -> bool: ...  # noqa: D102


class SystemClock:
    """The system's clock. :meth:`stop`, which a signal calls, ends its waits."""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)

    def wait(self, seconds: float) -> None:
        """Sleep for ``seconds``, or until the clock is stopped."""
        self._stop.wait(seconds)

    @property
    def stopped(self) -> bool:
        """Return whether :meth:`stop` was called."""
        return self._stop.is_set()

    def stop(self) -> None:
        """End the current wait and all later ones, so that no further run starts."""
        self._stop.set()


@dataclass(frozen=True)
class Schedule:
    """The times of runs, and the policy for times that passed while no run could start."""

    cron: Cron
    catch_up: CatchUp = "last"
    max_runs: int | None = None


def run_schedule(schedule: Schedule, job: Job, clock: Clock, file: Place, log: Log) -> int:
    """Run the job at every time of the schedule until stopped, or until ``max_runs`` runs were started.

    The last handled time is stored in ``file``. The schedule continues after a failed run. A run whose output
    another run is writing (exit code 5) counts as skipped. Returns the last run's exit code, or 0 if it was
    skipped or there was none.
    """
    last, runs, code = read_last(file, schedule.cron), 0, 0
    if last is None or last > clock.now():
        last = clock.now()
        write_last(file, schedule.cron, last)
    last = max(last, clock.now() - LONGEST_DOWNTIME)
    while not clock.stopped and runs != schedule.max_runs:
        passed_over, chosen = _due(schedule, last, clock, log)
        if not passed_over and not chosen:
            break
        if passed_over:
            last = passed_over[-1]
            log(_missed(schedule, passed_over, clock))
            write_last(file, schedule.cron, last)
        for moment in chosen:
            if clock.stopped or runs == schedule.max_runs:
                break  # the time stays unhandled, and the next start of the scheduler catches up on it
            runs, code, last = runs + 1, _run(moment, job, clock, log), moment
            write_last(file, schedule.cron, last)
    log(_entry(clock, "stopped", runs=runs))
    return code


def _due(schedule: Schedule, last: datetime, clock: Clock, log: Log) -> tuple[list[datetime], list[datetime]]:
    """Return the missed times to pass over and those to run; if none was missed, the next one when due."""
    missed = schedule.cron.missed(last, clock.now())
    if missed:
        chosen = caught_up(missed, schedule.catch_up)
        return missed[: len(missed) - len(chosen)], chosen
    coming = next(schedule.cron.after(last), None)
    if coming is None:
        log(_entry(clock, "ended", why="the cron expression has no further time"))
        return [], []
    _wait_until(coming, clock, log)
    return [], [] if clock.stopped else [coming]


def _missed(schedule: Schedule, times: Sequence[datetime], clock: Clock) -> dict[str, Any]:
    """Return the one line of the log on missed times, of which there may be thousands."""
    ends = {"scheduled": times[0].isoformat(), "until": times[-1].isoformat()}
    return _entry(clock, "missed", **ends, times=len(times), why=f"--catch-up {schedule.catch_up}")


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
    """Return the file with the last handled times of an output."""
    return output / "runs" / "schedule.json"


def read_last(file: Place, cron: Cron) -> datetime | None:
    """Return the last handled time of this cron; None before the first, and where the file holds no time."""
    try:
        found = datetime.fromisoformat(read_json(file)[_key(cron)])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found.tzinfo is not None else None


def write_last(file: Place, cron: Cron, moment: datetime) -> None:
    """Store the last handled time of this cron; those of other crons of the same output are kept."""
    try:
        known = read_json(file)
    except (OSError, ValueError):
        known = {}
    kept = known if isinstance(known, dict) else {}
    write_json(file, {**kept, _key(cron): moment.isoformat()})


def _key(cron: Cron) -> str:
    return f"{cron.expression} {cron.timezone}"


class Process:
    """A job that runs a command as a child process."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._running: subprocess.Popen[bytes] | None = None

    def __call__(self) -> int:
        """Run the command to its end, in its own session, so that signals to this process do not reach it."""
        self._running = subprocess.Popen(self._command, start_new_session=True)
        try:
            return self._running.wait()
        finally:
            self._running = None

    def interrupt(self) -> None:
        """Interrupt the command if it is running. The work that it has committed is kept."""
        if self._running is not None:
            self._running.send_signal(signal.SIGINT)


def rowsieve_run(arguments: Sequence[str]) -> Process:
    """Return the job ``rowsieve run`` with these arguments, run by the current Python interpreter."""
    return Process(command_of("engine.cli.app", "main", "run", *arguments))


@contextmanager
def signals(clock: SystemClock, job: Process) -> Iterator[None]:
    """Handle SIGTERM and Ctrl-C: the first one stops after the current run, the second interrupts the run."""

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
