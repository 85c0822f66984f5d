"""Airflow: an operator that runs a recipe as a job of a Ray cluster and holds no worker while it waits.

It needs Airflow 3 and nothing else of Rowsieve than this package: it starts the command ``rowsieve``, which
may lie in another environment (``command``), and reads what it prints (``engine/JSON.md``). So the pins of
Airflow and of Rowsieve need not agree. ``deploy/ORCHESTRATORS.md`` has an example.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Sequence
from typing import Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent

__all__ = ["RowsieveJobOperator", "RowsieveJobTrigger"]

NOT_REPEATED = (2, 3)
"""Exit codes of recipes and data that cannot be used: the same run fails again."""


class RowsieveJobOperator(BaseOperator):  # type: ignore[misc]
    """Submits a recipe to a Ray cluster and waits in the triggerer until its job has ended.

    A repeated try finds the job of the first one, unless that has failed: the same run is one job. If a job
    ends with exit code 2 or 3 (the recipe or the data cannot be used), the task fails without a further try.

    Parameters
    ----------
    recipe
        The recipe's file, for the machine that runs this task.
    address
        Dashboard of the cluster's head. The token comes from the environment (``RAY_AUTH_TOKEN_PATH``), also
        in the triggerer.
    overrides
        Changes of the recipe, as with ``--set``.
    key
        Name of the run, such as ``"{{ ds }}"``, where its source cannot be listed from here.
    options
        Further options of ``rowsieve submit``, such as ``["--shared-files"]``.
    command
        The command, such as ``["/opt/rowsieve/bin/rowsieve"]``.
    poll_seconds
        Time between two questions for the job's state.

    Returns
    -------
    The record of the job as XCom, by ``rowsieve status JOB --json``: ``metadata`` has version and output.

    """

    template_fields: Sequence[str] = ("recipe", "address", "overrides", "key", "options")

    def __init__(
        self,
        *,
        recipe: str,
        address: str,
        overrides: Sequence[str] = (),
        key: str | None = None,
        options: Sequence[str] = (),
        command: Sequence[str] = ("rowsieve",),
        poll_seconds: float = 30.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.recipe, self.address, self.key = recipe, address, key
        self.overrides, self.options = list(overrides), list(options)
        self.command, self.poll_seconds = list(command), poll_seconds

    def execute(self, context: Any) -> dict[str, Any]:
        """Submit the recipe; return the job's record if it has ended, and wait in the triggerer otherwise."""
        changes = [word for change in self.overrides for word in ("--set", change)]
        key = ["--key", self.key] if self.key else []
        words = [
            *self.command,
            "submit",
            self.recipe,
            "--address",
            self.address,
            *changes,
            *key,
            *self.options,
        ]
        done = subprocess.run([*words, "--json"], stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
        if done.returncode:
            _fail(done.returncode, "rowsieve submit failed; its message is in the log of this task")
        record: dict[str, Any] = json.loads(done.stdout)
        if record["exit_code"] is None:
            trigger = RowsieveJobTrigger(record["id"], self.address, self.command, self.poll_seconds)
            self.defer(trigger=trigger, method_name="finish")
        return self.finish(context, record)

    def finish(self, context: Any, event: dict[str, Any]) -> dict[str, Any]:
        """Return the record of a job that has ended. Raises AirflowException if it has failed."""
        if code := event["exit_code"]:
            _fail(code, f"the job {event['id']} has {event['state'].lower()}: {event['message']}")
        return event


class RowsieveJobTrigger(BaseTrigger):  # type: ignore[misc]
    """Waits until a job has ended; its event is the job's record. The job is cancelled if its task is."""

    def __init__(self, job: str, address: str, command: Sequence[str], poll_seconds: float) -> None:
        super().__init__()
        self.job, self.address, self.command, self.poll_seconds = job, address, list(command), poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments from which the triggerer makes the trigger anew."""
        names = ("job", "address", "command", "poll_seconds")
        return "rowsieve.airflow.RowsieveJobTrigger", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[Any]:
        """Ask for the job's state until it is final."""
        while True:
            record = await self._ask("status")
            if record["exit_code"] is not None:
                yield TriggerEvent(record)
                return
            await asyncio.sleep(self.poll_seconds)

    async def on_kill(self) -> None:
        """Cancel the job. The work that it has committed is kept."""
        await self._ask("cancel")

    async def _ask(self, verb: str) -> dict[str, Any]:
        words = [*self.command, verb, self.job, "--address", self.address, "--json"]
        process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        text, _ = await process.communicate()
        if process.returncode:
            _fail(
                process.returncode,
                f"rowsieve {verb} {self.job} failed; its message is in the triggerer's log",
            )
        found: dict[str, Any] = json.loads(text)
        return found


def _fail(code: int, text: str) -> NoReturn:
    """Raise the exception of an exit code."""
    kind = AirflowFailException if code in NOT_REPEATED else AirflowException
    raise kind(f"{text} (exit code {code})")
