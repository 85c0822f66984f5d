"""Descriptions of every group of a sample: a rule within the class, frequent terms and central rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.arrays import Float64, Int64
from operators.descriptions.rules import MIN_ROWS, Rule, enough_rows, find_rule, holds
from operators.descriptions.table_views import views_of
from operators.descriptions.views import TextView, View
from operators.encode.texts import MISSING_TEXTS
from operators.hashing import row_hashes

MAX_TERMS = 8
"""Most terms that are listed of a group and column."""
MAX_CENTRAL_ROWS = 8
"""Most central rows that are listed of a group."""
SAME_ROWS = 0.9
"""Jaccard index from which two slices count as the same."""
TERM_LEVEL = 3.0
"""Standard errors by which the frequency of a named term differs between a group and its class."""


@dataclass(frozen=True)
class GroupSample:
    """Rows that were drawn to describe groups, n in all, in the order of their ids.

    Attributes
    ----------
    table : source columns that a description may name.
    row_ids : shape (n,).
    y, group : class index and group of each row, shape (n,); group -1 is the noise of the class.
    sizes : number of rows of every class and group in the whole dataset.
    features : features (m, d) of the rows ``feature_rows`` (positions, increasing); None where no column is
        an image or a vector.
    missing : texts that stand for a missing value.
    """

    table: pa.Table
    row_ids: Int64
    y: Int64
    group: Int64
    sizes: Mapping[tuple[int, int], int]
    seed: int = 0
    features: npt.NDArray[np.float32] | None = None
    feature_rows: Int64 | None = None
    missing: Sequence[str] = MISSING_TEXTS

    @property
    def n_rows(self) -> int:
        """Return about how many rows the sample was drawn from."""
        return int(self.row_ids.max(initial=-1)) + 1

    def weights(self) -> Float64:
        """Return the number of rows that each row stands for, shape (n,)."""
        found = np.zeros(len(self.row_ids))
        for (y, group), rows in self.sizes.items():
            mine = (self.y == y) & (self.group == group)
            found[mine] = rows / max(int(mine.sum()), 1)
        return found


def describe_groups(sample: GroupSample, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Describe every group, and the noise of every class.

    Parameters
    ----------
    sample : rows of all groups.
    classes : names of the classes by their index.

    Returns
    -------
    One JSON-able mapping for each class and group in their order: ``class``, ``group``, ``rows``,
    ``description`` (a sentence), ``rule`` (None where no rule is better than chance), ``terms`` and
    ``central_rows``.
    """
    fit = (row_hashes(sample.row_ids, sample.seed, "descriptions/fit") & np.uint64(1)).astype(np.bool_)
    views, weights = views_of(sample.table, fit, sample.missing, sample.n_rows), sample.weights()
    found = []
    # Noise, group -1, comes last in its class.
    for y, group in sorted(sample.sizes, key=lambda pair: (pair[0], pair[1] < 0, pair[1])):
        in_class = sample.y == y
        inside = in_class & (sample.group == group)
        rest = sum(rows for (cls, _), rows in sample.sizes.items() if cls == y) - sample.sizes[y, group]
        rule = _rule(views, inside, in_class, weights, fit, len(sample.sizes)) if rest else None
        terms = list(_terms(views, inside, in_class, weights)) if rest else []
        drawn = (int(inside.sum()), int((in_class & ~inside).sum()))
        too_few = None if enough_rows(inside[in_class], fit[in_class]) else drawn
        found.append(
            {
                "class": classes[y],
                "group": group,
                "rows": sample.sizes[y, group],
                "description": sentence(rule, classes[y], rest, too_few, bool(views)),
                "rule": None if rule is None else _rule_record(rule),
                "terms": terms,
                "central_rows": central_rows(sample, inside),
            }
        )
    return found


def describe_slices(sample: GroupSample, slices: Sequence[tuple[str, int, float]]) -> list[dict[str, Any]]:
    """Describe slices of features that have no name of their own, such as an entry of an embedding.

    Parameters
    ----------
    sample : rows with ``features``.
    slices : name of each slice, position of its feature, and cut: a row is inside if its feature exceeds the
        cut.

    Returns
    -------
    One mapping for each slice: ``slice``, ``description`` and ``rule``, which separates the rows inside from
    all others, whatever their class. A slice with the rows of an earlier one, or whose rule holds for the
    rows of an earlier one's, by a Jaccard index of ``SAME_ROWS``, is named in its ``also`` instead. Empty
    where the sample has no features.
    """
    if sample.features is None or sample.feature_rows is None:
        return []
    rows = sample.feature_rows
    fit = (row_hashes(sample.row_ids[rows], sample.seed, "descriptions/slices") & np.uint64(1)).astype(bool)
    views = views_of(sample.table.take(pa.array(rows)), fit, sample.missing, sample.n_rows)
    part = GroupSample(
        sample.table, sample.row_ids[rows], sample.y[rows], sample.group[rows], sample.sizes, sample.seed
    )
    found: list[dict[str, Any]] = []
    seen: list[tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_] | None]] = []
    for name, position, cut in slices:
        inside = np.asarray(sample.features[:, position] > cut)
        rule = find_rule(views, inside, part.weights(), fit, tests=max(len(slices), 1))
        text = "no rule of up to three conditions tells its rows from the others better than chance"
        found_by_rule = None if rule is None else holds(rule.conditions, views)
        same = (
            k
            for k, (rows_of, rule_of) in enumerate(seen)
            if _alike(inside, rows_of) or _alike(found_by_rule, rule_of)
        )
        earlier = next(same, None)
        if earlier is not None:
            found[earlier]["also"].append(name)
            continue
        seen.append((inside, found_by_rule))
        record = None if rule is None else _rule_record(rule)
        found.append({"slice": name, "also": [], "description": rule.text if rule else text, "rule": record})
    return found


def _alike(one: npt.NDArray[np.bool_] | None, other: npt.NDArray[np.bool_] | None) -> bool:
    """Return whether two sets of rows are nearly the same, by their Jaccard index."""
    if one is None or other is None:
        return False
    return int((one & other).sum()) >= SAME_ROWS * max(int((one | other).sum()), 1)


def sentence(
    rule: Rule | None, name: str, rest: int, too_few: tuple[int, int] | None, has_columns: bool
) -> str:
    """Return the description of a group.

    Parameters
    ----------
    rule : the group's rule; None if there is none.
    name : name of the class.
    rest : number of rows of the class that are not in the group.
    too_few : drawn rows of the group and of the rest of its class, if no rule was searched for as they are
        too few; else None.
    has_columns : whether any source column can be part of a rule.
    """
    if rule is not None:
        return rule.text
    if not rest:
        return f"all rows of class {name}"
    if not has_columns:
        return "no column of the source can be named in a rule: see the central rows"
    if too_few is not None:
        return f"too few rows for a rule ({too_few[0]} of the group, {too_few[1]} others of its class)"
    return f"no rule of up to three conditions tells it from the rest of class {name} better than chance"


def _rule(
    views: Sequence[View],
    inside: npt.NDArray[np.bool_],
    in_class: npt.NDArray[np.bool_],
    weights: Float64,
    fit: npt.NDArray[np.bool_],
    tests: int,
) -> Rule | None:
    rows = np.flatnonzero(in_class)
    own = [_take(view, rows) for view in views]
    return find_rule(own, inside[rows], weights[rows], fit[rows], tests=tests)


def _take(view: View, rows: Int64) -> View:
    if isinstance(view, TextView):
        return TextView(view.column, view.occurs[rows], view.terms)
    name = "codes" if hasattr(view, "codes") else "values"
    changed = {**vars(view), name: getattr(view, name)[rows]}
    return type(view)(**changed)


def _rule_record(rule: Rule) -> dict[str, Any]:
    score = asdict(rule.score)
    return {
        "text": rule.text,
        "conditions": [condition.text for condition in rule.conditions],
        **score,
        "rows": round(rule.score.rows),
        "lift": rule.score.lift,
    }


def _terms(
    views: Sequence[View],
    inside: npt.NDArray[np.bool_],
    in_class: npt.NDArray[np.bool_],
    weights: Float64,
) -> Iterator[dict[str, Any]]:
    """Yield the terms that are more frequent in the group than in the rest of its class, strongest first.

    The order is that of the difference of frequencies in standard errors.
    """
    rest = in_class & ~inside
    if min(int(inside.sum()), int(rest.sum())) < MIN_ROWS:
        return
    for view in views:
        if not isinstance(view, TextView):
            continue
        inside_share = np.average(view.occurs[inside], axis=0, weights=weights[inside])
        rest_share = np.average(view.occurs[rest], axis=0, weights=weights[rest])
        variance = inside_share * (1 - inside_share) / inside.sum()
        variance += rest_share * (1 - rest_share) / rest.sum()
        error = np.sqrt(variance + 1e-12)
        z_score = (inside_share - rest_share) / error
        for place in np.argsort(-z_score, kind="stable")[:MAX_TERMS]:
            if z_score[place] >= TERM_LEVEL:
                yield {
                    "column": view.column,
                    "term": view.terms[place],
                    "in_group": float(inside_share[place]),
                    "in_rest_of_class": float(rest_share[place]),
                }


def central_rows(sample: GroupSample, inside: npt.NDArray[np.bool_]) -> list[int]:
    """Return the ids of the drawn rows of a group that are nearest to its mean, nearest first.

    Empty where there are no images or vectors. Rows of equal distance are ordered by row id.
    """
    if sample.features is None or sample.feature_rows is None:
        return []
    mine = inside[sample.feature_rows]
    X = sample.features[mine].astype(np.float64)
    if not len(X):
        return []
    distance = ((X - X.mean(axis=0)) ** 2).sum(axis=1)
    order = np.argsort(distance, kind="stable")[:MAX_CENTRAL_ROWS]
    return [int(row_id) for row_id in sample.row_ids[sample.feature_rows[mine]][order]]
