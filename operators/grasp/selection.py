"""Rules that select one cell of the eps x min_samples grid for a class, without group labels, and their
record.

``silhouette`` is the paper's rule (Zeng et al. 2022, appendix E.2): the largest mean silhouette, where all
noise is one more cluster. It favours large ``min_samples``, which leave a dense core and put a third of the
class, and the minority with it, into the noise.

``coverage`` is Rowsieve's own rule: the largest silhouette x coverage^2, where coverage is the share of rows
in a group, among the cells that keep two limits:

- At most 10 % of the rows are noise, because noise counts as damage downstream.
- There is a second group of at least 1 % of the rows. A cell with one group has put all minorities into the
  noise, and a cluster of ``min_samples`` rows exists among many rows by chance.

If no cell keeps both limits, all cells compete. On the problems on which the rule was designed, powers of
coverage from 1 to 6, or a limit of 5 to 12 %, keep its regret at .22 to .35 of the silhouette's;
``tests/paper/README.md`` describes the design and the comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from operators.arrays import NOISE, Float64

if TYPE_CHECKING:
    from operators.dbscan.graph_dbscan import Quality


Rule: TypeAlias = Literal["coverage", "silhouette"]

RULES: tuple[Rule, ...] = ("coverage", "silhouette")
FAILED = -1.0
"""Score of a cell that cannot be scored or does not compete."""
MAX_NOISE = 0.10
"""Largest share of noise under the rule ``coverage``."""
MIN_SECOND_GROUP = 0.01
"""Smallest share of the second largest group under the rule ``coverage``."""


@dataclass(frozen=True, eq=False)
class GridFacts:
    """Figures of the labels by which a selection rule chooses a cell, all (n_eps, n_min_samples).

    Attributes
    ----------
    n_rows : rows of the class.
    noise, second : rows in no group, and in the second largest group (0 where there is none).
    groups : number of groups.
    silhouettes, standard_errors : mean silhouette, with noise as one cluster and -1 where it is undefined,
        and its standard error.
    """

    n_rows: int
    noise: npt.NDArray[np.intp]
    second: npt.NDArray[np.intp]
    groups: npt.NDArray[np.intp]
    silhouettes: Float64
    standard_errors: Float64


@dataclass(frozen=True, eq=False)
class Pick:
    """The cell that a rule selected, and the scores of all cells.

    Attributes
    ----------
    cell : (eps, min_samples) position.
    scores : (n_eps, n_min_samples) the rule's own score; -1 where a cell did not compete.
    within_limits : whether the cell keeps the rule's limits; for ``silhouette``, which has none, whether any
        cell could be scored.
    is_divided : whether any cell could be scored. If none has two clusters, noise being one, no rows of the
        class differ from the others, and it is one group without noise.
    """

    cell: tuple[int, int]
    scores: Float64
    within_limits: bool
    is_divided: bool


def pick_by_facts(facts: GridFacts, rule: Rule = "coverage") -> Pick:
    """Select one cell from the figures of a grid by a rule of this module.

    Of equal scores the first wins, in ascending order of eps and then of min_samples. If no cell can be
    scored, it is the first cell, and the class is one group. Raises ValueError for an unknown rule.
    """
    if rule not in RULES:
        raise ValueError(f"select is {rule!r}; use one of {', '.join(RULES)}")
    scored = facts.silhouettes > FAILED
    if rule == "silhouette":
        scores, within = facts.silhouettes, bool(scored.any())
    else:
        scores, within = _coverage_scores(facts, scored)
    e, m = (int(i) for i in np.unravel_index(np.argmax(scores), scores.shape))
    return Pick((e, m), scores, within, bool(scored.any()))


def grid_facts(labels: npt.NDArray[Any], silhouettes: Float64, standard_errors: Float64) -> GridFacts:
    """Return the figures of labels (n_eps, n_min_samples, n); groups must be numbered from 0."""
    noise = np.count_nonzero(labels == NOISE, axis=-1)
    n, groups = labels.shape[-1], group_counts(labels)
    return GridFacts(n, noise, _second_sizes(labels), groups, silhouettes, standard_errors)


def group_counts(labels: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return the number (n_eps, n_min_samples) of groups; they must be numbered from 0."""
    return np.asarray(labels.max(axis=-1).astype(np.intp) + 1)


def _second_sizes(labels: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    cells = labels.reshape(-1, labels.shape[-1])
    sizes = [np.sort(np.bincount(cell[cell != NOISE], minlength=2))[-2] for cell in cells]
    return np.array(sizes, np.intp).reshape(labels.shape[:-1])


def _coverage_scores(facts: GridFacts, scored: npt.NDArray[np.bool_]) -> tuple[Float64, bool]:
    noise, silhouettes = facts.noise / facts.n_rows, facts.silhouettes
    # Where the silhouette is negative, a factor below 1 would reward noise.
    values = np.where(silhouettes > 0, silhouettes * (1 - noise) ** 2, silhouettes)
    kept = scored & (noise <= MAX_NOISE) & (facts.second / facts.n_rows >= MIN_SECOND_GROUP)
    within = bool(kept.any())
    return np.where(kept if within else scored, values, FAILED), within


@dataclass(frozen=True, eq=False)
class Selection:
    """The selected cell of the grid of a class, the scores of all cells, and the groups.

    Attributes
    ----------
    eps, min_samples : the selected cell.
    silhouette : its silhouette; -1 where no cell could be scored.
    silhouette_se : standard error of the silhouette; 0 where all rows were used, see
        :func:`~operators.metrics.silhouettes.mean_silhouettes`.
    scores : (n_eps, n_min_samples) silhouette of every cell; -1 where it is undefined.
    rule : name of the rule.
    rule_score, rule_scores : the rule's score of the selected cell and of every cell; -1 where a cell did not
        compete.
    within_limits : whether the selected cell keeps the rule's limits.
    noise_grid, groups_grid : share of the rows in no group, and number of groups, of every cell.
    eps_grid, min_samples_grid : the axes of the grids, ascending.
    n_groups : number of groups of the class, after small clusters were merged.
    n_noise : number of rows of the class in no group, also where only drawn rows were clustered.
    n_rows : number of rows that were clustered.
    at_edge : whether the selected cell lies at an end of an axis with several values: a wider grid may be
        better.
    approximation : difference from exact DBSCAN, where ``neighbours`` is "ivf" or "hnsw".
    drawn_from : number of rows of the class if only ``n_rows`` drawn ones were clustered, else 0.
    group_of : (n_clusters,) the group of each cluster, see :mod:`operators.groups.small_groups`.
    sizes : (n_groups,) rows of the class in each group.
    least_rows : smallest number of rows of a group of the class.
    stability : adjusted Rand index between the groups and those found anew on part of the rows, one for each
        repeat; see :func:`~operators.grasp.stability.stability`.
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
    group_of: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    least_rows: float = 0.0
    stability: tuple[float, ...] = ()


def describe_pick(
    facts: GridFacts,
    pick: Pick,
    rule: Rule,
    eps_values: tuple[float, ...],
    min_samples_values: tuple[int, ...],
) -> Selection:
    """Describe the selection of a class; the axes of the grid ascend."""
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
        n_groups=int(facts.groups[e, m]) if pick.is_divided else 1,
        n_noise=int(facts.noise[e, m]) if pick.is_divided else 0,
        n_rows=facts.n_rows,
        at_edge=_at_edge(e, len(eps_values)) or _at_edge(m, len(min_samples_values)),
    )


def _at_edge(position: int, n_values: int) -> bool:
    return n_values > 1 and position in (0, n_values - 1)


EPS_GRID: tuple[float, ...] = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7)
MIN_SAMPLES_GRID: tuple[int, ...] = (5, 10, 20, 30, 40, 50, 60, 100)
GRID_ROWS = 1000
"""Rows of a class up to which ``MIN_SAMPLES_GRID`` is used without scaling."""
FIT_ROWS = 10_000
"""Rows of a class above which only drawn rows are clustered by default. With as many, the grid takes 3 to
10 CPU seconds, and the time grows with the square of the rows.
"""

MinSamplesGrid: TypeAlias = Literal["auto"] | float | Sequence[float]


def min_samples_values(wanted: MinSamplesGrid, n_rows: int) -> tuple[int, ...]:
    """Return the numbers of rows that ``min_samples`` stands for in a class of ``n_rows``, ascending.

    Twice as many rows have twice as many rows within a radius, so the threshold must grow with the number of
    rows. With the paper's fixed numbers, of which the smallest is 5, chance forms clusters in large classes.

    Parameters
    ----------
    wanted : "auto", or one number or several. "auto" is the paper's grid for a class of up to 1,000 rows, and
        is scaled in proportion for a larger one. Numbers below 1 are shares of the class's rows, at least 2
        rows; others are numbers of rows.
    n_rows : number of rows that are clustered.

    Examples
    --------
    >>> min_samples_values("auto", 20_000)
    (100, 200, 400, 600, 800, 1000, 1200, 2000)
    >>> min_samples_values([10, 0.01], 5_000)
    (10, 50)
    """
    if isinstance(wanted, str):
        rows = [value * max(1.0, n_rows / GRID_ROWS) for value in MIN_SAMPLES_GRID]
    else:
        rows = [max(2.0, v * n_rows) if v < 1 else v for v in np.atleast_1d(wanted).tolist()]
    return tuple(np.unique(np.rint(rows).astype(np.intp)).tolist())
