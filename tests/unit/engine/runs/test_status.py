"""The status of a plan's run, read from files."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine.plan.planner import make_plan
from engine.runs import status
from engine.storage.lease.base import Holder
from tests.data import small_recipe


@pytest.mark.parametrize(("began", "told"), [(-60.0, True), (60.0, False)])
def test_the_error_of_an_earlier_run_is_not_that_of_one_that_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, began: float, told: bool
) -> None:
    plan, now = make_plan(small_recipe(tmp_path)), time.time()
    journal = Path(str(plan.output)) / "runs" / "error.json"
    journal.parent.mkdir(parents=True)
    journal.write_text(json.dumps({"version": plan.version, "error": "stopped", "exit_code": 1, "at": now}))
    holder = Holder("me", "here", 1, datetime.fromtimestamp(now + began, UTC).isoformat(), "boot")
    monkeypatch.setattr(status, "has_active_writer", lambda output: False)
    monkeypatch.setattr(status, "read_holder", lambda output: holder)
    monkeypatch.setattr(status, "seconds_since_heartbeat", lambda output: 13.0)
    found = status.status_of(plan)
    assert found["died"]
    assert (found["last_error"] is not None) is told
