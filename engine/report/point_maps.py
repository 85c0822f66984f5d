"""Point maps of the operators, one figure for each class, coloured by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure
from numpy.typing import NDArray

from connectors.foundation.messages import cut
from engine.plan.model import Plan
from engine.report.groups import GroupRow
from engine.report.pictures import NOISE_STYLE, REST_STYLE, png, style
from engine.report.survey import gather
from operators.base import GROUP, LABEL, ROW_ID
from operators.report import PointMap
from operators.report.figures import WIDTH, Margins, add_panels, disable_math

MAX_CLASSES = 8
MIN_POINTS = 30
"""Rows of a class below which a map says nothing."""
MAX_NAMES = 12
"""Entries of a legend."""
MARGINS = Margins(left=0.35, right=0.1, bottom=0.3, top=0.3)


@dataclass(frozen=True)
class Colouring:
    """One name for each row, and how each name is drawn, in the order of the legend."""

    title: str
    names: dict[int, str]
    """Row id to name."""
    styles: dict[str, tuple[str, str]]


def point_map_figures(plan: Plan, maps: Sequence[PointMap], groups: list[GroupRow]) -> list[dict[str, Any]]:
    """Draw the maps of each class side by side.

    Returns
    -------
    For the largest classes with 30 rows and more, or for the largest one: ``name``, ``png`` (a data URI) and
    ``points``, the number of rows drawn. Classes whose rows would all have one colour are left out.
    """
    told_apart = {one.y for one in maps if plan.recipe.truth.group or sum(g.y == one.y for g in groups) > 1}
    sizes = {y: sum(g.stat.rows for g in groups if g.y == y) for y in told_apart}
    figures = []
    largest = sorted(sizes, key=lambda y: -sizes[y])[:MAX_CLASSES]
    drawn = [y for y in largest if sizes[y] >= MIN_POINTS] or largest[:1]
    for y in sorted(drawn):
        own = [one for one in maps if one.y == y]
        name = next((group.class_name for group in groups if group.y == y), str(y))
        row_ids = np.unique(np.concatenate([one.row_ids for one in own]))
        colourings = colourings_of(plan, row_ids, groups)
        figures.append({"name": name, "png": png(draw(own, colourings, name)), "points": len(row_ids)})
    return figures


def colourings_of(plan: Plan, row_ids: NDArray[np.int64], groups: list[GroupRow]) -> list[Colouring]:
    """Colour rows by inferred group, and by true group if the recipe names it."""
    truth = plan.recipe.truth.group
    table = gather(plan, row_ids, [LABEL, GROUP], [truth] if truth else [])
    found = [inferred_colouring(table, groups)]
    if truth:
        values = table.column(f"source.{truth}").to_pylist()
        names = ["no value" if value is None else str(value) for value in values]
        styles = {name: style(i) for i, name in enumerate(sorted(set(names)))}
        found.append(Colouring("true group", _by_row(table, names), styles))
    return found


def inferred_colouring(table: pa.Table, groups: list[GroupRow]) -> Colouring:
    """Colour rows by inferred group; noise, which every class has of its own, is a grey cross."""
    label_of = {
        (group.y, group.group): f"{'noise' if group.is_noise else group.label} ({group.stat.rows:,})"
        for group in groups
    }
    pairs = list(zip(table.column(LABEL).to_pylist(), table.column(GROUP).to_pylist(), strict=True))
    names = [label_of.get(pair, "not valid") for pair in pairs]
    styles = {
        label_of[group.y, group.group]: NOISE_STYLE if group.is_noise else style(group.rank)
        for group in groups
        if (group.y, group.group) in pairs
    }
    return Colouring("group", _by_row(table, names), {"not valid": REST_STYLE, **styles})


def _by_row(table: pa.Table, names: list[str]) -> dict[int, str]:
    return dict(zip(table.column(ROW_ID).to_pylist(), names, strict=True))


def draw(maps: Sequence[PointMap], colourings: Sequence[Colouring], class_name: str) -> Figure:
    """Draw a row of panels for each colouring, with a panel for each map of a class and a legend."""
    figure = Figure(figsize=(WIDTH, 3.2 * len(colourings)))
    widths = [*(1.0 for _ in maps), 0.25 * max(len(maps), 2)]
    grid = add_panels(figure, len(colourings), len(maps) + 1, MARGINS, widths)
    for panels, colouring in zip(grid, colourings, strict=True):
        for axes, one in zip(panels, maps, strict=False):
            draw_panel(axes, one, colouring, class_name)
        draw_legend(panels[-1], panels[0], colouring.title)
    return figure


def draw_legend(axes: Any, panel: Any, title: str) -> None:
    """Fill ``axes`` with the legend of ``panel``."""
    axes.axis("off")
    handles, names = panel.get_legend_handles_labels()
    left_out = len(names) - MAX_NAMES
    title = f"{title} ({left_out} more)" if left_out > 0 else title
    place = {"loc": "upper left", "borderaxespad": 0, "frameon": False, "alignment": "left"}
    legend = axes.legend(handles[:MAX_NAMES], names[:MAX_NAMES], title=title, fontsize=9, **place)
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
        handle.set_sizes([36])
        handle.set_alpha(1)
        disable_math(text)


def draw_panel(axes: Any, shown: PointMap, colouring: Colouring, class_name: str) -> None:
    """Draw one map; small groups last, so that they lie on top."""
    names = np.array([colouring.names[row_id] for row_id in shown.row_ids.tolist()])
    size = float(np.clip(6_000 / max(len(names), 1), 8, 36))
    sizes = {name: (names == name).sum() for name in colouring.styles}
    depth = {name: i for i, name in enumerate(sorted(sizes, key=lambda name: -sizes[name]))}
    for name, (colour, marker) in colouring.styles.items():
        if not sizes[name]:
            continue
        axes.scatter(
            *shown.points[names == name].T,
            s=size,
            c=colour,
            marker=marker,
            alpha=0.75,
            linewidths=0.9 if marker == "x" else 0,
            label=cut(name, 28),
            zorder=2 + depth[name],
        )
    title = f"class {cut(class_name, 20)}: {shown.title}, by {colouring.title}"
    disable_math(axes.set_title(title, fontsize=9))
    disable_math(axes.set_xlabel(shown.axes[0], fontsize=8))
    disable_math(axes.set_ylabel(shown.axes[1], fontsize=8))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[["top", "right"]].set_visible(False)
