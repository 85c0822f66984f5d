"""A rule that separates the rows of a group from the other rows of its class, found by shallow trees.

Two decision trees of depth 3 (one on the rows as they are, one with both sides balanced) propose the paths to
all of their nodes; the path with the best F1 score on the rows of the fit is the rule, and a shorter one is
preferred to one that is hardly better. Rows that the trees have not seen show how good the rule is, and
whether it is better than chance: Fisher's exact test, which does not depend on how many rows of either side
were drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64, Mask
from operators.descriptions.conditions import Condition, merge, view_key
from operators.descriptions.views import TextView, View, stacked

MAX_DEPTH = 3
"""Depth of the trees, and so the most conditions of a rule."""
MIN_LEAF, MIN_LEAF_SHARE = 5, 0.01
"""Fewest rows of a leaf, and their least share of the group's rows."""
MAX_VALUES = 3_000_000
"""Values (rows times columns) on which one tree is fitted; of wider tables, fewer rows are used."""
TERMS_PER_GROUP = 40
"""Most terms of a text column that the trees of one group see."""
LEVEL = 0.01
"""Level of the test: probability that a rule without use is accepted, over all groups together."""
MIN_CONDITION_GAIN = 0.02
"""Least rise of the F1 score for a further condition."""
MIN_ROWS = 20
"""Fewest drawn rows on either side, in the fit and in the check."""


@dataclass(frozen=True)
class RuleScore:
    """Quality of a rule's description of a group, on rows that it was not fitted to.

    Attributes
    ----------
    coverage : share of the group's rows for which the rule holds.
    purity : share of the group among the rows of the class for which the rule holds.
    base : share of the group among all rows of the class.
    rows : number of rows of the class for which the rule holds, estimated for all rows.
    checked : number of held-out rows.
    p_value : probability that a rule without use separates the held-out rows as well or better.
    """

    coverage: float
    purity: float
    base: float
    rows: float
    checked: int
    p_value: float

    @property
    def lift(self) -> float:
        """Purity over the group's share of the class."""
        return self.purity / self.base if self.base else float("nan")


@dataclass(frozen=True)
class Rule:
    """Conditions that hold together, and their score."""

    conditions: tuple[Condition, ...]
    score: RuleScore

    @property
    def text(self) -> str:
        """The rule in words."""
        return " and ".join(condition.text for condition in self.conditions)


def enough_rows(inside: Mask, fit: Mask) -> bool:
    """Return whether a rule is searched for: both sides (n,) have ``MIN_ROWS`` rows in the fit and in the
    check.
    """
    return all((side & part).sum() >= MIN_ROWS for side in (inside, ~inside) for part in (fit, ~fit))


def find_rule(
    views: Sequence[View], inside: Mask, weights: Float64, fit: Mask, *, tests: int = 1
) -> Rule | None:
    """Find the rule that describes the rows of a group best.

    None if none is better than chance, or if there are too few rows (:func:`enough_rows`).

    Parameters
    ----------
    views : columns of n rows.
    inside : whether a row is in the group, shape (n,). The other rows are those of the same class.
    weights : number of rows that each row stands for, shape (n,).
    fit : rows from which the rule is made, shape (n,); the others check it.
    tests : number of rules that are searched for together, by which the level of the test is divided.
    """
    if not views or not enough_rows(inside, fit):
        return None
    views = [_informative(view, inside, fit) for view in views]
    best: tuple[float, tuple[Condition, ...]] | None = None
    for path in _candidates(views, inside, weights, fit):
        conditions = tuple(merge(list(path)))
        value = _f1(holds(conditions, views), inside, weights, fit) - MIN_CONDITION_GAIN * len(conditions)
        if best is None or value > best[0] + 1e-9:
            best = value, conditions
    if best is None:
        return None
    score = score_rule(holds(best[1], views), inside, weights, ~fit)
    return Rule(best[1], score) if score.p_value < LEVEL / tests and score.lift > 1 else None


def holds(conditions: Sequence[Condition], views: Sequence[View]) -> Mask:
    """Return for which rows all conditions hold, shape (n,)."""
    by_key = {view_key(view): view for view in views}
    found = [by_key[view_key(condition)].holds(condition) for condition in conditions]
    return np.asarray(np.logical_and.reduce(found))


def score_rule(rule: Mask, inside: Mask, weights: Float64, rows: Mask) -> RuleScore:
    """Score a rule on some rows.

    Parameters
    ----------
    rule : for which rows the rule holds, shape (n,).
    inside : which rows are in the group, shape (n,).
    weights : number of rows that each row stands for, shape (n,). Shares are weighted, the test is not.
    rows : rows to score on, shape (n,).
    """
    from scipy.stats import hypergeom  # a run in which nothing changed does not need it

    group, other = inside & rows, ~inside & rows
    hits, misses = int((rule & group).sum()), int((rule & other).sum())
    n_group, n_other = int(group.sum()), int(other.sum())
    in_group, in_class = float(weights[group].sum()), float(weights[rows].sum())
    chosen, chosen_group = float(weights[rule & rows].sum()), float(weights[rule & group].sum())
    everything = float(weights.sum())
    p_value = float(hypergeom.sf(hits - 1, n_group + n_other, n_group, hits + misses))
    return RuleScore(
        coverage=chosen_group / in_group if in_group else 0.0,
        purity=chosen_group / chosen if chosen else 0.0,
        base=in_group / in_class if in_class else 0.0,
        rows=chosen / in_class * everything if in_class else 0.0,
        checked=n_group + n_other,
        p_value=p_value,
    )


def _informative(view: View, inside: Mask, fit: Mask) -> View:
    """Return the view; for a text only with the terms whose frequency differs most between the sides."""
    if not isinstance(view, TextView) or view.width <= TERMS_PER_GROUP:
        return view
    difference = np.abs(view.occurs[inside & fit].mean(axis=0) - view.occurs[~inside & fit].mean(axis=0))
    chosen = np.sort(np.argsort(-difference, kind="stable")[:TERMS_PER_GROUP])
    return TextView(view.column, view.occurs[:, chosen], tuple(view.terms[place] for place in chosen))


def _candidates(
    views: Sequence[View], inside: Mask, weights: Float64, fit: Mask
) -> Iterator[tuple[Condition, ...]]:
    """Yield the paths to all nodes of both trees."""
    from sklearn.tree import DecisionTreeClassifier

    matrix, owners = stacked(views)
    rows = _rows_to_fit(inside, fit, matrix.shape[1])
    least = max(MIN_LEAF, int(MIN_LEAF_SHARE * inside[rows].sum()))
    for class_weight in (None, "balanced"):
        tree = DecisionTreeClassifier(
            max_depth=MAX_DEPTH, min_samples_leaf=least, class_weight=class_weight, random_state=0
        )
        tree.fit(matrix[rows], inside[rows], sample_weight=weights[rows] / weights[rows].mean())
        yield from _paths(tree.tree_, 0, (), views, owners)


def _rows_to_fit(inside: Mask, fit: Mask, width: int) -> npt.NDArray[np.int64]:
    """Return the rows of the fit, evenly thinned on both sides where the table is wide."""
    budget = max(MAX_VALUES // max(width, 1), 4 * MIN_ROWS)
    parts = []
    for side in (inside, ~inside):
        rows = np.flatnonzero(side & fit)
        share = budget // 2
        parts.append(rows[:: max(-(-len(rows) // share), 1)])
    return np.sort(np.concatenate(parts))


def _paths(
    tree: Any, node: int, path: tuple[Condition, ...], views: Sequence[View], owners: list[tuple[int, int]]
) -> Iterator[tuple[Condition, ...]]:
    if path:
        yield path
    left, right = int(tree.children_left[node]), int(tree.children_right[node])
    if left == right:  # a leaf
        return
    index, position = owners[int(tree.feature[node])]
    threshold, goes_left = float(tree.threshold[node]), bool(tree.missing_go_to_left[node])
    has_missing = _has_missing(views[index])
    for child, is_left in ((left, True), (right, False)):
        missing = has_missing and goes_left == is_left
        condition = views[index].condition(position, threshold, left=is_left, missing=missing)
        yield from _paths(tree, child, (*path, condition), views, owners)


def _has_missing(view: View) -> bool:
    values = getattr(view, "values", None)
    return values is not None and bool(np.isnan(values).any())


def _f1(rule: Mask, inside: Mask, weights: Float64, rows: Mask) -> float:
    hit = float(weights[rule & inside & rows].sum())
    total = float(weights[rule & rows].sum()) + float(weights[inside & rows].sum())
    return 2 * hit / total if total else 0.0
