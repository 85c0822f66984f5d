"""Run cases of the sweep over forged files of an output, in a random order, until the time is up.

    python -m tests.faults.sweep [--seed 17] [--minutes 60] [--folder /dev/shm] [--only run,retrain]

The cases that ran are a random part of all (``test_swept_output.py``), the same ones for a seed as far as the
time reaches. What is wrong is printed as it is found; the exit code is then 1. A folder in memory saves the
disk most of the work: every case copies an output.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.faults.test_swept_output import FORGERIES, Swept, make_published, make_trained, tried

Case = tuple[Swept, Path, str, list[str]]


def shuffled(swept: Sequence[Swept], seed: int, only: Sequence[str] = ()) -> list[Case]:
    """Return the cases of all outputs in the order of a seed; ``only`` names commands."""
    every = [(one, *case) for one in swept for case in one.cases(FORGERIES)]
    random.Random(seed).shuffle(every)
    return [case for case in every if not only or case[3][0] in only]


def sweep(cases: Sequence[Case], seconds: float) -> tuple[int, list[str]]:
    """Try cases until the time is up; return how many were tried, and what was wrong."""
    end, wrong = time.monotonic() + seconds, list[str]()
    for number, case in enumerate(cases):
        if time.monotonic() > end:
            return number, wrong
        if found := tried(*case):
            wrong.append(found)
            print(f"WRONG {found}", flush=True)
    return len(cases), wrong


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--only", default="", help="commands, with commas between")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sweep", dir=given.folder) as scratch:
        swept = []
        for make in (make_published, make_trained):
            folder = Path(scratch) / make.__name__
            folder.mkdir()
            swept.append(make(folder))
        cases = shuffled(swept, given.seed, [name for name in given.only.split(",") if name])
        ran, wrong = sweep(cases, 60 * given.minutes)
    kinds = Counter(words[0] for _, _, _, words in cases[:ran])
    named = ", ".join(f"{name} {count}" for name, count in kinds.most_common())
    print(f"seed {given.seed}: {ran:,} of {len(cases):,} cases ran ({named}), {len(wrong)} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
