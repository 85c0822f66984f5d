"""EOS against the figures of its paper: detection, wrong labels, cost.

    python -m tests.paper.eos [--quick] [--only detection|mislabel|cost]

Writes ../EOS.md and ../plots/eos_cost.png from what has been computed under ``build/paper``; what is missing
is computed first, and after an edit to EOS or to this folder everything is. ``--quick``: two seeds of a few
settings, printed only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from engine.core.json_files import write_json, write_text
from tests.paper.eos import cost, detection, mislabel
from tests.paper.tables import head, line, mean_sd, short

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]
RESULTS = FOLDER.parent / "EOS.md"
PLOT = FOLDER.parent / "plots" / "eos_cost.png"
KEPT = ROOT / "build" / "paper" / "eos"
PARTS = ("detection", "mislabel", "cost")
SEEDS = range(1000, 1003)
"""Not used while the rule for alpha was made (those were 0 to 4)."""
SPLITS = range(4)
FEWEST = 2
"""Seeds of settings beyond :data:`LARGE` numbers."""
LARGE = 100_000
Found = dict[str, list[dict[str, dict[str, float]]]]

TOP = """\
# EOS: published figures and ours

Written by `make paper` on {date}; do not edit. In parentheses: standard deviation over seeds.
"""
SECTION_DETECTION = """
## Figures 1 A to F: outliers in Gaussian rows

(1 - p) T rows of N(0, I), p T rows uniform on [1, 6]^D; {seeds} seeds, {fewest} where T D > {large:,} or
where p or T varies; none of them was used to make the rule for alpha. Where nothing is flagged, precision
counts as 1. "p given": the detector is told the true share of outliers, which EOS is not. The paper's alphas
are set by hand for each D. Precision:
"""
SECTION_MISLABEL = """
## Figure 1 G: breast cancer with wrong labels

scikit-learn's breast cancer (the same table), {splits} random splits: half to train on, with wrong labels, a
quarter to choose parameters on and a quarter to test on, both with right ones. Every classifier gets a small
grid. The paper's AUC is on the validation rows themselves; ours is on test rows. It does not say how labels
were made wrong. With half of them flipped no classifier can beat .5 on average, so that its .970 cannot be
meant that way. "alpha auto" sees no right label when it picks alpha, only when it picks the number of boxes.
"""
SECTION_DETECTED = """
What came out: with the paper's alphas, precision is within .01 of the published at every D. Alpha picked
without labels is as precise, for some recall at D = 3 and 4. No detector that is not told p is as precise
below D = 50; EllipticEnvelope, which is told, is on a par. LOF and OneClassSVM fail as these outliers lie
together; where LOF's precision is 1 it flags nothing.
"""
SECTION_CLASSIFIED = """
What came out: EOS with a logistic loss gains in every split over the same learner without it at shares .5 and
.6, and has the largest mean from .3 on. What did not: SPA here is below its published figures at few errors,
and EOS + SPA gains 0 to .02 over SPA, which is within the spread; it is not the best classifier.
"""
SECTION_COST = """
## Cost

CPU time, one thread, grows as T^{weights} (weights) and T^{iteration} (iteration) beyond 10,000 rows; the
weight step takes {least} to {most} ms at {length:,} rows whatever the number of features.

![CPU time against rows and features](plots/eos_cost.png)
"""


def kept(part: str, name: str, compute: Callable[[], Any]) -> Any:
    """A JSON value of a part from its file, or computed."""
    path = KEPT / f"{part}-{name}-{_digest(part)}.json".replace(" ", "-")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, compute())
        print(name, file=sys.stderr, flush=True)
    return json.loads(path.read_text("utf-8"))


@cache
def _digest(part: str) -> str:
    files = [FOLDER / f"{part}.py", *sorted((ROOT / "operators" / "eos").glob("*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def settings() -> list[tuple[str, int, int, float]]:
    """Heading, T, D and p of every setting of the figures, by what varies."""
    n, d, p = detection.ROWS, detection.FEATURES, detection.SHARE
    varied = [(f"D = {each}", n, each, p) for each in detection.ALPHAS]
    varied += [(f"p = {short(each, 2)}", n, d, each) for each in detection.SHARES]
    return varied + [(f"T = {each:,}", each, d, p) for each in detection.SIZES]


def detect(seeds: Iterable[int], which: Sequence[tuple[str, int, int, float]]) -> Found:
    """Figures by heading, one for each seed."""
    seeds = list(seeds)
    return {
        name: [
            kept(
                "detection",
                f"{n}-{d}-{p}-{seed}",
                lambda n=n, d=d, p=p, s=seed: detection.measured(n, d, p, s),
            )
            for seed in (seeds[:FEWEST] if n * d > LARGE or not name.startswith("D") else seeds)
        ]
        for name, n, d, p in which
    }


def detection_tables(found: Found) -> list[str]:
    """Precision, recall, and the clean rows that are flagged."""
    lines = [*of(found, "D =", "precision", published=True), ""]
    lines += ["Recall:", "", *of(found, "D =", "recall"), ""]
    held = f"D = {detection.FEATURES}, T = {detection.ROWS:,}"
    lines += [f"Against p ({held}); precision:", "", *of(found, "p =", "precision"), ""]
    lines += ["Recall:", "", *of(found, "p =", "recall"), ""]
    lines += ["Share of the clean rows that is flagged:", "", *of(found, "p =", "false"), ""]
    held = f"D = {detection.FEATURES}, p = {short(detection.SHARE, 2)}"
    lines += [f"Against T ({held}); precision:", "", *of(found, "T =", "precision"), ""]
    return [*lines, "Recall:", "", *of(found, "T =", "recall")]


def of(found: Found, start: str, what: str, published: bool = False) -> list[str]:
    """One table: detectors against the settings whose heading starts so."""
    columns = [name for name in found if name.startswith(start)]
    lines = head("", *columns)
    if published:
        lines.append(line("EOS, published", *(short(value, 3) for value in detection.PUBLISHED.values())))
    for name in found[columns[0]][0]:
        lines.append(
            line(name, *(mean_sd([run[name][what] for run in found[c] if name in run]) for c in columns))
        )
    return lines


def mislabel_tables(splits: Iterable[int], shares: Sequence[float], kinds: Iterable[str]) -> list[str]:
    """AUC by classifier and share, one table for each kind of error."""
    splits, lines = list(splits), list[str]()
    for kind in kinds:
        runs = {
            share: [
                kept(
                    "mislabel",
                    f"{kind}-{share}-{s}",
                    lambda p=share, k=kind, s=s: mislabel.evaluated(p, k, s),
                )
                for s in splits
            ]
            for share in shares
        }
        lines += ["", f"**{kind}**: {mislabel.KINDS[kind]}.", "", *head("", *(short(p, 1) for p in shares))]
        for name, values in mislabel.PUBLISHED.items():
            published_cells = [short(values[mislabel.SHARES.index(share)], 3) for share in shares]
            lines.append(line(f"{name}, published", *published_cells))
        for name in runs[shares[0]][0]:
            lines.append(line(name, *(mean_sd([run[name] for run in runs[p]]) for p in shares)))
    return lines


def cost_section() -> str:
    """Draws the plot."""
    found = kept("cost", "all", cost.measured)
    cost.draw(found, PLOT)
    times = [1e3 * y[cost.WEIGHTS] for _, y in found["features"]]
    return SECTION_COST.format(
        weights=f"{cost.slopes(found['rows'], cost.WEIGHTS):.2f}",
        iteration=f"{cost.slopes(found['rows'], cost.ITERATION):.2f}",
        least=f"{min(times):.2g}",
        most=f"{max(times):.2g}",
        length=cost.LENGTH,
    )


def page() -> str:
    """The whole of EOS.md."""
    parts = [
        TOP.format(date=datetime.now(UTC).date()),
        SECTION_DETECTION.format(seeds=len(SEEDS), fewest=FEWEST, large=LARGE),
        *detection_tables(detect(SEEDS, settings())),
        SECTION_DETECTED,
        SECTION_MISLABEL.format(splits=len(SPLITS)),
        *mislabel_tables(SPLITS, mislabel.SHARES, mislabel.KINDS),
        SECTION_CLASSIFIED,
        cost_section(),
    ]
    return "\n".join(parts).rstrip() + "\n"


def main() -> None:
    """Compute what is missing, then write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=PARTS)
    chosen = parser.parse_args()
    if chosen.quick:
        few = [setting for setting in settings() if setting[0] in ("D = 4", "D = 20", "p = .20", "T = 500")]
        print("\n".join(of(detect(SEEDS[:2], few), "D =", "precision")))
        print("\n".join(mislabel_tables(SPLITS[:2], (0.0, 0.3), ("redrawn",))))
    elif chosen.only == "detection":
        detect(SEEDS, settings())
    elif chosen.only == "mislabel":
        mislabel_tables(SPLITS, mislabel.SHARES, mislabel.KINDS)
    elif chosen.only == "cost":
        cost_section()
    else:
        write_text(RESULTS, page())


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    main()
