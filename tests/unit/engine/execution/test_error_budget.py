"""The budget of rows that may be quarantined, where its share of the rows is not exact in binary."""

from types import SimpleNamespace
from typing import cast

import pytest

from engine.core.errors import BudgetError
from engine.execution.quarantine import allowed_rows, check_budget
from engine.plan.model import Plan


def plan_of(rate: float, rows: int) -> Plan:
    source = SimpleNamespace(on_error="quarantine", max_error_rate=rate)
    parts = {"store": SimpleNamespace(folder=str), "fingerprint_of": str}
    return cast("Plan", SimpleNamespace(recipe=SimpleNamespace(source=source), n_rows=rows, **parts))


@pytest.mark.parametrize(("rate", "rows"), [(0.29, 100), (0.1, 30), (0.125, 16), (0.0, 240), (1.0, 240)])
def test_as_many_rows_are_allowed_as_are_checked(rate: float, rows: int) -> None:
    """Of 100 rows, .29 are 28.999999999999996: 29 ended a run, "and source.max_error_rate allows 29.00%"."""
    plan = plan_of(rate, rows)
    allowed = allowed_rows(plan)
    assert allowed == round(rate * rows)
    check_budget(plan, allowed, "probe")
    with pytest.raises(BudgetError, match=f"{allowed + 1} of {rows} rows are faulty"):
        check_budget(plan, allowed + 1, "probe")


def test_a_part_of_a_row_is_no_row() -> None:
    assert allowed_rows(plan_of(0.333, 3)) == 0
    assert allowed_rows(plan_of(0.1, 19)) == 1
