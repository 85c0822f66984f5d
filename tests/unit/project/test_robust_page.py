"""The targets of ``tests/paper/ROBUST.md`` are stated on shares from the better floor, 1 at most."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.paper.robust.__main__ import share, targets
from tests.paper.robust.methods import BALANCED, CB, DEFAULT, ERM, GRASP, ORACLE, PLAIN

PAGE = (Path(__file__).parents[2] / "paper/ROBUST.md").read_text("utf-8")


def run(part: float, way: float = 0.2) -> list[dict[str, dict[str, float]]]:
    """The runs of a problem on which the default weights go this part of the way from floor to oracle."""
    worst = {ERM: 0.1, CB: 0.2, ORACLE: 0.2 + way, DEFAULT: 0.2 + way * part, GRASP: 0.2, PLAIN: 0.1}
    worst[BALANCED] = 0.2 + way
    return [{method: {"worst": value} for method, value in worst.items()}]


def test_one_share_above_one_does_not_meet_a_target() -> None:
    found = {
        "COMPAS": run(1.83),
        "a": run(0.6),
        "b": run(0.6),
        "c, 10% damaged": run(0.8),
        "d": run(1.0, 0.02),
    }
    some, most, depth = (row for row in targets(found) if "share" in row or "below" in row)
    assert "over the 3 problems" in some, "d has next to no way"
    assert "| .73 | .00 | -.50 | 1.00 | **no** |" in some
    assert "| .80 | .00 | -.50 | 1.00 | yes |" in most
    assert "| 0.100 (d) | **no**" not in depth
    assert depth.endswith("| yes |")


def test_the_way_begins_at_the_better_floor() -> None:
    assert share(run(0.5), DEFAULT) == pytest.approx(0.5)
    assert share(run(0.5), ERM) == pytest.approx(-0.5)
    assert share(run(0.5, 0.02), DEFAULT) is None


@pytest.mark.parametrize(("kind", "damaged", "wanted"), [("up to 5 %", False, 0.85), ("10 %", True, 0.8)])
def test_the_page_states_the_mean_of_its_own_table(kind: str, damaged: bool, wanted: float) -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    problems = [row for row in rows if len(row) == 14 and row[10] not in ("share, default weights", "-")]
    shares = [float(row[10]) for row in problems if ("10%" in row[0]) == damaged]
    (target,) = (row for row in rows if f"over the {len(shares)} problems with {kind} damaged" in row[0])
    (measured,) = re.findall(r"^-?\.?\d*\.?\d+", target[2])
    assert float(measured) == pytest.approx(float(np.mean(shares)), abs=0.011)
    assert ("yes" in target[-1]) == (float(np.mean(shares)) >= wanted)
