"""Maps over eps x min_samples side by side, with the pick framed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from engine.report.pictures import Margins, inch_panels, png

MOST_TEXTS = 200
"""Cells of a grid up to which each value is also written as a number."""
PICK = "#D55E00"
MARGINS = Margins(left=0.65, right=0.15, bottom=0.5, top=0.35)


@dataclass(frozen=True)
class Map:
    """One quantity over the grid; nan cells are hatched. ``form`` writes a value into its cell."""

    title: str
    values: NDArray[np.float64]
    form: str


def draw(maps: list[Map], eps: tuple[float, ...], min_samples: tuple[int, ...], pick: tuple[int, int]) -> str:
    """All maps as one PNG data URI, two a row."""
    n_rows = math.ceil(len(maps) / 2)
    height, width = np.clip([0.3 * len(eps) + 1.1, 0.62 * len(min_samples) + 1.2], [2.4, 4.0], [7, 7])
    panels = inch_panels(Figure(figsize=(2 * width, n_rows * height)), n_rows, 2, MARGINS).ravel()
    for axes, shown in zip(panels, maps, strict=False):
        _draw_one(axes, shown, pick)
        axes.set_xticks(range(len(min_samples)), [f"{value:g}" for value in min_samples], fontsize=9)
        axes.set_yticks(range(len(eps)), [f"{value:.3g}" for value in eps], fontsize=9)
        axes.set_xlabel("min_samples", fontsize=10)
        axes.set_ylabel("eps", fontsize=10)
    for axes in panels[len(maps) :]:
        axes.set_axis_off()
    return png(panels[0].figure)


def _draw_one(axes: Any, shown: Map, pick: tuple[int, int]) -> None:
    values, (i, j) = shown.values, pick
    axes.set_title(shown.title, fontsize=11)
    for row, column in np.argwhere(np.isnan(values)):
        corner = (column - 0.5, row - 0.5)
        axes.add_patch(
            Rectangle(corner, 1, 1, facecolor="#EDEDED", edgecolor="#A8A8A8", hatch="////", linewidth=0)
        )
    axes.imshow(np.ma.masked_invalid(values), cmap="cividis", aspect="auto", origin="lower")
    if values.size <= MOST_TEXTS:
        _write_values(axes, shown)
    axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=PICK, linewidth=3, zorder=5))


def _write_values(axes: Any, shown: Map) -> None:
    """Write each value into its cell, in black on light cells and white on dark ones."""
    known = shown.values[~np.isnan(shown.values)]
    middle = (known.min() + known.max()) / 2 if len(known) else 0.0
    for (i, j), value in np.ndenumerate(shown.values):
        if not math.isnan(value):
            text = shown.form.format(round(value, 2) + 0.0)
            axes.text(j, i, text, ha="center", va="center", fontsize=8, color="wk"[int(value > middle)])
