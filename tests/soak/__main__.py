"""All nights, their figures as lines of JSON, and what must not have grown: ``python -m tests.soak``."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.soak.growth import check, summary
from tests.soak.nights import Soak
from tests.soak.world import Night, plan


def main() -> None:
    """Carry out the nights, and print a table and what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--nights", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=40.0, help="no night begins later")
    parser.add_argument(
        "--compare-every", type=int, default=1, help="nights between comparisons from scratch"
    )
    parser.add_argument("--folder", type=Path, help="where to work; default: a temporary folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        soak = Soak(given.folder or Path(temporary), given.seed, given.compare_every)
        try:
            seconds = carry_out(soak, plan(given.nights, given.seed), 60 * given.minutes)
        finally:
            soak.close()
    print(summary(soak.figures, seconds))
    check(soak.figures)


def carry_out(soak: Soak, nights: Sequence[Night], seconds: float) -> float:
    """Carry out the nights of which none begins later than ``seconds``; return the seconds that it took."""
    started = time.monotonic()
    for night in nights:
        if time.monotonic() - started > seconds:
            print(f"the time is up before night {night.number}")
            break
        soak.night(night)
    return time.monotonic() - started


if __name__ == "__main__":
    main()
