"""Events of a run: counts, and the rate of the whole run and of one worker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from engine import run
from engine.cli.progress import describe, fit_place
from engine.core.events import Event, Meter
from engine.execution.local_executor import LocalExecutor
from engine.execution.progress_executor import ProgressExecutor
from engine.runs.plugins import Prometheus, RunContext
from engine.runs.plugins.prometheus import DESCRIPTIONS
from tests.data import small_recipe


def test_pace_of_one_worker_counts_only_what_was_computed_now() -> None:
    heard: list[Event] = []
    meter = Meter(heard.append, "gradients", total_rows=100, total_shards=4)
    meter.add(40, 2)  # committed by an earlier run
    assert heard[-1].rows_per_worker_second == 0
    meter.add(30, worked=0.5)
    meter.add(30, worked=1.5)
    last = heard[-1]
    assert (last.rows, last.shards, last.worked_rows, last.worked_seconds) == (100, 4, 60, 2.0)
    assert last.rows_per_worker_second == 30


def test_the_line_of_a_finished_operator() -> None:
    counts = {"rows": 100, "total_rows": 100, "shards": 4, "total_shards": 4, "seconds": 2.0}
    line = describe(Event("finish", "gradients", **counts, worked_rows=60, worked_seconds=2.0))
    assert line == "gradients  done     100 rows, 4 shards, 50 rows/s (30 per worker), 2.0 s"
    assert "per worker" not in describe(Event("finish", "publish", **counts))


def test_a_run_tells_the_pace_of_its_workers(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path)
    result = run(recipe)
    assert all(operator.rows_per_worker_second > 0 for operator in result.operators)
    again = run(recipe)
    assert all(operator.rows_per_worker_second == pytest.approx(0) for operator in again.operators)


def test_a_watched_executor_counts_passes_and_pieces_and_changes_no_result() -> None:
    heard: list[tuple[int, int, int]] = []
    watched = ProgressExecutor(LocalExecutor(), lambda *place: heard.append(place))
    assert list(watched.map(str, [5, 6])) == ["5", "6"]
    assert list(watched.map(str, [7])) == ["7"]
    assert heard == [(1, 0, 2), (1, 1, 2), (1, 2, 2), (2, 0, 1), (2, 1, 1)]
    assert watched.kind == "local"


def test_a_fit_tells_its_place_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.4, 0.6, 0.6, 0.6, 0.7, 1.2, 1.2, 1.2])
    monkeypatch.setattr("engine.core.events.time.perf_counter", lambda: next(clock))
    heard: list[Event] = []
    meter = Meter(heard.append, "eos")
    for piece in range(4):
        meter.fit_progress(3, piece, 4)
    assert [(event.kind, event.pieces) for event in heard] == [("fit", 1), ("fit", 3)]
    assert fit_place(heard[-1]) == "fitting, pass 3: 3 of 4"
    assert fit_place(Event("fit", "eos")) == "fitting"


def test_every_fit_over_the_shards_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.core.events.FIT_EVERY_SECONDS", 0.0)
    heard: list[Event] = []
    run(small_recipe(tmp_path), listener=heard.append)
    assert {event.operator for event in heard if event.fit_pass} >= {"ingest", "groups", "weights", "split"}


def test_gauges_say_what_the_event_says(monkeypatch: pytest.MonkeyPatch) -> None:
    samples: dict[str, tuple[float, dict[str, str]]] = {}

    class Gauge:
        def __init__(self, name: str, **_: object) -> None:
            self.name = name

        def set(self, value: float, tags: dict[str, str]) -> None:
            samples[self.name] = (value, tags)

    plan = SimpleNamespace(recipe=SimpleNamespace(name="digits"), version="v1")
    run_context = cast(RunContext, SimpleNamespace(plan=plan))
    plugin = Prometheus()
    event = Event("progress", "probe", rows=30, total_rows=60, seconds=2.0, quarantined=4)
    plugin.operator_progressed(run_context, event)  # without Ray there is no exporter
    assert not samples
    monkeypatch.setattr("engine.runs.plugins.prometheus._ray_is_up", lambda: True)
    monkeypatch.setattr(plugin, "_gauge", Gauge)
    plugin.operator_progressed(run_context, event)
    assert set(samples) == set(DESCRIPTIONS)
    tags = {"recipe": "digits", "version": "v1", "operator": "probe"}
    assert samples["rowsieve_rows_per_second"] == (15.0, tags)
    assert samples["rowsieve_rows_quarantined"] == (4.0, tags)
