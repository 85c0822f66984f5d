"""Tests of what a run offers to its plugins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.core.events import silent
from engine.execution.local_executor import LocalExecutor
from engine.plan.model import Plan
from engine.runs.plugins.base import MAX_ROWS_IN_PROCESS, MAX_SHARDS_IN_PROCESS, RunContext
from engine.storage.lease import Lease


class OpenedExecutor(LocalExecutor):
    """Stands for Ray."""


def context(n_shards: int, n_rows: int, *, is_open: bool) -> tuple[RunContext, OpenedExecutor]:
    plan = cast(Plan, SimpleNamespace(shards=[None] * n_shards, n_rows=n_rows))
    ray = OpenedExecutor()
    lease = cast(Lease, cast(Any, None))
    return RunContext(plan, lease, silent, lambda: ray, lambda: is_open), ray


@pytest.mark.parametrize(
    ("n_shards", "n_rows", "is_open", "in_process"),
    [
        (6, 1_797, False, True),
        (6, 1_797, True, True),  # tasks of Ray take longer than the counting
        (6, MAX_ROWS_IN_PROCESS + 1, False, True),  # Ray takes longer to start
        (6, MAX_ROWS_IN_PROCESS + 1, True, False),
        (MAX_SHARDS_IN_PROCESS + 1, 1_797, False, False),
        (MAX_SHARDS_IN_PROCESS + 1, 1_797, True, False),
    ],
)
def test_steps_of_small_runs_are_carried_out_in_this_process(
    n_shards: int, n_rows: int, is_open: bool, in_process: bool
) -> None:
    run, ray = context(n_shards, n_rows, is_open=is_open)
    chosen = run.executor_for_step("report")
    assert (chosen is not ray) == in_process
    assert ray.operator == ("" if in_process else "report")
