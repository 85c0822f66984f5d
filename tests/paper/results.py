"""Writes RESULTS.md: the tables of GRASP's group identification beside ours, and every other method.

make paper
"""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from engine.core.json_files import write_text
from tests.paper.cells import all_figures
from tests.paper.data_sets import TEXT_ROWS
from tests.paper.published import CLEAN, CONTAMINATED
from tests.paper.tables import (
    COMPAS,
    DIGITS,
    OTHER_DATA,
    PAPERS_DATA,
    TEXT,
    Found,
    claims_table,
    floor_table,
    of,
    scores_table,
    table_3,
    table_5,
)

RESULTS = Path(__file__).with_name("RESULTS.md")
PACKAGES = ("numpy", "scipy", "scikit-learn", "torch")

TOP = """\
# Group identification: published figures and ours

Written by `make paper` on {date}; do not edit. Python {python}, {packages}, {machine},
OMP_NUM_THREADS={threads}.

Figures are adjusted Rand indices (ARI) unless said otherwise; all noise counts as one group, and so does
each class's set of flipped labels. In parentheses: standard deviation over seeds. "Group := class label" is
the floor: a method below it says less than the label does. No method sees the truth.

- *Minority recall*: share of the rows of minority groups (all but the largest true group of a class,
  damaged rows left out) that lie in a group most of whose rows are of the same true group. Many small
  groups score high: read the number of groups too.
- *Outlier precision, recall*: of the rows in no group, against rows known to be damaged.
- `select: silhouette` is the paper's rule for eps and min_samples; `select: coverage` is our default.
- EIIL is at its optimum over all rows (`operators/groups/eiil.py`), not after some batches.
- Group DRO trained on these groups (the paper's table 4) is in `TABLE4.md`.
"""
SECTION_5 = """
## Table 5: clustering methods in two spaces, Synthetic

Ours on the paper's data (seed 123): mean over five training seeds. Feature space needs no training, so its
spread is 0. The paper's text says k = 2 for k-means; its contaminated figure in feature space is what k = 3
gives.
"""
SECTION_3 = """
## Table 3: methods of group learning

COMPAS: 12 groups, sex x race {{Caucasian, African-American, other}} x label, by the paper's definition;
probe and clustered rows by its appendix E.1. CivilComments is not here: "madlibs" is {text_rows} rows drawn
from another set (label x template, 12 groups; linear probe on sentence vectors), so that its figures say
nothing about the published ones.
"""
SECTION_CLAIMS = """
## What came out, and what did not

Ours: mean over five training seeds on the paper's data; COMPAS over five splits. The probe's learning rate,
batch order and initial weights are not published, so figures in gradient space are not expected to four
digits.
"""
SECTION_FLOOR = """
## How often a method's ARI is above the floor

Synthetic: six data sets each. A single figure above its published value means little where the floor is as
high.
"""
SECTION_DIGITS = """
## Demo digits

Seeds 5 to 9: those that had no part in choosing the probe's l2.
"""
SECTION_COMPAS = """
## COMPAS

The rows have no known outliers.
"""
SECTION_TEXT = """
## Text: madlibs

Label x template; one template has 94 % of the rows, so that the label alone is a high floor.
"""


def page(found: Found, skipped: dict[str, str]) -> str:
    """The whole of RESULTS.md."""
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    top = TOP.format(
        date=datetime.now(UTC).date(),
        python=platform.python_version(),
        packages=packages,
        machine=platform.machine(),
        threads=os.environ.get("OMP_NUM_THREADS", "not set"),
    )
    parts = [
        top + "".join(f"- Not here: {data}; {why}.\n" for data, why in skipped.items()),
        *(SECTION_5, *table_5(found)),
        *(SECTION_3.format(text_rows=f"{TEXT_ROWS:,}"), *table_3(found)),
        *(SECTION_CLAIMS, *claims_table(found)),
        *(SECTION_FLOOR, *floor_table(found)),
        *(SECTION_DIGITS, *scores_table(found, DIGITS)),
        *("\n## Synthetic, seeds 0 to 4\n\nClean:\n", *scores_table(found, of(OTHER_DATA, CLEAN))),
        *("\nContaminated:\n", *scores_table(found, of(OTHER_DATA, CONTAMINATED))),
        *(SECTION_COMPAS, *scores_table(found, COMPAS)),
        *(SECTION_TEXT, *scores_table(found, TEXT)),
    ]
    return "\n".join(parts) + "\n"


def main() -> None:
    """Compute what is missing, then write the page."""

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    found, skipped = all_figures(PAPERS_DATA + OTHER_DATA + DIGITS + COMPAS + TEXT, say)
    write_text(RESULTS, page(found, skipped))
    say(f"{RESULTS.name} written")


if __name__ == "__main__":
    main()
