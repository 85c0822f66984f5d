"""Worst true-group accuracy on clean test rows: ERM, class balance, default weights, GRASP and the oracle.

    python -m tests.paper.robust

Writes ROBUST.md; figures computed before are kept under ``build/paper`` until code they depend on changes.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from engine.core.json_files import write_text
from tests.paper.cells import METHODS, TRAINING, kept
from tests.paper.data_sets import SkippedError
from tests.paper.robust.methods import (
    BALANCED,
    CB,
    DEFAULT,
    ERM,
    GRASP,
    ORACLE,
    PLAIN,
    PUBLISHED,
    WEIGHTS_1,
    evaluate,
)
from tests.paper.robust.problems import PROBLEMS
from tests.paper.tables import head, line, mean_sd, short

RESULTS = Path(__file__).parents[1] / "ROBUST.md"
CODE = (
    *METHODS,
    *TRAINING,
    "operators/cues",
    "operators/class_shares.py",
    "tests/paper/class_problems.py",
    "tests/paper/robust",
)
SEEDS = tuple(range(int(os.environ.get("ROWSIEVE_ROBUST_SEEDS", "5"))))
"""The environment variable bounds the time."""
MIN_WAY = 0.03
Run = dict[str, dict[str, float]]
"""Method -> figures of one seed."""
COMPARED = (ERM, CB, DEFAULT, GRASP, WEIGHTS_1, PLAIN, PUBLISHED, BALANCED, ORACLE)
SHARES = (DEFAULT, GRASP, PLAIN, BALANCED)
TOP = """\
# Worst-group accuracy without group labels

Written by `make paper` on {date}; do not edit. Mean over {seeds} seeds (standard deviation) of the accuracy
of the worst true group, on clean test rows. All share model and optimiser. The floor is the better of ERM
and class-balanced ERM (CB), by means over the seeds. "Share": how much of the way from the floor to oracle
group DRO, which knows true groups and which rows are damaged, a method goes, capped at 1; a dash where the
way is under .03. Nothing but the oracle sees a true group. "Default weights" are those of the operator
`cues`, as in the default recipe, with ERM; "GRASP" is group DRO on the groups of `groups: {{method:
grasp}}` with the trust of `weights`. "Oracle weights" is ERM on the undamaged rows with weights that balance
the true groups: what row weights can do for that trainer if everything is known.
"""


def main() -> None:
    """Compute what is missing, then write the page."""
    found: dict[str, list[Run]] = {}
    skipped = {}
    for name, make in PROBLEMS.items():
        try:
            found[name] = [
                kept(f"robust-{name}-{seed}", lambda m=make, s=seed: evaluate(m(s), s), CODE)
                for seed in SEEDS
            ]
        except SkippedError as reason:
            skipped[name] = str(reason)
        print(name, "done" if name in found else "skipped", file=sys.stderr, flush=True)
    lines = head("problem", *COMPARED, *(f"share, {method}" for method in SHARES))
    for name, runs in found.items():
        cells = [
            mean_sd([run[method]["worst"] if method in run else np.nan for run in runs])
            for method in COMPARED
        ]
        lines.append(line(name, *cells, *(share_cell(runs, method) for method in SHARES)))
    top = TOP.format(date=datetime.now(UTC).date(), seeds=len(SEEDS))
    notes = "".join(f"\nNot here: {name}; {why}.\n" for name, why in skipped.items())
    bars = "\n".join(targets(found))
    write_text(RESULTS, f"{top}{notes}\n{bars}\n\n" + "\n".join(lines) + "\n")


def targets(found: dict[str, list[Run]]) -> list[str]:
    """Return the targets that were stated beforehand beside the measured figures."""
    lines = head("target", "wanted", *SHARES, "met by the default")
    for kind, some, wanted in (("up to 5 %", False, 0.85), ("10 %", True, 0.8)):
        with_way = [
            runs
            for name, runs in found.items()
            if ("10%" in name) == some and share(runs, DEFAULT) is not None
        ]
        means = [float(np.mean([share(runs, method) or 0.0 for runs in with_way])) for method in SHARES]
        what = f"mean share over the {len(with_way)} problems with {kind} damaged rows and a way of .03"
        lines.append(
            line(what, f">= {short(wanted, 2)}", *(short(m, 2) for m in means), yes(means[0] >= wanted))
        )
    below = {
        method: max((floor_of(runs) - mean_of(runs, method), name) for name, runs in found.items())
        for method in SHARES
    }
    depths = [f"{short(depth, 3)} ({name})" for depth, name in below.values()]
    return [*lines, line("furthest below the floor", "<= 0", *depths, yes(below[DEFAULT][0] <= 0))]


def yes(met: bool) -> str:
    """Return the text of a table's cell for a target that was met or not."""
    return "yes" if met else "**no**"


def mean_of(runs: list[Run], method: str) -> float:
    """Worst-group accuracy, mean over seeds."""
    return float(np.mean([run[method]["worst"] for run in runs]))


def floor_of(runs: list[Run]) -> float:
    """Return the better of ERM and class-balanced ERM, by means over the seeds."""
    return max(mean_of(runs, ERM), mean_of(runs, CB))


def share(runs: list[Run], method: str) -> float | None:
    """Of the way from floor to oracle, by means over seeds, capped at 1; None where there is hardly any."""
    if any(method not in run for run in runs):
        return None
    low, ours, high = floor_of(runs), mean_of(runs, method), mean_of(runs, ORACLE)
    return min((ours - low) / (high - low), 1.0) if high - low >= MIN_WAY else None


def share_cell(runs: list[Run], method: str) -> str:
    """:func:`share` in the table."""
    found = share(runs, method)
    return "-" if found is None else short(found, 2)


if __name__ == "__main__":
    main()
