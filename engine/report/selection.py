"""The grids from which GRASP picked eps and min_samples: what is drawn of them, and said."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.plan import Plan
from engine.report.grid_maps import Map, draw
from engine.report.words import percent

FAILED = -1.0
TIED = 0.005
"""Scores that differ by less say nothing."""
MOST_CLASSES = 24


@dataclass(frozen=True)
class Grid:
    """What is recorded of one class. All arrays are (n_eps, n_min_samples)."""

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
    eps, min_samples = entry["eps_grid"], entry["min_samples_grid"]
    return Grid(
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
    )


def selection_figures(grids: list[Grid]) -> list[dict[str, Any]]:
    """Class name, PNG and remark of each class's grid."""
    return [
        {"name": found.class_name, "png": draw(maps(found), found.eps, found.min_samples, found.pick)}
        | {"remark": " ".join([picked(found), *one_step_away(found), *edges(found)])}
        for found in grids[:MOST_CLASSES]
    ]


def maps(found: Grid) -> list[Map]:
    """What is drawn: the rule's score, the silhouette if that is another, groups and noise."""
    drawn = [Map(f"score of the rule “{found.rule}”", found.rule_scores, "{:.2f}")]
    if found.rule != "silhouette":
        drawn.append(Map("mean silhouette, noise as one more cluster", found.silhouettes, "{:.2f}"))
    return [
        *drawn,
        Map("number of groups", found.groups, "{:.0f}"),
        Map("share of rows in no group, %", 100 * found.noise, "{:.0f}"),
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
    if np.ptp(groups) == 0:
        return [
            f"The pick has {here}; one step away the number of groups is the same and noise is "
            f"{percent(noise.min())} to {percent(noise.max())}."
        ]
    return [
        f"The pick has {here}; one step away it is {groups.min():.0f} to {groups.max():.0f} groups and "
        f"{percent(noise.min())} to {percent(noise.max())} noise: the pick sits on an edge, look at "
        f"both sides."
    ]


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
