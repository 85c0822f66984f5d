"""The memory that the policy of an installation allows an operator, and its time."""

from __future__ import annotations

import resource
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.core.errors import InfeasibleError, InputError
from engine.core.events import Event
from engine.execution import memory_limit
from engine.execution.memory_limit import limited_memory
from engine.runs.plugins import RunContext, RunPlugin
from engine.runs.runner import run
from operators.base import Apply
from operators.gradients.adaptor import Gradients
from operators.probe.adaptor import Probe
from tests.data import small_recipe

MIB = 2**20


def megabytes(count: int) -> int:
    """Take so much memory, use it, and give it back."""
    return int(np.ones(count * MIB, np.uint8)[-1])


def test_more_than_is_allowed_is_a_memory_error() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with limited_memory(100 * MIB):
        assert megabytes(50)
        with pytest.raises(MemoryError):
            megabytes(2000)
        with limited_memory(10_000 * MIB), pytest.raises(MemoryError):  # the outer limit holds
            megabytes(2000)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert megabytes(500)


@pytest.mark.parametrize("most", [None, 100 * MIB])
def test_nothing_is_limited_without_a_limit_or_figures(
    most: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if most is not None:
        monkeypatch.setattr(memory_limit, "STATUS", tmp_path / "none")
    with limited_memory(most):
        assert megabytes(500)


def greedy(*_: Any) -> Any:
    megabytes(3000)


def opened(*_: Any) -> Apply:
    return greedy


@pytest.mark.parametrize(("kind", "step"), [(Probe, "fit"), (Gradients, "open")])
def test_an_operator_that_asks_for_more_is_named_with_the_limit(
    kind: type[Any], step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROWSIEVE_MAX_OPERATOR_BYTES", str(1000 * MIB))
    monkeypatch.setattr(kind, step, greedy if step == "fit" else opened)
    name = "probe" if step == "fit" else "gradients: shard 0"
    words = (
        rf"operators\.{name}: memory ran out.* 1,000 MiB on this installation.*ROWSIEVE_MAX_OPERATOR_BYTES"
    )
    with pytest.raises(InfeasibleError, match=words):
        run(small_recipe(tmp_path, shards=2))
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY


def idle(*_: Any) -> Any:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.01)


def test_an_operator_that_takes_too_long_is_ended_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROWSIEVE_MAX_OPERATOR_SECONDS", "2")
    monkeypatch.setattr(Probe, "fit", idle)
    started = time.monotonic()
    with pytest.raises(InputError, match=r"operators\.\w+: it has taken longer than the 2 seconds"):
        run(small_recipe(tmp_path, shards=1))
    assert time.monotonic() - started < 40


class SlowPlugin(RunPlugin):
    """Does not come back while an operator runs."""

    def operator_started(self, context: RunContext, event: Event) -> None:
        idle()


def test_the_time_of_an_operator_ends_a_plugin_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner reports what a plugin raises, and goes on; the end of the time is no error of a plugin."""
    monkeypatch.setenv("ROWSIEVE_MAX_OPERATOR_SECONDS", "2")
    started = time.monotonic()
    with pytest.raises(InputError, match=r"operators\.\w+: it has taken longer than the 2 seconds"):
        run(small_recipe(tmp_path, shards=1), plugins=[SlowPlugin()])
    assert time.monotonic() - started < 40


def starts_a_thread(*_: Any) -> Any:
    threads = [threading.Thread(target=time.sleep, args=(0.2,)) for _ in range(200)]
    for thread in threads:  # the stack of each takes eight megabytes
        thread.start()


def test_an_operator_without_memory_for_a_thread_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROWSIEVE_MAX_OPERATOR_BYTES", str(500 * MIB))
    monkeypatch.setattr(Probe, "fit", starts_a_thread)
    with pytest.raises(InfeasibleError, match=r"operators\.probe: memory ran out: can't start new thread"):
        run(small_recipe(tmp_path, shards=1))
