"""Rules that pick one cell of the eps x min_samples grid for a class, without group labels.

``silhouette`` is the paper's (Zeng et al. 2022, appendix E): the largest mean silhouette, all noise
being one more cluster. It favours large ``min_samples``: these leave a dense core and call a third of
the class noise, the minority with it, and core against noise is a fine pair of clusters to a silhouette.

``coverage`` is ours: the largest silhouette x coverage^2, coverage being the share of rows in a group,
among the cells that keep two limits:

- at most 10 % of the rows are noise. Noise is set aside downstream; more than that is no longer damage;
- there is a second group, of at least 1 % of the rows. A cell with one group has put all minorities into
  the noise; and among many rows a speck of ``min_samples`` rows always exists and says nothing.

Where no cell keeps both, all cells compete. The square makes a cell give up two per cent of its score
for one per cent of its rows. On the problems it was made on neither figure is delicate: powers from 1 to
6, or a limit of 5 to 12 %, keep its regret at .22 to .35 of the silhouette's. How it was made and how it
compares: ``tests/paper/README.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Float64: TypeAlias = npt.NDArray[np.float64]
Rule: TypeAlias = Literal["coverage", "silhouette"]

RULES: tuple[Rule, ...] = ("coverage", "silhouette")
NOISE = -1
FAILED = -1.0
MOST_NOISE = 0.10
SMALLEST_GROUP = 0.01


@dataclass(frozen=True, eq=False)
class GridFacts:
    """What a rule needs to know of the labels: figures of every cell, all (n_eps, n_min_samples).

    Attributes
    ----------
    n_rows : rows of the class.
    noise, second : rows in no group, and in the second largest group (0 where there is none).
    groups : number of groups.
    silhouettes, standard_errors : mean silhouette, noise as one cluster, -1 where undefined; its error.
    """

    n_rows: int
    noise: npt.NDArray[np.intp]
    second: npt.NDArray[np.intp]
    groups: npt.NDArray[np.intp]
    silhouettes: Float64
    standard_errors: Float64


@dataclass(frozen=True, eq=False)
class Pick:
    """A cell of the grid and what the rule made of all of them.

    Attributes
    ----------
    cell : (eps, min_samples) position.
    scores : (n_eps, n_min_samples) the rule's own score; -1 where a cell did not compete.
    within_limits : the pick keeps the rule's limits; always true for ``silhouette``, which has none,
        unless no cell could be scored.
    """

    cell: tuple[int, int]
    scores: Float64
    within_limits: bool


def pick_cell(labels: npt.NDArray[Any], silhouettes: Float64, rule: Rule = "coverage") -> Pick:
    """Pick one cell.

    The first of equal scores wins, in ascending order of eps, then of min_samples; so does the first
    cell when none can be scored.

    Parameters
    ----------
    labels : (n_eps, n_min_samples, n) integers; -1 is noise.
    silhouettes : (n_eps, n_min_samples) mean silhouette, noise as one cluster; -1 where undefined.
    rule : see the module's docstring.

    Raises
    ------
    ValueError : unknown rule.
    """
    return pick_by_facts(grid_facts(labels, silhouettes, np.zeros_like(silhouettes)), rule)


def pick_by_facts(facts: GridFacts, rule: Rule = "coverage") -> Pick:
    """:func:`pick_cell` by figures instead of labels."""
    if rule not in RULES:
        raise ValueError(f"select is {rule!r}; use one of {', '.join(RULES)}")
    scored = facts.silhouettes > FAILED
    if rule == "silhouette":
        scores, within = facts.silhouettes, bool(scored.any())
    else:
        scores, within = _coverage_scores(facts, scored)
    e, m = (int(i) for i in np.unravel_index(np.argmax(scores), scores.shape))
    return Pick((e, m), scores, within)


def grid_facts(labels: npt.NDArray[Any], silhouettes: Float64, standard_errors: Float64) -> GridFacts:
    """Figures of (n_eps, n_min_samples, n) labels; groups must be numbered from 0."""
    noise = np.count_nonzero(labels == NOISE, axis=-1)
    n, groups = labels.shape[-1], group_counts(labels)
    return GridFacts(n, noise, _second_sizes(labels), groups, silhouettes, standard_errors)


def noise_shares(labels: npt.NDArray[Any]) -> Float64:
    """(n_eps, n_min_samples) share of the rows that are in no group."""
    return np.asarray((labels == NOISE).mean(axis=-1))


def group_counts(labels: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """(n_eps, n_min_samples) number of groups; they must be numbered from 0."""
    return np.asarray(labels.max(axis=-1).astype(np.intp) + 1)


def second_group_shares(labels: npt.NDArray[Any]) -> Float64:
    """(n_eps, n_min_samples) share of the rows in the second largest group; 0 where there is none."""
    return np.asarray(_second_sizes(labels) / labels.shape[-1])


def _second_sizes(labels: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    cells = labels.reshape(-1, labels.shape[-1])
    sizes = [np.sort(np.bincount(cell[cell != NOISE], minlength=2))[-2] for cell in cells]
    return np.array(sizes, np.intp).reshape(labels.shape[:-1])


def _coverage_scores(facts: GridFacts, scored: npt.NDArray[np.bool_]) -> tuple[Float64, bool]:
    noise, silhouettes = facts.noise / facts.n_rows, facts.silhouettes
    # A factor below 1 would reward noise where the silhouette is negative.
    values = np.where(silhouettes > 0, silhouettes * (1 - noise) ** 2, silhouettes)
    kept = scored & (noise <= MOST_NOISE) & (facts.second / facts.n_rows >= SMALLEST_GROUP)
    within = bool(kept.any())
    return np.where(kept if within else scored, values, FAILED), within
