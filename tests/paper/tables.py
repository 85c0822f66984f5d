"""Tables of RESULTS.md from scored cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from tests.paper import published
from tests.paper.cells import Cell, Figures
from tests.paper.data_sets import PAPER_SEED
from tests.paper.methods import METHODS, TABLE_5
from tests.paper.published import CLAIMS, CLEAN, CONTAMINATED

FLOOR = "class label (floor)"
SEEDS = (0, 1, 2, 3, 4)
UNTUNED = (5, 6, 7, 8, 9)  # of the digits; seeds 0 to 4 served to choose the probe's l2

PAPERS_DATA = [Cell(data, PAPER_SEED, s) for data in (CLEAN, CONTAMINATED) for s in SEEDS]
OTHER_DATA = [Cell(data, s, s) for data in (CLEAN, CONTAMINATED) for s in SEEDS]
DIGITS = [Cell("digits", s, 0) for s in UNTUNED]
COMPAS = [Cell("COMPAS", s, s) for s in SEEDS]
TEXT = [Cell("text", s, s) for s in SEEDS]
SCORES = {
    "ari": "ARI",
    "minority_recall": "minority recall",
    "outlier_precision": "outlier precision",
    "outlier_recall": "outlier recall",
    "groups": "groups",
    "noise": "noise",
    "seconds": "CPU s",
}
DIGITS_SHOWN = {"groups": 1, "seconds": 2}

Found = Mapping[Cell, Figures]


def mean_sd(values: Iterable[float], digits: int = 3) -> str:
    """``.694 (.012)``: mean and standard deviation; a dash where there is no figure."""
    kept = np.array([value for value in values if not np.isnan(value)])
    if not len(kept):
        return "-"
    mean = short(float(kept.mean()), digits)
    return mean if len(kept) == 1 else f"{mean} ({short(float(kept.std(ddof=1)), digits)})"


def short(value: float, digits: int = 4) -> str:
    """Without the zero before the point."""
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def column(found: Found, cells: Iterable[Cell], method: str, score: str = "ari") -> list[float]:
    return [found[cell][method][score] for cell in cells if method in found.get(cell, {})]


def of(cells: Iterable[Cell], data: str, seeds: Iterable[int] = (PAPER_SEED, *SEEDS)) -> list[Cell]:
    return [cell for cell in cells if cell.data == data and cell.seed in set(seeds)]


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def head(*names: str) -> list[str]:
    return [line(*names), "|" + "---|" * len(names)]


def table_5(found: Found) -> list[str]:
    ours = ("published", "ours, paper's data", "ours, seeds 0-4")
    lines = head("space, method", *(f"{kind}: {name}" for kind in ("clean", "contaminated") for name in ours))
    for method in (FLOOR, *TABLE_5):
        cells = [method]
        for data in (CLEAN, CONTAMINATED):
            cells += [known(published.TABLE_5, method, data), *synthetic_figures(found, method, data)]
        lines.append(line(*cells))
    return lines


def table_3(found: Found) -> list[str]:
    ours = ("published", "ours, paper's data", "ours, seeds 0-4")
    lines = head(
        "method",
        *(f"{kind}: {name}" for kind in ("clean", "contaminated") for name in ours),
        *("COMPAS: published", "ours", "CivilComments: published", "madlibs: ours"),
    )
    for method in METHODS:
        cells = [method]
        for data in (CLEAN, CONTAMINATED):
            cells += [known(published.TABLE_3, method, data), *synthetic_figures(found, method, data)]
        for data, own in (("COMPAS", COMPAS), ("CivilComments", TEXT)):
            cells += [known(published.TABLE_3, method, data), mean_sd(column(found, own, method))]
        lines.append(line(*cells))
    return lines


def known(table: Mapping[tuple[str, str], float], method: str, data: str) -> str:
    return short(table[method, data]) if (method, data) in table else ""


def synthetic_figures(found: Found, method: str, data: str) -> tuple[str, str]:
    return (
        mean_sd(column(found, of(PAPERS_DATA, data), method), 4),
        mean_sd(column(found, of(OTHER_DATA, data), method)),
    )


def scores_table(found: Found, cells: list[Cell]) -> list[str]:
    lines = head("method", *SCORES.values())
    for method in METHODS:
        shown = [mean_sd(column(found, cells, method, score), DIGITS_SHOWN.get(score, 3)) for score in SCORES]
        lines.append(line(method, *shown))
    return lines


def claims_table(found: Found) -> list[str]:
    """Every published figure beside ours, and whether it came out."""
    lines = head("table", "method", "data", "published", "ours", "difference", "came out")
    for claim in CLAIMS:
        ours = column(found, of(PAPERS_DATA + COMPAS, claim.data), claim.method)
        if not ours:
            continue
        figures = (short(claim.figure), mean_sd(ours, 4), f"{np.mean(ours) - claim.figure:+.4f}")
        lines.append(line(str(claim.table), claim.method, claim.data, *figures, claim.verdict(ours)))
    return lines


def floor_table(found: Found) -> list[str]:
    """Return the table of how often each method's ARI is above the floor."""
    sets = {
        "Synthetic clean": of(OTHER_DATA + PAPERS_DATA[:1], CLEAN),
        "Synthetic contaminated": of(OTHER_DATA + PAPERS_DATA[5:6], CONTAMINATED),
        "digits": DIGITS,
        "COMPAS": COMPAS,
        "text": TEXT,
    }
    lines = head("method", *sets)
    for method in METHODS:
        if method == FLOOR:
            continue
        cells = [method]
        for kept in sets.values():
            pairs = zip(column(found, kept, method), column(found, kept, method, "floor"), strict=True)
            above = [ari > floor for ari, floor in pairs]
            cells.append(f"{sum(above)} of {len(above)}" if above else "-")
        lines.append(line(*cells))
    return lines
