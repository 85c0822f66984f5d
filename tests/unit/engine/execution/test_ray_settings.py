"""Settings of Ray: what it copies when a dataset is created, and what it prints."""

import logging
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.core.errors import InputError
from engine.execution.cluster import messages_logged
from engine.execution.job import Job
from operators.base import Resources


class CreatedError(Exception):
    """Ends the call once the dataset is created."""


@pytest.mark.parametrize(("seconds", "expected"), [(30.0, 30.0), (0.0, -1)])
def test_the_first_dataset_has_the_limit_of_silence(
    seconds: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray
    import ray.data

    from engine.execution import ray_executor

    found: list[Any] = []

    def from_items(*_: Any, **__: Any) -> None:
        found.append(ray.data.DataContext.get_current().execution_no_progress_timeout_s)
        raise CreatedError

    monkeypatch.setattr(ray.data.DataContext.get_current(), "execution_no_progress_timeout_s", 12345)
    monkeypatch.setattr(ray.data, "from_items", from_items)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2})
    monkeypatch.setattr(ray_executor, "check_feasible", lambda *_: None)
    operator = SimpleNamespace(name="probe", resources=Resources(), prefers_gpu=False, keeps_open=False)
    job = cast(Job, SimpleNamespace(operator=operator))
    with pytest.raises(CreatedError):
        list(ray_executor.RayExecutor(no_progress_seconds=seconds).apply(job, [0]))
    assert found == [expected]


@pytest.mark.parametrize("fault", [None, "row 3 is faulty"])
def test_tasks_whose_results_nobody_takes_are_cancelled(
    fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They went on on the cluster, and the next run waited for their CPUs."""
    import ray

    from engine.execution import ray_executor

    cancelled: list[int] = []
    remote = SimpleNamespace(remote=lambda fn, item, max_bytes: item)
    monkeypatch.setattr(ray, "remote", lambda **_: lambda fn: remote)
    monkeypatch.setattr(ray, "put", lambda value: value)
    monkeypatch.setattr(ray, "wait", lambda tasks, **_: (tasks, []))
    monkeypatch.setattr(ray, "get", lambda task: (task, InputError(fault) if fault and task == 1 else None))
    monkeypatch.setattr(ray, "cancel", cancelled.append)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 4})
    monkeypatch.setattr(ray_executor, "check_feasible", lambda *_: None)
    results = cast(Generator[int], ray_executor.RayExecutor().map(abs, range(6)))
    assert next(results) == 0
    if fault is None:
        results.close()
    else:
        with pytest.raises(InputError, match=fault):
            next(results)
    assert cancelled == ([1, 2, 3] if fault is None else [2, 3, 4])
    cancelled.clear()
    assert list(ray_executor.RayExecutor().map(abs, range(1))) == [0]
    assert cancelled == []


def test_tasks_of_one_operator_open_it_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.execution import ray_executor, shard_stages

    class Worker:
        def __init__(self, job: Any, **_: Any) -> None:
            self.job = job

    monkeypatch.setattr(shard_stages, "ShardWorker", Worker)
    first, second = cast(Job, "job"), cast(Job, "job of the next run")
    opened = ray_executor.KeptWorker.of(first, "a")
    assert ray_executor.KeptWorker.of(first, "a") is opened
    assert cast(Any, ray_executor.KeptWorker.of(second, "b")).job == second
    assert ray_executor.KeptWorker.of(first, "a") is not opened
    assert ray_executor._call(abs, -3) == (3, None)
    assert ray_executor.KeptWorker.worker is None


def test_messages_of_ray_are_logged_and_not_printed(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Ray prints the trace of a worker that died to standard output, where records of ``--json`` are."""
    from ray._private import worker

    message = {"lines": ["Traceback (most recent call last):"], "pid": "raylet", "is_err": False}
    with caplog.at_level(logging.DEBUG, "rowsieve"), messages_logged():
        worker.print_to_stdstream(message, ignore_prefix=False)
    assert capsys.readouterr() == ("", "")
    assert "Traceback" in caplog.text
    worker.print_to_stdstream(message, ignore_prefix=False)
    assert "Traceback" in capsys.readouterr().out
