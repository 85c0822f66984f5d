"""``rowsieve schedule``: which times are run, with a clock that takes no time."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from engine.cli.app import app
from engine.core.errors import InputError
from engine.jobs.cron import Cron, catch_up_policy, caught_up
from engine.jobs.schedule import Schedule, read_last, run_schedule, write_last
from tests.data import recipe_for

START = datetime(2026, 3, 27, 12, 0, tzinfo=UTC)
NIGHTLY = Cron("0 2 * * *")


class Hands:
    """A clock that is moved by waiting and by jobs."""

    def __init__(self, now: datetime = START) -> None:
        self.time, self.stopped = now, False

    def now(self) -> datetime:
        return self.time

    def wait(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class Runs:
    """A job that takes so long and ends so; remembers when it was started."""

    def __init__(self, clock: Hands, *codes: int, hours: float = 0.5, stop_after: int = 99) -> None:
        self.clock, self.codes, self.hours, self.stop_after = clock, codes, hours, stop_after
        self.started: list[datetime] = []

    def __call__(self) -> int:
        self.started.append(self.clock.time)
        self.clock.time += timedelta(hours=self.hours)
        self.clock.stopped = len(self.started) >= self.stop_after
        return self.codes[len(self.started) - 1] if self.codes else 0


def day(number: int, hour: int = 2) -> datetime:
    return datetime(2026, 3, number, hour, tzinfo=UTC)


def scheduled(folder: Path, job: Runs, **options: Any) -> tuple[int, list[dict[str, Any]]]:
    log: list[dict[str, Any]] = []
    schedule = Schedule(**{"cron": NIGHTLY, **options})
    return run_schedule(schedule, job, job.clock, folder / "schedule.json", log.append), log


def events(log: list[dict[str, Any]]) -> list[str]:
    return [entry["event"] for entry in log]


def test_runs_at_its_times(tmp_path: Path) -> None:
    job = Runs(Hands())
    code, log = scheduled(tmp_path, job, max_runs=3)
    assert job.started == [day(28), day(29), day(30)]
    assert code == 0
    assert events(log) == ["waiting", "started", "finished"] * 3 + ["stopped"]
    assert read_last(tmp_path / "schedule.json", NIGHTLY) == day(30)


def test_times_are_those_of_a_timezone_also_when_clocks_change() -> None:
    berlin = Cron.parse("30 3 * * *", "Europe/Berlin")
    times = berlin.missed(day(27), day(30, 12))
    assert [moment.isoformat()[5:16] for moment in times] == [
        "03-27T02:30",
        "03-28T02:30",
        "03-29T01:30",  # from here on summer time
        "03-30T01:30",
    ]


@pytest.mark.parametrize(
    ("policy", "started"),
    [
        ("none", [day(31)]),
        ("last", [day(30, 12), day(31)]),
        ("all", [day(30, 12), day(30, 12) + timedelta(minutes=30), day(30, 12) + timedelta(minutes=60)]),
    ],
)
def test_catches_up_after_downtime(tmp_path: Path, policy: str, started: list[datetime]) -> None:
    write_last(tmp_path / "schedule.json", NIGHTLY, day(27))
    job = Runs(Hands(day(30, 12)))
    _, log = scheduled(tmp_path, job, max_runs=len(started), catch_up=policy)
    assert job.started == started
    missed = {"none": [3], "last": [2], "all": []}[policy]
    assert [entry["times"] for entry in log if entry["event"] == "missed"] == missed


def test_thousands_of_missed_times_are_one_line_and_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A month of minutes took six minutes before its one run, and SIGTERM waited for them."""
    written: list[datetime] = []
    monkeypatch.setattr("engine.jobs.schedule.write_last", lambda *args: written.append(args[2]))
    monkeypatch.setattr("engine.jobs.schedule.read_last", lambda *args: day(27))
    job = Runs(Hands(day(28)))
    _, log = scheduled(tmp_path, job, cron=Cron("* * * * *"), max_runs=1)
    assert events(log) == ["missed", "started", "finished", "stopped"]
    missed, before = log[0], day(28) - timedelta(minutes=1)
    assert (missed["times"], missed["why"]) == (1_439, "--catch-up last")
    assert missed["scheduled"] == (day(27) + timedelta(minutes=1)).isoformat()
    assert missed["until"] == before.isoformat()
    assert written == [before, day(28)]


def test_a_run_that_takes_longer_than_a_day_overlaps_with_none(tmp_path: Path) -> None:
    job = Runs(Hands(), hours=50)
    _, log = scheduled(tmp_path, job, max_runs=2, catch_up="last")
    assert job.started == [day(28), day(30, 4)]
    assert events(log).count("missed") == 1


def test_another_writer_is_skipped_and_a_failure_ends_nothing(tmp_path: Path) -> None:
    job = Runs(Hands(), 5, 2, 0)
    code, log = scheduled(tmp_path, job, max_runs=3)
    assert [entry["event"] for entry in log if "exit_code" in entry] == ["skipped", "failed", "finished"]
    assert code == 0
    assert scheduled(tmp_path / "b", Runs(Hands(), 5), max_runs=1)[0] == 0
    assert scheduled(tmp_path / "c", Runs(Hands(), 2), max_runs=1)[0] == 2


def test_a_stop_during_a_run_starts_no_other_and_loses_none(tmp_path: Path) -> None:
    write_last(tmp_path / "schedule.json", NIGHTLY, day(26))
    job = Runs(Hands(day(28, 12)), stop_after=1)
    scheduled(tmp_path, job, catch_up="all")
    assert len(job.started) == 1
    assert read_last(tmp_path / "schedule.json", NIGHTLY) == day(27)
    rest = Runs(Hands(day(28, 20)), stop_after=1)
    scheduled(tmp_path, rest, catch_up="all")
    assert read_last(tmp_path / "schedule.json", NIGHTLY) == day(28)


def test_a_first_start_is_remembered(tmp_path: Path) -> None:
    clock = Hands()
    clock.stopped = True
    scheduled(tmp_path, Runs(clock))
    assert read_last(tmp_path / "schedule.json", NIGHTLY) == START


@pytest.mark.parametrize(
    "stored",
    [
        "[]",
        "7",
        '{"0 2 * * * UTC": 7}',
        '{"0 2 * * * UTC": "2026-03-01T00:00:00"}',
        '{"0 2 * * * UTC": "9999-12-31T23:59:59+00:00"}',
        '{"0 2 * * * UTC": "0001-01-01T00:00:00+23:59"}',
    ],
)
def test_a_forged_time_starts_anew(stored: str, tmp_path: Path) -> None:
    """A list ended the scheduler, a time to come stopped it for ever, and one long ago filled its memory."""
    (tmp_path / "schedule.json").write_text(stored)
    job = Runs(Hands())
    code, log = scheduled(tmp_path, job, max_runs=1)
    assert code == 0
    assert len(job.started) == 1
    assert len(log) < 40


@given(st.integers(0, 200), st.sampled_from(["none", "last", "all"]))
def test_what_is_caught_up_with_is_of_what_was_missed(hours: int, policy: str) -> None:
    missed = NIGHTLY.missed(START, START + timedelta(hours=hours))
    chosen = caught_up(missed, catch_up_policy(policy))
    assert set(chosen) <= set(missed)
    assert len(chosen) == {"none": 0, "last": min(len(missed), 1), "all": len(missed)}[policy]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Cron.parse("61 2 * * *"), "not a cron expression"),
        (lambda: Cron.parse("0 2 * * * *"), "it has 6 fields"),
        (lambda: Cron.parse("*/0 * * * *"), "the step 0 of the minute is not between 1 and 60"),
        (lambda: Cron.parse("0 */999 * * *"), "the step 999 of the hour is not between 1 and 24"),
        (lambda: Cron.parse("0 2 * * *", "Europe/Atlantis"), "no such timezone"),
        (lambda: catch_up_policy("some"), "none, last or all"),
    ],
)
def test_what_cannot_be_scheduled(make: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


def test_the_command_checks_before_it_waits(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(json.dumps(recipe_for(tmp_path / "data", tmp_path / "out")))
    found = CliRunner().invoke(app, ["schedule", str(recipe), "--cron", "0 2 * *"])
    assert found.exit_code == 2
    assert "cron expression" in found.output


SCRIPT = """
import json, sys
from pathlib import Path
from engine.jobs.cron import Cron
from engine.jobs.schedule import Process, Schedule, SystemClock, run_schedule, signals, write_last
from datetime import datetime, UTC, timedelta
folder = Path(sys.argv[1])
cron = Cron("* * * * *")
write_last(folder / "s.json", cron, datetime.now(UTC) - timedelta(minutes=3))
child = "import signal, time; signal.signal(signal.SIGINT, lambda *_: exit(130)); "
child += "print('up', flush=True); time.sleep({})"
clock, job = SystemClock(), Process([sys.executable, "-c", child.format(sys.argv[2])])
with signals(clock, job):
    log = lambda entry: print(json.dumps(entry), flush=True)
    run_schedule(Schedule(cron), job, clock, folder / "s.json", log)
"""


@pytest.mark.parametrize(("seconds", "terms", "outcome"), [(2, 1, "finished"), (60, 2, "failed")])
def test_sigterm_lets_a_run_end_and_twice_stops_it(
    tmp_path: Path, seconds: int, terms: int, outcome: str
) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    for line in process.stdout:
        if line.strip() == "up":
            break
    for _ in range(terms):
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(0.2)
    log = [json.loads(line) for line in process.stdout]
    assert process.wait() == 0
    assert [entry["event"] for entry in log] == [outcome, "stopped"]
