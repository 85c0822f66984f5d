"""The operator for Airflow, with stand-ins for Airflow's classes and for the command.

`tests/cluster/test_orchestrators_ray.py` runs it in Airflow itself, on a cluster.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engine.core.errors import Exit


class TryError(Exception):
    """Stands for AirflowException: Airflow tries again."""


class LastTryError(TryError):
    """Stands for AirflowFailException: no further try."""


class DeferredError(Exception):
    """The task has left its worker."""


class Operator:
    def __init__(self, *, task_id: str) -> None:
        self.task_id = task_id

    def defer(self, **values: Any) -> None:
        raise DeferredError(values)


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module ``rowsieve.airflow`` over stand-ins."""
    made: dict[str, dict[str, Any]] = {
        "airflow": {},
        "airflow.sdk": {"BaseOperator": Operator},
        "airflow.sdk.exceptions": {"AirflowException": TryError, "AirflowFailException": LastTryError},
        "airflow.triggers": {},
        "airflow.triggers.base": {"BaseTrigger": object, "TriggerEvent": lambda payload: payload},
    }
    for name, values in made.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "rowsieve.airflow", raising=False)
    yield importlib.import_module("rowsieve.airflow")
    sys.modules.pop("rowsieve.airflow", None)


def command(folder: Path, *answers: dict[str, Any], code: int = 0) -> list[str]:
    """A command that keeps its arguments in ``calls`` and prints one answer at each call."""
    for number, answer in enumerate(answers):
        (folder / f"answer{number}").write_text(json.dumps(answer))
    script = folder / "rowsieve"
    script.write_text(
        "#!/bin/sh\n"
        f'cd "{folder}"\necho "$*" >> calls\ncat "answer$(($(wc -l < calls) - 1))" 2> none\nexit {code}\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return [str(script)]


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def record(state: str, code: int | None) -> dict[str, Any]:
    return {"id": "job", "state": state, "exit_code": code, "message": "why", "metadata": {"version": "v"}}


def operator(airflow: Any, words: list[str], **given: Any) -> Any:
    return airflow.RowsieveJobOperator(
        task_id="curate", recipe="r.yaml", address="http://head:8265", command=words, **given
    )


def test_a_running_job_is_waited_for_elsewhere(airflow: Any, tmp_path: Path) -> None:
    words = command(tmp_path, record("PENDING", None))
    task = operator(airflow, words, overrides=["seed=1"], key="monday", options=["--shared-files"])
    with pytest.raises(DeferredError) as left:
        task.execute({})
    (values,) = left.value.args
    assert values["method_name"] == "finish"
    assert calls(tmp_path) == [
        "submit r.yaml --address http://head:8265 --set seed=1 --key monday --shared-files --json"
    ]
    path, given = values["trigger"].serialize()
    module, _, name = path.rpartition(".")
    assert getattr(sys.modules[module], name)(**given).serialize() == (path, given)
    assert json.loads(json.dumps(given)) == given


def test_a_job_that_has_ended_before_is_not_waited_for(airflow: Any, tmp_path: Path) -> None:
    found = record("SUCCEEDED", 0)
    assert operator(airflow, command(tmp_path, found)).execute({}) == found


@pytest.mark.parametrize("code", [code for code in Exit if code != Exit.DONE])
def test_only_a_run_that_may_succeed_is_tried_again(airflow: Any, tmp_path: Path, code: Exit) -> None:
    kind = LastTryError if code in (Exit.BAD_INPUT, Exit.BUDGET) else TryError
    with pytest.raises(TryError, match=rf"job has failed: why \(exit code {int(code)}\)") as ended:
        operator(airflow, []).finish({}, record("FAILED", int(code)))
    assert type(ended.value) is kind
    with pytest.raises(TryError, match="submit failed") as refused:
        operator(airflow, command(tmp_path, code=int(code))).execute({})
    assert type(refused.value) is kind


def test_the_trigger_asks_until_the_job_has_ended(airflow: Any, tmp_path: Path) -> None:
    states = [record("PENDING", None), record("RUNNING", None), record("FAILED", 3)]
    trigger = airflow.RowsieveJobTrigger("job", "http://head:8265", command(tmp_path, *states), 0.0)

    async def events() -> list[Any]:
        return [event async for event in trigger.run()]

    assert asyncio.run(events()) == [states[-1]]
    assert calls(tmp_path) == ["status job --address http://head:8265 --json"] * 3


def test_a_task_that_is_ended_by_a_user_cancels_its_job(airflow: Any, tmp_path: Path) -> None:
    trigger = airflow.RowsieveJobTrigger(
        "job", "http://head:8265", command(tmp_path, record("STOPPED", 1)), 0.0
    )
    asyncio.run(trigger.on_kill())
    assert calls(tmp_path) == ["cancel job --address http://head:8265 --json"]


def test_a_question_that_fails_ends_the_try(airflow: Any, tmp_path: Path) -> None:
    trigger = airflow.RowsieveJobTrigger("job", "http://head:8265", command(tmp_path, code=4), 0.0)
    with pytest.raises(TryError, match=r"rowsieve status job failed.*exit code 4"):
        asyncio.run(anext(trigger.run()))
