"""Settings of Ray: what it copies when a dataset is created, and what it prints."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

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
