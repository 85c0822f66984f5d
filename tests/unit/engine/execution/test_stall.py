"""The no-progress guard with a clock of its own, and rates from commits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import Exit, InfeasibleError
from engine.execution.watchdog import StallGuard, is_stalled
from engine.runs.status import rate_of

TIMES = st.floats(0, 1e6)


@given(TIMES, TIMES, st.floats(0, 1e4))
def test_silence_is_a_stall_only_where_there_is_a_limit(last: float, gone: float, limit: float) -> None:
    assert is_stalled(last + gone, last, limit) == (limit > 0 and (last + gone) - last >= limit)
    assert not is_stalled(last + gone, last, 0)


def test_only_progress_restarts_the_clock() -> None:
    now = [0.0]
    guard = StallGuard("groups", 10, clock=lambda: now[0])
    for second in range(9):
        now[0] = second
        guard.done(3 if second > 4 else 0)
        guard.check()
    now[0] = 14.9
    guard.done(3)
    guard.check()
    now[0] = 15.0
    with pytest.raises(InfeasibleError, match=r"operators\.groups made no.* 3 pieces.*_seconds=20"):
        guard.check()
    assert InfeasibleError.exit_code is Exit.INFEASIBLE


def test_rates_of_commits() -> None:
    assert rate_of([], 0) is None
    assert rate_of([(5, 10)], 0) is None
    assert rate_of([(5, 10), (5, 10)], 0) is None
    assert rate_of([(7, 30), (5, 10), (6, 20)], 0) == 25
    assert rate_of([(7, 30), (5, 10), (6, 20)], 6) == 30
    assert rate_of([(5, 10), (7, 30)], 100) is None  # those of an earlier run
