"""The grids from which GRASP picked eps and min_samples: what is drawn of them, and said."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.plan.model import Plan
from engine.report.grid_maps import Map, draw
from engine.report.words import percent

FAILED = -1.0
FLAT = 0.05
"""A share of noise that moves by more within one step is no plateau."""
TIED = 0.005
"""Scores that differ by less say nothing."""
MOST_CLASSES = 24


@dataclass(frozen=True)
class Grid:
    """What is recorded of one class. All arrays are (n_eps, n_min_samples)."""

    index: int
    """Of the class."""
    class_name: str
    eps: tuple[float, ...]
    min_samples: tuple[int, ...]
    pick: tuple[int, int]
    rule: str
    within_limits: bool
    """Whether the pick keeps the rule's limits on noise and on the size of a second group."""
    rule_scores: NDArray[np.float64]
    """Of the rule that picked; nan where a setting did not compete."""
    silhouettes: NDArray[np.float64]
    """nan where a setting failed: one cluster, or none."""
    noise: NDArray[np.float64]
    """Share of the class's rows in no group."""
    groups: NDArray[np.float64]
    n_rows: int
    approximation: dict[str, Any] | None = None
    drawn_from: int = 0
    """What was measured of clusters found through an approximate graph."""


def read_grids(plan: Plan, classes: list[str]) -> list[Grid]:
    """The recorded selections, by class; none if the group method leaves no such record."""
    return [grid(entry, classes) for entry in _recorded(plan).get("classes", ())]


def _recorded(plan: Plan) -> dict[str, Any]:
    """What the group method left of its grids; empty where it leaves none."""
    names = {planned.name for planned in plan.operators}
    path = plan.store.state(plan.fingerprint_of("groups")) / "selection.json" if "groups" in names else None
    if path is None or not path.exists():
        return {}
    record: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return record


def grid(entry: dict[str, Any], classes: list[str]) -> Grid:
    """One class's entry of the record."""
    eps, min_samples = entry["eps_grid"], entry["min_samples_grid"]
    return Grid(
        index=int(entry["class"]),
        class_name=classes[int(entry["class"])],
        eps=tuple(eps),
        min_samples=tuple(min_samples),
        pick=(
            int(np.argmin(np.abs(np.asarray(eps) - entry["eps"]))),
            int(np.argmin(np.abs(np.asarray(min_samples) - entry["min_samples"]))),
        ),
        rule=entry["rule"],
        within_limits=bool(entry["within_limits"]),
        rule_scores=_scores(entry["rule_scores"]),
        silhouettes=_scores(entry["scores"]),
        noise=np.array(entry["noise_grid"], np.float64),
        groups=np.array(entry["groups_grid"], np.float64),
        n_rows=int(entry.get("n_rows", 0)),
        approximation=entry.get("approximation"),
        drawn_from=int(entry.get("drawn_from", 0)),
    )


def selection_figures(grids: list[Grid], aris: Mapping[int, NDArray[np.float64]]) -> list[dict[str, Any]]:
    """Class name, PNG, remark and warning of each class's grid; ``aris`` where the truth of it is known."""
    figures = []
    for found in grids[:MOST_CLASSES]:
        ari = aris.get(found.index)
        remark = [*on_drawn_rows(found), picked(found), *one_step_away(found), *edges(found)]
        figures.append(
            {
                "name": found.class_name,
                "png": draw(maps(found, ari), found.eps, found.min_samples, found.pick),
                "remark": " ".join(remark if ari is None else [*remark, in_view_of_truth(found, ari)]),
                "approximation": approximated(found),
            }
        )
    return figures


def maps(found: Grid, ari: NDArray[np.float64] | None = None) -> list[Map]:
    """What is drawn: the rule's score, the silhouette if that is another, groups, noise, and ARI if known."""
    drawn = [Map(f"score of the rule “{found.rule}”", found.rule_scores, "{:.2f}")]
    if found.rule != "silhouette":
        drawn.append(Map("mean silhouette, noise as one more cluster", found.silhouettes, "{:.2f}"))
    return [
        *drawn,
        Map("number of groups", found.groups, "{:.0f}"),
        Map("share of rows in no group, %", 100 * found.noise, "{:.0f}"),
        *([] if ari is None else [Map("ARI against the true groups, noise as one group", ari, "{:.2f}")]),
    ]


def on_drawn_rows(found: Grid) -> list[str]:
    """What to say where only some rows of the class were clustered."""
    if not found.drawn_from:
        return []
    return [
        f"These are figures of {found.n_rows:,} rows drawn from the {found.drawn_from:,} of the class "
        "(groups.fit_rows): only they were clustered, and every row was placed with its nearest core sample."
    ]


def picked(found: Grid) -> str:
    """The pick in words."""
    i, j = found.pick
    if np.isnan(found.rule_scores).all():
        return "Every setting failed (one cluster, or none): the pick means nothing, the class was not split."
    score, silhouette = found.rule_scores[i, j], found.silhouettes[i, j]
    also = "" if found.rule == "silhouette" else f" (its silhouette is {silhouette:.3f})"
    limits = (
        ""
        if found.within_limits
        else (
            " No setting kept the rule's limits on noise and on a second group: "
            "the class may have no hidden groups."
        )
    )
    return (
        f"The rule “{found.rule}” picked eps = {found.eps[i]:g} and min_samples = {found.min_samples[j]}: "
        f"score {score:.3f}, the best of the grid{also}.{limits}"
    )


def one_step_away(found: Grid) -> list[str]:
    """What the neighbouring settings would have given: on a plateau, the same."""
    i, j = found.pick
    near = (slice(max(i - 1, 0), i + 2), slice(max(j - 1, 0), j + 2))
    groups, noise = found.groups[near], found.noise[near]
    if groups.size == 1:
        return []
    here = f"{found.groups[i, j]:.0f} groups and {percent(found.noise[i, j])} noise"
    moved = f"noise is {percent(noise.min())} to {percent(noise.max())}"
    if np.ptp(groups) > 0:
        return [
            f"The pick has {here}; one step away it is {groups.min():.0f} to {groups.max():.0f} groups and "
            f"{percent(noise.min())} to {percent(noise.max())} noise: the pick sits on an edge, look at "
            f"both sides."
        ]
    if max(noise.max() - found.noise[i, j], found.noise[i, j] - noise.min()) > FLAT:
        return [
            f"The pick has {here}; one step away the number of groups is the same, but {moved}: the pick "
            "sits on a slope."
        ]
    return [
        f"The pick has {here}; one step away the number of groups is the same and {moved}: the pick sits "
        "on a plateau."
    ]


def in_view_of_truth(found: Grid, ari: NDArray[np.float64]) -> str:
    """How the pick compares with the best setting, which only the truth can tell."""
    i, j = found.pick
    e, m = np.unravel_index(int(np.argmax(ari)), ari.shape)
    near = ari[max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2]
    return (
        f"By the truth, which the rule never saw, the pick has ARI {ari[i, j]:.2f} within the class "
        f"({near.min():.2f} to {near.max():.2f} one step away); the best setting is eps = "
        f"{found.eps[e]:g} and min_samples = {found.min_samples[m]} with {ari[e, m]:.2f}. A class left whole "
        "has 0."
    )


def approximated(found: Grid) -> str:
    """What is known of clusters found through an approximate graph; empty for exact ones."""
    quality = found.approximation
    if quality is None:
        return ""
    on = "all rows" if quality["ari_rows"] >= found.n_rows else f"a sample of {quality['ari_rows']:,} rows"
    return (
        f"Clusters were found through an approximate {quality['index']} graph, which holds "
        f"{percent(quality['recall'])} of the true edges; {percent(quality['wrong_cores'])} of a sample of "
        f"rows are wrongly called core samples, or wrongly not. At the pick the ARI against exact DBSCAN is "
        f"{quality['ari']:.3f}, on {on}. Low figures mean that small clusters may be lost: set "
        "groups.neighbours to exact."
    )


def projected(plan: Plan) -> str:
    """What projected gradients mean for the picks; empty where they are not, or the recipe accepts that."""
    found = _recorded(plan).get("projection")
    if found is None or _accepts_projection(plan):
        return ""
    return (
        f"These settings were picked on projected gradients ({found['dim']} numbers a row): their cosines "
        f"are off by {found['projection_error_mean']:.3f} on average, and by more than "
        f"{found['projection_error_p99']:.3f} in 1 % of pairs, which moves rows across eps. The groups can "
        "be others than those of the gradients themselves. Leave out gradients.projection, or accept that: "
        "gradients.projection.accept_error: true."
    )


def _accepts_projection(plan: Plan) -> bool:
    asked = (getattr(planned.operator.params, "projection", None) for planned in plan.operators)
    return any(getattr(projection, "accept_error", False) for projection in asked)


def edges(found: Grid) -> list[str]:
    """A sentence for each parameter whose pick is the smallest or largest value tried."""
    scores, (i, j) = found.rule_scores, found.pick
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


def _scores(values: Any) -> NDArray[np.float64]:
    found = np.array(values, dtype=np.float64)
    return np.where(found <= FAILED, math.nan, found)
