"""DCKM's table 1 and figure 2 on three of its data sets, and lambda chosen without labels.

    python -m tests.paper.dckm [--quick] [--without-grid]

Writes ../DCKM.md; figures computed before are kept under ``build/paper``. ``--quick``: one data set, two
seeds, four settings, printed only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from engine.core.json_files import write_text
from operators.dckm.selection import GRID, MIN_SHARE, TriedPair, select_pair
from tests.paper.data_sets import SkippedError
from tests.paper.dckm.loops import LOOPS, after_loops
from tests.paper.dckm.published import NOTED, PUBLISHED
from tests.paper.dckm.runs import SETS, STATED, dckm, every_method, kept, load
from tests.paper.tables import head, line, mean_sd, short

RESULTS = Path(__file__).parents[1] / "DCKM.md"
SEEDS = tuple(range(12))
GRID_SEEDS = (500,)
LOOP_SEEDS = (0, 1)
ALLOWED = 0.03
METHODS = (
    "random labels",
    "k-means",
    "k-means++",
    "Lloyd, random partition",
    "PCA+KM",
    "PCA+KM, random partition",
    "Drop+KM",
    "Drop+KM, random partition",
    "Dec+KM, random partition",
    "DCKM, k-means++",
    "DCKM, lambda as in earlier pages",
    "DCKM",
)
Runs = dict[str, list[dict[str, dict[str, Any]]]]
DckmSettings = dict[tuple[float, float], list[dict[str, Any]]]

TOP = """\
# DCKM: published figures and ours

Written by `make paper` on {date}; do not edit. Mean over {seeds} seeds (standard deviation); a seed draws
the start. K = 10, lambda = ({stated}, 1) in the paper's units unless said otherwise, 20 loops. The features
as shipped: 800 visual words, -1 or +1 (the paper says 500, and 0 or 1). On them the first two terms of
equation 7 are 4 times as large, so the estimator is given lambda2 and lambda3 4 times as large. Pages before
23 November 2026 did not do so; their setting is a line of table 1. The paper fixes lambda3 = 1 and does not
say which lambda1 and lambda2 of its grid its tables have. "Random labels" is the floor: NMI of 10 random
groups is well above 0 on so few rows. The published baselines do not say how they start.
"""
SECTION_METHODS = """
## Table 1

"Random partition" starts from the means of a random partition, as DCKM does; the other baselines from ten
random rows. **The fair baseline is Lloyd from a random partition**: what DCKM gains over it is due to the
weights, what it gains over k-means is also due to the start.
"""
SECTION_CHECK = """
## Does it come out?

Ours beside the published figures and beside those noted from a prototype before this was written; "yes" is
within {allowed}.
"""
SECTION_FIGURE_2 = """
## Figure 2: amount of correlation

Frobenius norm of the off-diagonal covariance, unweighted and under the weights; and effective sample size
as a share of the rows.
"""
SECTION_LOOPS = """
## Where it goes when it goes on

A unit of weight costs up to 200 by the error of the clusters and saves 2 lambda3 = 2 by the sum's penalty, so
the sum of weights falls towards 0; what is left is the balance cost, which does not depend on the scale. So
the weights become those of "Dec", and clusters shape them in the first loops alone: the stated 20 loops are a
parameter.
"Balance" is the share of lambda1 times its cost in the objective; {seeds} seeds.
"""
SECTION_NO_GRID = """
## lambda without labels

Not computed for this page: `python -m tests.paper.dckm` without `--without-grid` does, in ten minutes of CPU
time.
"""
SECTION_LAMBDA = """
## lambda without labels

The rule (`operators/dckm/selection.py`): of the paper's grid of lambda1 x lambda2, the setting that leaves
the least correlation with an effective sample size of at least {share:.0%} of the rows. It was written down
before the grid was run, and sees no label. "Oracle" is the setting of the largest NMI *by the true labels*
on the starts of the grid, as the paper seems to choose; it is no method. Settings were tried on {starts}
start(s); the figures are of the {seeds} seeds above, which the choice has not seen.
"""


def main() -> None:
    """Compute what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one data set, two seeds; print, write nothing")
    parser.add_argument("--without-grid", action="store_true", help="leave out the choice of lambda")
    options = parser.parse_args()
    quick = options.quick
    names, seeds = (SETS[:1], SEEDS[:2]) if quick else (SETS, SEEDS)
    grid = (0.01, 10.0) if quick else GRID
    try:
        runs = {name: [_methods(name, seed) for seed in seeds] for name in names}
        loops = {name: [_loops(name, seed) for seed in LOOP_SEEDS] for name in names}
        chosen = {} if options.without_grid else {name: _chosen(name, grid, seeds) for name in names}
    except SkippedError as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return
    text = page(runs, loops, chosen, len(seeds))
    if quick:
        print(text)
    else:
        write_text(RESULTS, text)


def page(runs: Runs, loops: Runs, chosen: dict[str, list[str]], n_seeds: int) -> str:
    """The whole page."""
    stated = ", ".join(f"{value:g}" for value in STATED)
    parts = [TOP.format(date=datetime.now(UTC).date(), seeds=n_seeds, stated=stated)]
    parts += [SECTION_METHODS, *_section(methods_table(runs))]
    parts += [SECTION_CHECK.format(allowed=f"{ALLOWED:g}"), *_section(check_table(runs))]
    parts += [SECTION_FIGURE_2, *_section(figure_2(runs))]
    parts += [SECTION_LOOPS.format(seeds=len(LOOP_SEEDS)), *_section(loops_table(loops))]
    if not chosen:
        return "".join([*parts, SECTION_NO_GRID])
    parts.append(SECTION_LAMBDA.format(share=MIN_SHARE, starts=len(GRID_SEEDS), seeds=n_seeds))
    lines = head("data", "chosen by", "lambda1, lambda2", "NMI", "ARI", "effective share", "correlation")
    return "".join([*parts, *_section(lines + [row for rows in chosen.values() for row in rows])])


def methods_table(runs: Runs) -> list[str]:
    """NMI / ARI of every method, and the published ones."""
    lines = head("method", *(f"{name}: {kind}" for name in runs for kind in ("ours", "published")))
    for method in METHODS:
        cells = []
        for name, found in runs.items():
            cells.append(" / ".join(mean_sd(_column(found, method, score)) for score in ("nmi", "ari")))
            published = PUBLISHED.get((name, method))
            cells.append(" / ".join(short(value, 3) for value in published) if published else "")
        lines.append(line(method, *cells))
    return lines


def check_table(runs: Runs) -> list[str]:
    """DCKM beside what was expected."""
    lines = head(
        "data", "score", "ours", "published", "difference", "within", "noted", "difference", "within"
    )
    for name, found in runs.items():
        for index, score in enumerate(("nmi", "ari")):
            ours = _column(found, "DCKM", score)
            cells = [name, score.upper(), mean_sd(ours)]
            for expected in (PUBLISHED[name, "DCKM"], NOTED[name]):
                gap = np.mean(ours) - expected[index]
                verdict = "yes" if abs(gap) <= ALLOWED else "**no**"
                cells += [short(expected[index], 3), f"{gap:+.3f}", verdict]
            lines.append(line(*cells))
    return lines


def figure_2(runs: Runs) -> list[str]:
    """Correlation before and after, of DCKM and of weights alone."""
    lines = head("data", "unweighted", "DCKM", "effective share", "Dec", "effective share")
    for name, found in runs.items():
        cells = [mean_sd(_column(found[:1], "DCKM", "before"), 1)]
        for method, places in (("DCKM", 1), ("Dec+KM, random partition", 1)):
            cells.append(mean_sd(_column(found, method, "after"), places))
            cells.append(mean_sd(_column(found, method, "share"), 2))
        lines.append(line(name, *cells))
    return lines


def loops_table(loops: Runs) -> list[str]:
    """Return the table of the weights after more and more loops."""
    lines = head("data", "loops", "NMI", "ARI", "sum of weights", "balance", "effective share")
    for name, found in loops.items():
        for number in map(str, LOOPS):
            scores = [mean_sd(_column(found, number, score)) for score in ("nmi", "ari", "sum")]
            shares = [mean_sd(_column(found, number, score), 2) for score in ("balance", "share")]
            lines.append(line(name, number, *scores, *shares))
    return lines


def _chosen(name: str, grid: Sequence[float], seeds: Iterable[int]) -> list[str]:
    """Rows of the table of lambdas, for one data set."""
    settings: DckmSettings = {
        (lambda1, lambda2): [_fit(name, seed, (lambda1, lambda2)) for seed in GRID_SEEDS]
        for lambda1 in grid
        for lambda2 in grid
    }
    tried = [
        TriedPair(
            *pair, float(np.mean([f["share"] for f in fits])), float(np.mean([f["after"] for f in fits]))
        )
        for pair, fits in settings.items()
    ]
    picked = select_pair(tried)
    oracle = max(settings, key=lambda pair: np.mean([fit["nmi"] for fit in settings[pair]]))
    choices = {"stated": STATED, "rule": (picked.lambda1, picked.lambda2), "oracle, by labels": oracle}
    rows = []
    for choice, pair in choices.items():
        found = [{"fit": _fit(name, seed, pair)} for seed in seeds]
        figures = [mean_sd(_column(found, "fit", score)) for score in ("nmi", "ari")]
        figures += [mean_sd(_column(found, "fit", "share"), 2), mean_sd(_column(found, "fit", "after"), 1)]
        rows.append(line(name, choice, ", ".join(f"{value:g}" for value in pair), *figures))
    everyone = [{"fit": {k: np.mean([f[k] for f in fits]) for k in fits[0]}} for fits in settings.values()]
    figures = [mean_sd(_column(everyone, "fit", score)) for score in ("nmi", "ari")]
    figures += [
        mean_sd(_column(everyone, "fit", score), places) for score, places in (("share", 2), ("after", 1))
    ]
    rows.append(line(name, "nobody: all settings (sd over settings)", "all", *figures))
    print(f"{name}: settings done", file=sys.stderr, flush=True)
    return rows


def _methods(name: str, seed: int) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = kept(f"{name}-{seed}", lambda: every_method(name, seed))
    return found


def _loops(name: str, seed: int) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = kept(f"loops-{name}-{seed}", lambda: after_loops(name, seed))
    return found


def _fit(name: str, seed: int, pair: tuple[float, float]) -> dict[str, Any]:
    found: dict[str, Any] = kept(
        f"{name}-{seed}-{pair[0]:g}-{pair[1]:g}", lambda: dckm(load(name), seed, pair)
    )
    return found


def _column(found: Sequence[dict[str, dict[str, Any]]], method: str, score: str) -> list[float]:
    return [run[method][score] for run in found]


def _section(lines: Iterable[str]) -> list[str]:
    return ["\n", "\n".join(lines), "\n"]


if __name__ == "__main__":
    main()
