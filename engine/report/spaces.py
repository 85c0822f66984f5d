"""Two-dimensional views of gradient space and feature space, one figure a class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from engine.plan.model import Plan
from engine.report.factors import directions, plane_of_products
from engine.report.groups import GroupRow
from engine.report.pictures import NOISE_STYLE, Margins, inch_panels, plain, png, style
from engine.report.sampling import gather
from engine.report.survey import Survey
from operators.base import FACTORS, FEATURES, GRADIENT, GROUP, LABEL
from operators.columns import vectors_to_numpy
from operators.factored import unpack
from operators.factored.packing import read_parts

DRAWN_ROWS = 4_000
DRAWN_VALUES = 2**25
"""At most so many numbers of gradients or features are held (128 MiB)."""
MOST_CLASSES = 8
MOST_NAMES = 12
MARGINS = Margins(left=0.35, right=0.1, bottom=0.35, top=0.35)


@dataclass(frozen=True)
class View:
    """Points of one class in a plane."""

    title: str
    points: NDArray[np.float64]
    explained: NDArray[np.float64]
    """Share of variance along each of the two axes."""


@dataclass(frozen=True)
class Colouring:
    """One name for each point, and how each name is drawn, in the order of the legend."""

    title: str
    names: NDArray[np.str_]
    styles: dict[str, tuple[str, str]]


def space_figures(plan: Plan, found: Survey, groups: list[GroupRow]) -> list[dict[str, Any]]:
    """Class name, PNG and number of points of each class drawn: the largest ones."""
    if not len(found.drawn):
        return []
    columns = [name for name in (GRADIENT, FACTORS, FEATURES) if name in plan.reader().columns]
    width = max(widths(gather(plan, found.drawn[:1], columns, []), columns), default=1)
    drawn = found.drawn[: min(DRAWN_ROWS, DRAWN_VALUES // max(width, 1))]
    truth = plan.recipe.truth.group
    table = gather(plan, drawn, [LABEL, GROUP, *columns], [truth] if truth else [])
    labels = table.column(LABEL).to_numpy()
    sizes = {y: sum(g.stat.rows for g in groups if g.y == y) for y in np.unique(labels).tolist()}
    figures = []
    for y in sorted(sorted(sizes, key=lambda y: -sizes[y])[:MOST_CLASSES]):
        rows = table.filter(pa.array(labels == y))
        own = [group for group in groups if group.y == y]
        views = class_views(plan, rows, columns, own)
        colourings = [inferred_colouring(rows, own)]
        if truth:
            colourings.append(true_colouring(rows.column(f"source.{truth}")))
        figures.append({"name": own[0].class_name, "png": draw(views, colourings), "points": rows.num_rows})
    return figures


def widths(table: pa.Table, columns: list[str]) -> list[int]:
    """Length of the vectors of each column."""
    return [vectors_to_numpy(table.column(name)).shape[1] for name in columns]


def class_views(plan: Plan, table: pa.Table, columns: list[str], groups: list[GroupRow]) -> list[View]:
    """Principal components of a class's gradients, centred and normalised as in GRASP, and of its features.

    Small groups are drawn more densely than large ones, so the class mean that centres the gradients
    weighs each drawn row by the rows of its group that it stands for.
    """
    views, seed = [], plan.recipe.seed
    own = table.column(GROUP).to_numpy()
    stands_for = np.zeros(len(own))
    for group in groups:
        stands_for[own == group.group] = group.stat.rows / max((own == group.group).sum(), 1)
    if FACTORS in columns:
        factors = unpack(vectors_to_numpy(table.column(FACTORS)), read_parts(_state_of(plan, FACTORS)))
        views.append(View("Gradient space", *plane_of_products(directions(factors, stands_for), seed)))
    if GRADIENT in columns:
        gradients = vectors_to_numpy(table.column(GRADIENT)).astype(np.float64)
        gradients -= np.average(gradients, axis=0, weights=stands_for)
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        gradients /= np.where(norms > 0, norms, 1)
        views.append(View("Gradient space", *plane(gradients, seed)))
    if FEATURES in columns:
        views.append(View("Feature space", *plane(vectors_to_numpy(table.column(FEATURES)), seed)))
    return views


def _state_of(plan: Plan, column: str) -> Path:
    """State of the operator that adds a column."""
    makers = {field.name: planned for planned in plan.operators for field in planned.operator.adds}
    return plan.store.state(makers[column].fingerprint)


def plane(X: NDArray[Any], seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """First two principal components, (n, 2), and the shares of variance; zeros where there are none."""
    points, explained = np.zeros((len(X), 2)), np.zeros(2)
    n_components = min(2, *X.shape)
    if len(X) > 1 and n_components and np.ptp(X, axis=0).any():
        pca = PCA(n_components, random_state=seed)
        points[:, :n_components] = pca.fit_transform(X.astype(np.float64))
        explained[:n_components] = pca.explained_variance_ratio_
    return points, explained


def inferred_colouring(table: pa.Table, groups: list[GroupRow]) -> Colouring:
    """Colours of the inferred groups; noise is a grey cross."""
    label_of = {
        group.group: f"{'noise' if group.is_noise else group.label} ({group.stat.rows:,})" for group in groups
    }
    names = np.array([label_of[group] for group in table.column(GROUP).to_pylist()])
    styles = {label_of[group.group]: NOISE_STYLE if group.is_noise else style(group.rank) for group in groups}
    return Colouring("inferred group", names, styles)


def true_colouring(column: pa.ChunkedArray) -> Colouring:
    """Colours of the true groups, by name."""
    names = np.array([str(name) for name in column.to_pylist()])
    return Colouring("true group", names, {str(name): style(i) for i, name in enumerate(np.unique(names))})


def draw(views: list[View], colourings: list[Colouring]) -> str:
    """A row of panels for each colouring, a panel for each view and its legend, as a PNG data URI."""
    figure = Figure(figsize=(9.4, 3.7 * len(colourings)))
    widths = [*(1.0 for _ in views), 0.25 * len(views)]
    grid = inch_panels(figure, len(colourings), len(views) + 1, MARGINS, widths)
    for panels, colouring in zip(grid, colourings, strict=True):
        for axes, view in zip(panels, views, strict=False):
            draw_panel(axes, view, colouring)
        draw_legend(panels[-1], panels[0], colouring.title)
    return png(figure)


def draw_legend(axes: Any, panel: Any, title: str) -> None:
    """Fill ``axes`` with the legend of ``panel``."""
    axes.axis("off")
    handles, names = panel.get_legend_handles_labels()
    left_out = len(names) - MOST_NAMES
    title = f"{title} ({left_out} more)" if left_out > 0 else title
    place = {"loc": "upper left", "borderaxespad": 0, "frameon": False, "alignment": "left"}
    legend = axes.legend(handles[:MOST_NAMES], names[:MOST_NAMES], title=title, fontsize=9, **place)
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
        handle.set_sizes([36])
        handle.set_alpha(1)
        plain(text)


def draw_panel(axes: Any, view: View, colouring: Colouring) -> None:
    """Draw one view; small groups last, so that they lie on top."""
    size = float(np.clip(6_000 / max(len(view.points), 1), 8, 36))
    sizes = {name: (colouring.names == name).sum() for name in colouring.styles}
    depth = {name: i for i, name in enumerate(sorted(sizes, key=lambda name: -sizes[name]))}
    for name, (colour, marker) in colouring.styles.items():
        points = view.points[colouring.names == name]
        cut = name if len(name) <= 28 else name[:27] + "…"
        line = 0.9 if marker == "x" else 0
        axes.scatter(
            *points.T,
            s=size,
            c=colour,
            marker=marker,
            alpha=0.75,
            linewidths=line,
            label=cut,
            zorder=2 + depth[name],
        )
    axes.set_title(f"{view.title}, by {colouring.title}", fontsize=10)
    axes.set_xlabel(f"component 1 ({view.explained[0]:.0%} of variance)", fontsize=9)
    axes.set_ylabel(f"component 2 ({view.explained[1]:.0%})", fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[["top", "right"]].set_visible(False)
