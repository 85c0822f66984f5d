"""The operator's section of the report: how eps and min_samples were picked for each class."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from operators.arrays import Float64
from operators.base import ReportContext
from operators.bounded_json import read_json
from operators.grasp.state import LOW_STABILITY, SELECTION, draw_warning, grid_path, read_grid, summary
from operators.report import Content, Finding, Notice, ReportFigure, ReportSection
from operators.report.text import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAILED = -1.0
"""Recorded score of a setting that failed."""
FLAT = 0.05
"""A share of noise that changes by more than this within one step of the grid is not a plateau."""
TIED = 0.005
"""Scores that differ by less than this count as equal."""
MAX_CLASSES = 24
"""Classes whose grids are drawn."""
PICK_COLOUR = "#D55E00"
INTRODUCTION = (
    "DBSCAN was run with every setting of eps and min_samples on the grid, and a rule that sees no true "
    "groups picked one setting for each class. The maps show the rule's score and the clustering at each "
    "setting. The orange frame is the pick. Hatched settings failed (one cluster, or only noise) or violate "
    "the rule's limits. A high score does not prove that the groups are meaningful: look at the rows."
)


@dataclass(frozen=True)
class Grid:
    """The recorded selection of one class. All arrays are (n_eps, n_min_samples)."""

    index: int
    """Index of the class."""
    class_name: str
    eps: tuple[float, ...]
    min_samples: tuple[int, ...]
    pick: tuple[int, int]
    rule: str
    within_limits: bool
    """Whether the pick keeps the rule's limits on noise and on the size of a second group."""
    rule_scores: Float64
    """Scores of the rule that picked; nan where a setting did not compete."""
    silhouettes: Float64
    """nan where a setting failed."""
    noise: Float64
    """Share of the class's rows in no group."""
    groups: Float64
    """Number of groups."""
    n_rows: int
    approximation: dict[str, Any] | None = None
    """Quality of an approximate neighbour graph, if clusters were found through one."""
    drawn_from: int = 0
    """Rows of the class, if only ``n_rows`` of them were clustered; else 0."""
    n_clusters: int = 0
    sizes: tuple[int, ...] = ()
    """Rows of each group; empty in states of earlier versions."""
    least_rows: float = 0.0
    stability: tuple[float, ...] = ()


@dataclass(frozen=True)
class GridMap:
    """One quantity over the grid; nan cells are hatched. ``form`` formats the value at the pick."""

    title: str
    values: Float64
    form: str


def selection_section(context: ReportContext, accepts_projection: bool) -> ReportSection | None:
    """Return the section with the grid of each class and the selected cell, or None without a record."""
    record = read_selection(context.state)
    grids = [parse_grid(entry, context.classes) for entry in record.get("classes", ())]
    if not grids:
        return None
    scores = grid_scores(context, grids)
    content: list[Content] = [INTRODUCTION]
    for grid in grids[:MAX_CLASSES]:
        content.append(_figure_of(grid, scores.get(grid.index)))
        if warning := approximation_warning(grid):
            content.append(Notice(warning))
    warning = projection_warning(record, accepts_projection)
    findings = [Finding(warning, "warning")] if warning else []
    unstable = [(context.classes[int(e["class"])], draw_warning(e)) for e in record["classes"]]
    findings += [Finding(f"Class {name}: {text}", "warning") for name, text in unstable if text]
    return ReportSection("How eps and min_samples were picked", content, findings, order=30)


def read_selection(state: Path) -> dict[str, Any]:
    """Read what ``fit`` recorded of its grids; empty if there is no record."""
    path = state / SELECTION
    return dict(read_json(path)) if path.exists() else {}


def parse_grid(entry: Mapping[str, Any], classes: Any) -> Grid:
    """Convert one class's entry of the record."""
    eps, min_samples = entry["eps_grid"], entry["min_samples_grid"]
    return Grid(
        index=int(entry["class"]),
        class_name=str(classes[int(entry["class"])]),
        eps=tuple(eps),
        min_samples=tuple(min_samples),
        pick=(
            int(np.argmin(np.abs(np.asarray(eps) - entry["eps"]))),
            int(np.argmin(np.abs(np.asarray(min_samples) - entry["min_samples"]))),
        ),
        rule=entry["rule"],
        within_limits=bool(entry["within_limits"]),
        rule_scores=_without_failures(entry["rule_scores"]),
        silhouettes=_without_failures(entry["scores"]),
        noise=np.array(entry["noise_grid"], np.float64),
        groups=np.array(entry["groups_grid"], np.float64),
        n_rows=int(entry.get("n_rows", 0)),
        approximation=entry.get("approximation"),
        drawn_from=int(entry.get("drawn_from", 0)),
        n_clusters=len(entry.get("group_of", ())),
        sizes=tuple(entry.get("sizes", ())),
        least_rows=float(entry.get("least_rows", 0.0)),
        stability=tuple(entry.get("stability", ())),
    )


def _without_failures(values: Any) -> Float64:
    found = np.array(values, dtype=np.float64)
    return np.where(found <= FAILED, math.nan, found)


def grid_scores(context: ReportContext, grids: list[Grid]) -> dict[int, Float64]:
    """Score every setting by the true groups, for the classes whose labels at all settings were kept.

    Returns
    -------
    Class index to (n_eps, n_min_samples) adjusted Rand indices; empty if the recipe names no true groups.
    """
    kept = {grid.index: grid for grid in grids if grid_path(context.state, grid.index).exists()}
    if not kept:
        return {}

    def labelings(y: int, row_ids: NDArray[np.int64]) -> Iterable[tuple[tuple[int, int], Any]]:
        return read_grid(context.state, y, row_ids) if y in kept else ()

    scores = {index: np.zeros(grid.groups.shape) for index, grid in kept.items()}
    found = context.agreement_with_truth(labelings)
    for (y, cell), score in found.items():
        scores[y][cast("tuple[int, int]", cell)] = score
    return scores if found else {}


def _figure_of(grid: Grid, scores: Float64 | None) -> ReportFigure:
    """Make the figure of one class, with the remarks on its pick as the caption."""
    remarks = [
        *remark_on_sample(grid),
        remark_on_pick(grid),
        *remark_on_merging(grid),
        *remark_on_stability(grid),
        *remark_on_neighbours(grid),
        *remark_on_edges(grid),
    ]
    if scores is not None:
        remarks.append(remark_on_truth(grid, scores))
    return ReportFigure(
        draw(grid_maps(grid, scores), grid),
        f"Scores over eps and min_samples for class {grid.class_name}",
        title=f"Class {grid.class_name}",
        caption=" ".join(remarks),
    )


def grid_maps(grid: Grid, scores: Float64 | None = None) -> list[GridMap]:
    """List the quantities to draw: the rule's score, the silhouette if that differs, groups, noise, truth."""
    maps = [GridMap(f"score of the rule “{grid.rule}”", grid.rule_scores, "{:.2f}")]
    if grid.rule != "silhouette":
        maps.append(GridMap("mean silhouette", grid.silhouettes, "{:.2f}"))
    maps.append(GridMap("number of groups", grid.groups, "{:.0f}"))
    maps.append(GridMap("rows in no group, %", 100 * grid.noise, "{:.1f}"))
    if scores is not None:
        maps.append(GridMap("adjusted Rand index (truth)", scores, "{:.2f}"))
    return maps


def remark_on_sample(grid: Grid) -> list[str]:
    """Say that only some rows of the class were clustered, if so."""
    if not grid.drawn_from:
        return []
    return [
        f"These numbers are for a sample of {grid.n_rows:,} of the class's {grid.drawn_from:,} rows "
        "(groups.fit_rows). Only the sample was clustered; every other row joined the group of its nearest "
        "core sample."
    ]


def remark_on_pick(grid: Grid) -> str:
    """Describe which cell was selected, and why."""
    i, j = grid.pick
    if np.isnan(grid.rule_scores).all():
        return (
            "No setting gave two clusters: either no row or every row was noise. So the class was not "
            "divided, and none of its rows counts as noise."
        )
    silhouette = "" if grid.rule == "silhouette" else f" and the silhouette {grid.silhouettes[i, j]:.3f}"
    limits = (
        " No setting satisfied the rule's limits on noise and on the size of a second group: the class may "
        "have no hidden groups."
    )
    return (
        f"The rule “{grid.rule}” picked eps = {grid.eps[i]:g} and min_samples = {grid.min_samples[j]}, where "
        f"its score is {grid.rule_scores[i, j]:.3f}{silhouette}.{'' if grid.within_limits else limits}"
    )


def remark_on_merging(grid: Grid) -> list[str]:
    """Say how many clusters were too small to be groups, if any were."""
    if grid.n_clusters <= len(grid.sizes):
        return []
    groups = "1 group" if len(grid.sizes) == 1 else f"{len(grid.sizes)} groups"
    return [
        f"The {grid.n_clusters} clusters were merged to {groups} of at least {grid.least_rows:,.0f} rows "
        "(groups.min_rows, groups.min_share): a smaller one joined the group of the nearest core samples."
    ]


def remark_on_stability(grid: Grid) -> list[str]:
    """Say how far the groups are found again on part of the rows, if that was measured."""
    found = summary(grid.stability)
    if found is None:
        return []
    verdict = "They are stable." if found[0] >= LOW_STABILITY else "Other rows would have given other groups."
    return [
        f"Found anew on {len(grid.stability)} parts of the rows, the groups agree with an adjusted Rand "
        f"index of {found[0]:.2f} (lowest {found[1]:.2f}; 1 is the same). {verdict}"
    ]


def remark_on_neighbours(grid: Grid) -> list[str]:
    """Compare the pick with the settings one step away: on a plateau they give the same."""
    if np.isnan(grid.rule_scores).all():
        return []
    i, j = grid.pick
    near = (slice(max(i - 1, 0), i + 2), slice(max(j - 1, 0), j + 2))
    groups, noise = grid.groups[near], grid.noise[near]
    if groups.size == 1:
        return []
    here = f"The pick gives {grid.groups[i, j]:.0f} groups and {percent(grid.noise[i, j])} noise"
    noise_range = f"{percent(noise.min())} to {percent(noise.max())} noise"
    if np.ptp(groups) > 0:
        return [
            f"{here}; the settings one step away give {groups.min():.0f} to {groups.max():.0f} groups and "
            f"{noise_range}. The result is sensitive to the setting."
        ]
    if max(noise.max() - grid.noise[i, j], grid.noise[i, j] - noise.min()) > FLAT:
        return [
            f"{here}; the settings one step away give as many groups, but {noise_range}. The amount of noise "
            "is sensitive to the setting."
        ]
    return [
        f"{here}; the settings one step away give as many groups and {noise_range}, so the result is stable."
    ]


def remark_on_truth(grid: Grid, scores: Float64) -> str:
    """Compare the pick with the best setting by the true groups."""
    i, j = grid.pick
    e, m = np.unravel_index(int(np.argmax(scores)), scores.shape)
    near = scores[max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2]
    return (
        f"By the true groups, which the rule never saw, the pick has an adjusted Rand index of "
        f"{scores[i, j]:.2f} within the class ({near.min():.2f} to {near.max():.2f} one step away). The best "
        f"setting, eps = {grid.eps[e]:g} and min_samples = {grid.min_samples[m]}, has {scores[e, m]:.2f}; a "
        "class that is not divided has 0."
    )


def remark_on_edges(grid: Grid) -> list[str]:
    """Say which parameters have their smallest or largest value as the pick."""
    scores, (i, j) = grid.rule_scores, grid.pick
    if np.isnan(scores[i, j]):
        return []
    texts = []
    for name, values, at in (("eps", scores[:, j], i), ("min_samples", scores[i], j)):
        if len(values) == 1 or at not in {0, len(values) - 1}:
            continue
        which, inward = ("smallest", 1) if at == 0 else ("largest", -2)
        if values[inward] > values[at] - TIED:
            texts.append(f"This {name} is the {which} on the grid, and the next value scores as well.")
        else:
            texts.append(
                f"This {name} is the {which} on the grid. Widen the grid: a better value may lie beyond."
            )
    return texts


def approximation_warning(grid: Grid) -> str:
    """State the quality of clusters found through an approximate graph; empty for exact clusters."""
    quality = grid.approximation
    if quality is None:
        return ""
    on = "all rows" if quality["ari_rows"] >= grid.n_rows else f"a sample of {quality['ari_rows']:,} rows"
    return (
        f"Clusters were found through an approximate {quality['index']} graph, which contains "
        f"{percent(quality['recall'])} of the true edges. {percent(quality['wrong_cores'])} of a sample of "
        "rows are wrongly treated as core samples, or wrongly not. At the pick the adjusted Rand index "
        f"against exact DBSCAN is {quality['ari']:.3f} on {on}. If these values are low, small clusters may "
        "be lost: set groups.neighbours to exact."
    )


def projection_warning(record: Mapping[str, Any], accepted: bool) -> str:
    """Warn that eps was picked on projected gradients; empty if it was not, or if the recipe accepts that."""
    found = record.get("projection")
    if found is None or accepted:
        return ""
    error = "by an unknown amount"
    if "projection_error_mean" in found:
        error = (
            f"by {found['projection_error_mean']:.3f} on average, and by more than "
            f"{found['projection_error_p99']:.3f} for 1 % of the pairs"
        )
    return (
        f"eps and min_samples were picked on projected gradients ({found['dim']} numbers per row). The "
        f"projection changes cosines {error}, so the groups may differ from those of "
        "the gradients themselves. Remove gradients.projection, or accept the error with "
        "gradients.projection.accept_error: true."
    )


def draw(maps: list[GridMap], grid: Grid) -> Figure:
    """Draw all maps over the same grid, three in a row."""
    # Imported on use: planning imports this package, and matplotlib takes a second to import.
    from matplotlib.figure import Figure

    from operators.report.figures import WIDTH, Margins, add_panels

    n_rows = math.ceil(len(maps) / 3)
    height = float(np.clip(0.15 * len(grid.eps) + 1.1, 2.1, 4.0))
    figure = Figure(figsize=(WIDTH, n_rows * height))
    panels = add_panels(figure, n_rows, 3, Margins(left=0.55, right=0.35, bottom=0.45, top=0.5)).ravel()
    for place, (axes, shown) in enumerate(zip(panels, maps, strict=False)):
        _draw_map(axes, shown, grid.pick)
        _label_axes(axes, grid, first=place % 3 == 0)
    for axes in panels[len(maps) :]:
        axes.remove()
    return figure


def _draw_map(axes: Any, shown: GridMap, pick: tuple[int, int]) -> None:
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import MaxNLocator

    values, (i, j) = shown.values, pick
    at_pick = "failed" if math.isnan(values[i, j]) else shown.form.format(values[i, j] + 0.0)
    axes.set_title(f"{shown.title}\nat the pick: {at_pick}", fontsize=9)
    axes.set_facecolor("#EDEDED")
    if np.isnan(values).any():
        n_eps, n_min_samples = values.shape
        everything = Rectangle((-0.5, -0.5), n_min_samples, n_eps, facecolor="none", edgecolor="#A8A8A8")
        everything.set(hatch="////", linewidth=0)
        axes.add_patch(everything)
    image = axes.imshow(np.ma.masked_invalid(values), cmap="cividis", aspect="auto", origin="lower", zorder=2)
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.06, pad=0.03)
    bar.ax.tick_params(labelsize=7)
    bar.locator = MaxNLocator(4, integer=shown.form == "{:.0f}")
    bar.update_ticks()
    bar.outline.set_visible(False)
    frame = Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=PICK_COLOUR, linewidth=2.5, zorder=5)
    axes.add_patch(frame)


def _label_axes(axes: Any, grid: Grid, *, first: bool) -> None:
    """Label the ticks with at most eight values of each parameter."""
    for ticks, values, form in (
        (axes.set_xticks, grid.min_samples, "{:g}"),
        (axes.set_yticks, grid.eps, "{:.3g}"),
    ):
        places = range(0, len(values), -(-len(values) // 8))
        ticks(places, [form.format(values[place]) for place in places], fontsize=7)
    axes.set_xlabel("min_samples", fontsize=8)
    if first:
        axes.set_ylabel("eps", fontsize=8)
