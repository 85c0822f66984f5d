"""What may not grow from night to night, and the table of what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tests.soak.measures import Figures

ROWS_PER_RUN = ("metrics", "params", "tags", "inputs")
"""Tables of MLflow of which every run fills as many rows as any other of its kind."""
MIB_PER_NIGHT = 2.0
"""Growth of the driver's memory from which it counts as one; beside it the rows of all nights are planned."""

MANY = 15
"""Fewest nights after the first third that show a slow growth."""
MOST_HANDLES = 40
"""Open handles of the driver on fewer nights: the first training and the first export open some."""


def check(figures: Sequence[Figures]) -> None:
    """Raise AssertionError for what has grown. The first third of the nights fills what is filled once."""
    early, later = figures[: len(figures) // 3 + 1], figures[len(figures) // 3 + 1 :]
    for figure in figures:
        _check_files(figure)
    most = max(f.handles for f in early) + 3 if len(later) >= MANY else MOST_HANDLES
    assert max(f.handles for f in later) <= most, "open handles"
    assert max(f.threads for f in later) <= max(f.threads for f in early), "threads"
    assert max(f.state_files for f in later) <= max(f.state_files for f in early) + 2, "files of states"
    for table in ROWS_PER_RUN:
        then, now = (max(rows_per_run(part, table)) for part in (early, later))
        most = then * (1.1 if len(later) >= MANY else 2.0)
        assert now <= most, f"rows of MLflow's {table} for each run: {now:.1f} after {then:.1f}"
    if len(later) >= MANY:
        slope = float(np.polyfit([f.night for f in later], [f.mib for f in later], 1)[0])
        assert slope < MIB_PER_NIGHT, f"the driver's memory grows by {slope:.2f} MiB a night"


def _check_files(figure: Figures) -> None:
    """Check the files beside those of the run store, which are counted where they lie."""
    files, versions = figure.files, figure.versions
    assert figure.temporary == 0, "temporary files are left"
    assert files[".lease"] == 1
    assert files["reports"] == 3 * versions
    assert files["runs"] <= 2 * versions + 2  # with the progress, and the error of the last run
    assert files.get("runs/increments", 0) <= versions
    assert files.get("runs/pending", 0) == 0
    assert figure.stored <= 9 * versions


def rows_per_run(figures: Sequence[Figures], table: str) -> list[float]:
    """Return how many rows of a table each run of a night has filled; a training counts as a run."""
    found = []
    for before, after in pairwise(figures):
        runs = after.mlflow["runs"] - before.mlflow["runs"]
        if runs:
            found.append((after.mlflow[table] - before.mlflow[table]) / runs)
    return found or [0.0]


def time_fit(figures: Sequence[Figures]) -> tuple[float, float, float]:
    """Fit the CPU seconds of the nights that only placed their rows.

    Returns the seconds of a night without rows, those of a thousand new rows, and those of a thousand rows in
    all, which every night lists, counts and publishes again.
    """
    placed = [figure for figure in figures if figure.outcome == "predict"]
    design = [[1.0, figure.new_rows / 1000, figure.rows / 1000] for figure in placed]
    found, *_ = np.linalg.lstsq(np.array(design), np.array([f.cpu_seconds for f in placed]), rcond=None)
    return float(found[0]), float(found[1]), float(found[2])


def summary(figures: Sequence[Figures], seconds: float) -> str:
    """Return the figures as text: a line for every fifth night, and the fit."""
    lines = [f"{len(figures)} nights in {seconds / 60:.1f} min"]
    head = ("night", "rows", "shards", "versions", "files", "handles", "peak MiB", "MLflow rows", "s")
    lines.append("  ".join(f"{name:>11}" for name in head))
    for f in figures[4::5]:
        values = (f.night, f.rows, f.shards, f.versions, sum(f.files.values()), f.handles, f.peak_mib)
        lines.append("  ".join(f"{v:>11,}" for v in (*values, sum(f.mlflow.values()), f.seconds)))
    outcomes = {name: sum(f.outcome == name for f in figures) for name in ("full", "refit", "predict")}
    trained, promoted = sum(f.trained for f in figures), sum(f.promoted for f in figures)
    compared = sum(bool(f.compared) for f in figures)
    lines.append(f"outcomes {outcomes}, trained {trained}, promoted {promoted}, compared {compared}")
    if outcomes["predict"] > 3:
        fixed, new, total = time_fit(figures)
        lines.append(
            f"a night that places its rows takes {fixed:.2f} CPU s + {new:.2f} per 1,000 new rows + "
            f"{total:.2f} per 1,000 rows in all"
        )
    return "\n".join(lines)
