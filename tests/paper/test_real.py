"""One real table through the commands of a user; skipped where the tables are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.paper.real.flow import run_table
from tests.paper.real.tables import TABLES, missing


@pytest.mark.slow
@pytest.mark.skipif(bool(missing("law")), reason=missing("law") or "the table is there")
def test_default_weights_do_no_harm_on_law(tmp_path: Path) -> None:
    found = run_table(TABLES["law"](), 0, tmp_path / "run")
    floor = max(found.scores["ERM"].worst, found.scores["CB"].worst)
    assert found.scores["weights"].worst > floor - 0.03
    assert found.scores["retrain erm"].worst > found.scores["ERM"].worst
