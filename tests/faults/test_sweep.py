"""A part of the sweep is the same for a seed, and ends in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults import sweep
from tests.faults.test_swept_output import FORGERIES, Swept


@pytest.fixture
def swept(tmp_path: Path) -> Swept:
    (tmp_path / "whole").mkdir()
    for name in ("a.json", "b.json"):
        (tmp_path / "whole" / name).write_text("{}")
    return Swept(tmp_path, (["run", "{recipe}"], ["status", "{recipe}"]), 2)


def test_the_order_is_that_of_the_seed(swept: Swept) -> None:
    first, again, other = (sweep.shuffled([swept], seed) for seed in (1, 1, 2))
    assert len(first) == 2 * len(FORGERIES) * 2
    assert first == again != other
    assert sorted(map(str, first)) == sorted(map(str, other))
    assert {case[3][0] for case in sweep.shuffled([swept], 1, ["status"])} == {"status"}


def test_it_counts_what_ran(swept: Swept, monkeypatch: pytest.MonkeyPatch) -> None:
    cases, seen = sweep.shuffled([swept], 1), list[Any]()

    def tried(*case: Any) -> str:
        seen.append(case)
        return "a trace" if len(seen) == 3 else ""

    monkeypatch.setattr(sweep, "tried", tried)
    assert sweep.sweep(cases, 60) == (len(cases), ["a trace"])
    assert seen == cases
    assert sweep.sweep(cases, -1) == (0, [])
