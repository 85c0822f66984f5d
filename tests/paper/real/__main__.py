"""Writes ``tests/paper/REAL.md``: the study (``study.md``) and tables of end-to-end runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tests.paper.real.flow import Outcome, run_table
from tests.paper.real.tables import TABLES, missing

SEEDS = tuple(range(int(os.environ.get("ROWSIEVE_REAL_SEEDS", "3"))))
"""The environment variable bounds the time: a seed of all tables takes about ten minutes of one core."""
METHODS = ("ERM", "CB", "oracle", "weights", "retrain erm")
MIN_HEADROOM = 0.03
HERE = Path(__file__).parent
MARK = "<!-- end to end -->"


def main() -> None:
    """Run every table that is there and write the page; names the tables that are not."""
    lines = [
        "| table | ERM | CB | oracle | published weights | `retrain --trainer erm` | weights - floor "
        "| share | gate |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in TABLES:
        if reason := missing(name):
            print(f"{name} is left out: {reason}")
            continue
        found = []
        for seed in SEEDS:
            with TemporaryDirectory() as folder:
                found.append(run_table(TABLES[name](), seed, Path(folder) / "run"))
            print(name, seed, found[-1], flush=True)
        lines.append(row(name, found))
    page = (HERE / "study.md").read_text("utf-8").replace(MARK, "\n".join(lines))
    (HERE.parent / "REAL.md").write_text(page, "utf-8")


def row(name: str, outcomes: Sequence[Outcome]) -> str:
    """Return a table's row: means over the seeds of worst true group / mean accuracy."""
    texts = []
    for method in METHODS:
        scores = [outcome.scores[method] for outcome in outcomes]
        worst, mean = (np.mean([getattr(score, part) for score in scores]) for part in ("worst", "mean"))
        texts.append(f"{worst:.3f} / {mean:.3f}")
    floors = [max(o.scores["ERM"].worst, o.scores["CB"].worst) for o in outcomes]
    gains = [o.scores["weights"].worst - floor for o, floor in zip(outcomes, floors, strict=True)]
    headroom = np.mean([o.scores["oracle"].worst - floor for o, floor in zip(outcomes, floors, strict=True)])
    share = f"{min(np.mean(gains) / headroom, 1.0):.2f}" if headroom >= MIN_HEADROOM else "way under .03"
    gates = ", ".join(f"{outcome.gate:.2f}" for outcome in outcomes)
    gain = f"{np.mean(gains):+.3f} (worst {min(gains):+.3f})"
    return f"| {name} | {' | '.join(texts)} | {gain} | {share} | {gates} |"


if __name__ == "__main__":
    main()
