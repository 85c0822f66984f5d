"""Settings that Ray Data copies when a dataset is created."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

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
