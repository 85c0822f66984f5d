"""The grids from which GRASP picked eps and min_samples, as heat maps."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from engine.plan import Plan
from engine.report.pictures import png

FAILED = -1.0
TIED = 0.005
"""Scores that differ by less say nothing."""
MOST_CLASSES = 24
MOST_TEXTS = 200
"""Cells of a grid up to which each score is also written as a number."""


@dataclass(frozen=True)
class Grid:
    """The scores of one class. ``eps`` and ``min_samples`` are the pick."""

    class_name: str
    eps: float
    min_samples: int
    silhouette: float
    eps_grid: tuple[float, ...]
    min_samples_grid: tuple[int, ...]
    scores: NDArray[np.float64]
    """(n_eps, n_min_samples); nan where a setting failed: one cluster, or none."""

    @property
    def pick(self) -> tuple[int, int]:
        """Row and column of the pick."""
        return (
            int(np.argmin(np.abs(np.asarray(self.eps_grid) - self.eps))),
            int(np.argmin(np.abs(np.asarray(self.min_samples_grid) - self.min_samples))),
        )


def read_grids(plan: Plan, classes: list[str]) -> list[Grid]:
    """The recorded selections, by class; none if the group method leaves no such record."""
    names = {planned.name for planned in plan.operators}
    path = plan.store.state(plan.fingerprint_of("groups")) / "selection.json" if "groups" in names else None
    if path is None or not path.exists():
        return []
    record = json.loads(path.read_text("utf-8"))
    return [grid(entry, classes) for entry in record["classes"]]


def grid(entry: dict[str, Any], classes: list[str]) -> Grid:
    """One class's entry of the record."""
    scores = np.array(entry["scores"], dtype=np.float64)
    return Grid(
        class_name=classes[int(entry["class"])],
        eps=float(entry["eps"]),
        min_samples=int(entry["min_samples"]),
        silhouette=float(entry["silhouette"]),
        eps_grid=tuple(entry["eps_grid"]),
        min_samples_grid=tuple(entry["min_samples_grid"]),
        scores=np.where(scores <= FAILED, math.nan, scores),
    )


def selection_figures(grids: list[Grid]) -> list[dict[str, Any]]:
    """Class name, PNG and remark of each class's grid."""
    figures = []
    for found in grids[:MOST_CLASSES]:
        remark = " ".join([picked(found), *edges(found)])
        figures.append({"name": found.class_name, "png": heat_map(found), "remark": remark})
    return figures


def picked(found: Grid) -> str:
    """The pick in words."""
    if np.isnan(found.scores).all():
        return "Every setting failed (one cluster, or none): the pick means nothing, the class was not split."
    return (
        f"Picked eps = {found.eps:g} and min_samples = {found.min_samples}: silhouette "
        f"{found.silhouette:.3f}, the best of the grid."
    )


def edges(found: Grid) -> list[str]:
    """A sentence for each parameter whose pick is the smallest or largest value tried."""
    scores, (i, j) = found.scores, found.pick
    if np.isnan(scores[i, j]):
        return []
    texts = []
    for name, values, at in (("eps", scores[:, j], i), ("min_samples", scores[i], j)):
        if len(values) == 1 or at not in {0, len(values) - 1}:
            continue
        which, inward = ("smallest", 1) if at == 0 else ("largest", -2)
        if values[inward] > values[at] - TIED:
            texts.append(f"This {name} is the {which} tried, and the next one does as well.")
        else:
            texts.append(f"This {name} is the {which} tried: widen the grid, a better one may lie beyond.")
    return texts


def heat_map(found: Grid) -> str:
    """The grid as a PNG data URI: failures hatched, the pick framed."""
    n_eps, n_min = found.scores.shape
    height, width = np.clip([0.3 * n_eps + 1.1, 0.62 * n_min + 1.6], [2.6, 4.6], [9, 9])
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    for i, j in np.argwhere(np.isnan(found.scores)):
        axes.add_patch(
            Rectangle(
                (j - 0.5, i - 0.5), 1, 1, facecolor="#EDEDED", edgecolor="#A8A8A8", hatch="////", linewidth=0
            )
        )
    image = axes.imshow(np.ma.masked_invalid(found.scores), cmap="cividis", aspect="auto", origin="lower")
    if found.scores.size <= MOST_TEXTS:
        write_scores(axes, found.scores)
    i, j = found.pick
    axes.add_patch(
        Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor="#D55E00", linewidth=3, zorder=5)
    )
    axes.set_xticks(range(n_min), [f"{value:g}" for value in found.min_samples_grid], fontsize=9)
    axes.set_yticks(range(n_eps), [f"{value:.3g}" for value in found.eps_grid], fontsize=9)
    axes.set_xlabel("min_samples", fontsize=10)
    axes.set_ylabel("eps", fontsize=10)
    if not np.isnan(found.scores).all():
        figure.colorbar(image, ax=axes, label="silhouette")
    return png(figure)


def write_scores(axes: Any, scores: NDArray[np.float64]) -> None:
    """Write each score into its cell, in black on light cells and white on dark ones."""
    known = scores[~np.isnan(scores)]
    middle = (known.min() + known.max()) / 2 if len(known) else 0.0
    for (i, j), score in np.ndenumerate(scores):
        if not math.isnan(score):
            axes.text(
                j,
                i,
                f"{round(score, 2) + 0.0:.2f}",
                ha="center",
                va="center",
                fontsize=8,
                color="wk"[int(score > middle)],
            )
