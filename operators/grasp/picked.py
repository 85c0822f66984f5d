"""What is recorded of the cell that was picked for a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from operators.grasp.selection import Float64, GridFacts, Pick, Rule

if TYPE_CHECKING:
    from operators.neighbours.approximate import Quality


@dataclass(frozen=True, eq=False)
class Selection:
    """Which cell of the grid was taken for a class, and why.

    Attributes
    ----------
    eps, min_samples : the pick.
    silhouette : its silhouette; -1 where no cell could be scored.
    silhouette_se : standard error of it; 0 where all rows were used, see
        :func:`~operators.metrics.silhouettes.mean_silhouettes`.
    scores : (n_eps, n_min_samples) silhouette of every cell; -1 where it is undefined.
    rule : what picked, see :mod:`operators.grasp.selection`.
    rule_score, rule_scores : the rule's own score of the pick and of every cell; -1 where a cell did
        not compete.
    within_limits : the pick keeps the rule's limits.
    noise_grid, groups_grid : share of the rows in no group, and number of groups, of every cell.
    eps_grid, min_samples_grid : the axes of the grids, ascending.
    n_groups, n_noise, n_rows : groups found, rows in none, rows of the class.
    at_edge : the pick lies at an end of an axis that has several values: a wider grid may do better.
    approximation : how far the pick is from exact DBSCAN, where ``neighbours`` is "ivf" or "hnsw".
    drawn_from : rows of the class where only ``n_rows`` drawn ones were clustered; else 0.
    """

    eps: float
    min_samples: int
    silhouette: float
    silhouette_se: float
    scores: Float64
    rule: Rule
    rule_score: float
    rule_scores: Float64
    within_limits: bool
    noise_grid: Float64
    groups_grid: npt.NDArray[np.intp]
    eps_grid: tuple[float, ...]
    min_samples_grid: tuple[int, ...]
    n_groups: int
    n_noise: int
    n_rows: int
    at_edge: bool
    approximation: Quality | None = None
    drawn_from: int = 0


def describe_pick(
    facts: GridFacts,
    pick: Pick,
    rule: Rule,
    eps_values: tuple[float, ...],
    min_samples_values: tuple[int, ...],
) -> Selection:
    """The selection of a class; the axes of the grid ascend."""
    e, m = pick.cell
    return Selection(
        eps=eps_values[e],
        min_samples=min_samples_values[m],
        silhouette=float(facts.silhouettes[e, m]),
        silhouette_se=float(facts.standard_errors[e, m]),
        scores=facts.silhouettes,
        rule=rule,
        rule_score=float(pick.scores[e, m]),
        rule_scores=pick.scores,
        within_limits=pick.within_limits,
        noise_grid=facts.noise / facts.n_rows,
        groups_grid=facts.groups,
        eps_grid=eps_values,
        min_samples_grid=min_samples_values,
        n_groups=int(facts.groups[e, m]),
        n_noise=int(facts.noise[e, m]),
        n_rows=facts.n_rows,
        at_edge=_at_edge(e, len(eps_values)) or _at_edge(m, len(min_samples_values)),
    )


def _at_edge(position: int, n_values: int) -> bool:
    return n_values > 1 and position in (0, n_values - 1)
