"""Grouped permutation importance: what a fitted model loses when a column's values are shuffled.

Features that come from one source column, such as the categories of a one-hot encoding and the indicator of
its missing values, are shuffled together. Shuffled one by one they would form rows that no table holds, and
the other features of the column would still carry its information.

Source: Breiman, Random forests, Machine Learning 2001, section 10. Names and draws are those of
``sklearn.inspection.permutation_importance``, which takes no blocks of columns. Used by ``cues`` and
training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64, Int64, Mask
from operators.hashing import draw_rows
from operators.metrics.equal_columns import equal_blocks
from operators.metrics.group_scores import LEVEL, MIN_ROWS, compare_groups

REPEATS = 5
"""Shuffles of each block."""
MAX_ROWS = 10_000
"""Largest sample of held-out rows that is scored."""
MIN_DRAWN_ROWS = 1_000
"""Smallest sample, where the number of predictions limits it."""
MAX_PREDICTIONS = 2_000_000
"""Predicted rows above which the sample is made smaller than ``MAX_ROWS``."""

Predict = Callable[[npt.NDArray[np.float32]], npt.NDArray[Any]]
Loss = Callable[[Float64, npt.NDArray[Any]], Float64]
Scores = dict[str, float]


@dataclass(frozen=True)
class PermutationImportance:
    """Loss of each score by each block of columns, for every repeat.

    Attributes
    ----------
    names : names of the blocks, length B.
    baseline : score by name on the rows as they are.
    importances : score by name to the losses, shape (B, R): the baseline less the score with the block
        shuffled; of a mean loss what is added to it. A negative value is a gain.
    errors : score by name to the standard error of the mean loss as other rows would be drawn, shape (B,).
    rows : scored rows.
    also : name of a block to those of the blocks that are equal to it, and are shuffled with it.
    """

    names: tuple[str, ...]
    baseline: Scores
    importances: dict[str, Float64]
    errors: dict[str, Float64]
    rows: int
    also: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def mean(self, score: str) -> Float64:
        """Return the mean loss over the repeats, shape (B,)."""
        return np.asarray(self.importances[score].mean(axis=1))

    def std(self, score: str) -> Float64:
        """Return the standard deviation of the loss over the repeats, shape (B,)."""
        return np.asarray(self.importances[score].std(axis=1))

    def margin(self, score: str) -> Float64:
        """Return half the width of the interval of each mean loss, shape (B,).

        The intervals hold for all blocks at once with probability 95 % (Bonferroni), with respect to the
        shuffles and to the draw of the rows.
        """
        z = NormalDist().inv_cdf(1 - (1 - LEVEL) / 2 / max(len(self.names), 1))
        n_repeats = self.importances[score].shape[1]
        return np.asarray(z * np.sqrt(self.errors[score] ** 2 + self.std(score) ** 2 / n_repeats))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values: ``columns`` by what they matter to the mean, then by name.

        The mean is balanced accuracy, or of a regression the mean loss. A column with equal ones has their
        names as ``also``.
        """
        main = "loss" if "loss" in self.importances else "balanced_accuracy"
        figures = {
            score: np.column_stack([self.mean(score), self.std(score), self.margin(score)]).tolist()
            for score in self.importances
        }
        entries: list[dict[str, Any]] = [
            {
                "column": name,
                **({"also": [*self.also[name]]} if name in self.also else {}),
                **{s: dict(zip(("mean", "std", "margin"), figures[s][b], strict=True)) for s in figures},
            }
            for b, name in enumerate(self.names)
        ]
        entries.sort(key=lambda entry: (-entry[main]["mean"], entry["column"]))
        repeats = next(iter(self.importances.values())).shape[1]
        return {"rows": self.rows, "repeats": repeats, "baseline": self.baseline, "columns": entries}


def permutation_importance(
    predict: Predict,
    X: npt.NDArray[np.float32],
    y: npt.NDArray[Any],
    blocks: Mapping[str, Sequence[int]],
    *,
    loss: Loss | None = None,
    groups: npt.NDArray[Any] | None = None,
    sample_weight: npt.NDArray[np.floating[Any]] | None = None,
    n_repeats: int = REPEATS,
    random_state: int = 0,
    min_rows: int = MIN_ROWS,
) -> PermutationImportance:
    """Measure how much a classifier, or a model of numbers, loses without each block of columns.

    Parameters
    ----------
    predict : from rows (n, d) in the order of ``X`` to predicted labels, or numbers (n,).
    X : held-out rows (n, d). They are not changed.
    y : labels (n,), the values that ``predict`` returns, or the numbers that it predicts.
    blocks : name -> positions of the columns that are shuffled together. So are blocks whose columns are
        equal, or opposite, in all rows: otherwise the one would stand in for the other.
    loss : from predictions and numbers (n,) to losses (n,), of a regression; default: a classification.
    groups : (n,) group of each row; default: its class, or of a regression one group. The worst group is
        looked for anew after each shuffle; groups of fewer than ``min_rows`` rows are pooled
        (:mod:`operators.metrics.group_scores`).
    sample_weight : (n,) how much each row counts, as a row of a sample that stands for several; default 1.
    n_repeats : shuffles of each block. All blocks have the same ones.
    random_state : seed of the shuffles.
    min_rows : see ``groups``.

    Returns
    -------
    :class:`PermutationImportance`. A constant block loses exactly 0.

    Raises
    ------
    ValueError
        There are no rows, or a position is not one of a column.

    Notes
    -----
    Time is that of ``len(blocks) * n_repeats + 1`` predictions; memory is one copy of ``X``.
    """
    n, d = X.shape
    if not n:
        raise ValueError("permutation_importance: there are no rows to score.")
    if outside := [p for positions in blocks.values() for p in positions if not 0 <= p < d]:
        raise ValueError(f"permutation_importance: there is no column {outside[0]}; rows have {d}.")
    also = equal_blocks(X, blocks)
    joined = {other for others in also.values() for other in others}
    blocks = {
        name: [p for one in (name, *also.get(name, ())) for p in blocks[one]]
        for name in blocks
        if name not in joined
    }
    scorer: _Scorer = (
        _ClassScorer(np.asarray(y), groups, sample_weight, min_rows)
        if loss is None
        else _LossScorer(np.asarray(y), loss, groups, sample_weight, min_rows)
    )
    values = scorer.values(predict(X))
    baseline = scorer.scores(values)
    orders = _orders(n, n_repeats, random_state)
    losses = {name: np.zeros((len(blocks), n_repeats)) for name in baseline}
    errors = {name: np.zeros(len(blocks)) for name in baseline}
    shuffled = X.copy()
    for b, positions in enumerate(blocks.values()):
        columns = list(positions)
        if not len(columns) or (X[:, columns] == X[0, columns]).all():
            continue
        without = [scorer.values(predict(rows)) for rows in _shuffles(X, shuffled, columns, orders)]
        for r, values_now in enumerate(without):
            for name, value in scorer.scores(values_now).items():
                losses[name][b, r] = baseline[name] - value
        for name, value in scorer.errors(values, without).items():
            errors[name][b] = value
    stated = {name: scorer.sign * value for name, value in baseline.items()}
    return PermutationImportance(tuple(blocks), stated, losses, errors, n, also)


def _shuffles(
    X: npt.NDArray[np.float32],
    shuffled: npt.NDArray[np.float32],
    columns: list[int],
    orders: Sequence[npt.NDArray[np.intp]],
) -> Iterator[npt.NDArray[np.float32]]:
    """Yield ``shuffled``, a copy of ``X``, with these columns in each order, and restore it at the end."""
    own = X[:, columns]
    for order in orders:
        shuffled[:, columns] = own[order]
        yield shuffled
    shuffled[:, columns] = own


def max_scored_rows(n_columns: int, *, cost: float = 1.0, n_repeats: int = REPEATS) -> int:
    """Return the largest number of held-out rows to score: 1,000 to 10,000, fewer with more columns.

    Parameters
    ----------
    n_columns : blocks that are shuffled.
    cost : time of a prediction relative to that of one linear model or small network.
    n_repeats : shuffles of each block.
    """
    wanted = MAX_PREDICTIONS / (max(n_columns, 1) * n_repeats * cost)
    return int(min(MAX_ROWS, max(MIN_DRAWN_ROWS, wanted)))


def drawn_rows(row_ids: Int64, n: int, seed: int, purpose: str) -> npt.NDArray[np.intp]:
    """Return the positions, in rising order of the ids, of the ``n`` rows with the smallest hashes."""
    taken = draw_rows(row_ids, n, seed, purpose)
    found: npt.NDArray[np.intp] = taken[np.argsort(row_ids[taken], kind="stable")]
    return found


def _orders(n: int, n_repeats: int, random_state: int) -> list[npt.NDArray[np.intp]]:
    """Return the shuffles, each (n,), that ``sklearn.inspection.permutation_importance`` draws for this
    seed.
    """
    seed = np.random.RandomState(random_state).randint(np.iinfo(np.int32).max + 1)
    rng = np.random.RandomState(seed)
    step, total, found = np.arange(n), np.arange(n), []
    for _ in range(n_repeats):
        rng.shuffle(step)
        total = total[step]
        found.append(total)
    return found


class _Scorer(Protocol):
    """Scores predictions on fixed rows."""

    sign: int
    """-1 where a score is better the smaller it is, else 1."""

    def values(self, predicted: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the value of each prediction (n,), the larger the better."""
        ...

    def scores(self, values: npt.NDArray[Any]) -> Scores:
        """Return the scores of predictions of these values, the larger the better."""
        ...

    def errors(self, values: npt.NDArray[Any], shuffled: Sequence[npt.NDArray[Any]]) -> Scores:
        """Return the standard error of each score's mean loss over some shuffles.

        The loss of a row is the mean of its losses over the shuffles, so that rows are compared with
        themselves. The error for the worst group is the largest error of those groups that were the worst
        without or with a shuffle.
        """
        ...


class _ClassScorer:
    """Scores of a classifier. The value of a prediction is 1 if it is right, else 0."""

    sign = 1

    def __init__(
        self,
        y: npt.NDArray[Any],
        groups: npt.NDArray[Any] | None,
        sample_weight: npt.NDArray[np.floating[Any]] | None,
        min_rows: int,
    ) -> None:
        self._y = y
        classes, class_place = np.unique(y, return_inverse=True)
        keys = class_place if groups is None else groups
        self._groups = _Groups(keys, sample_weight, min_rows)
        self._by_class = _Cells(class_place, self._groups.weight, len(classes))

    def values(self, predicted: npt.NDArray[Any]) -> Mask:
        """Implement the method of :class:`_Scorer`."""
        return np.asarray(np.asarray(predicted) == self._y)

    def scores(self, values: npt.NDArray[Any]) -> Scores:
        """Implement the method of :class:`_Scorer`."""
        return {
            "accuracy": self._groups.mean(values),
            "balanced_accuracy": float(np.nanmean(self._by_class.means(values))),
            "worst_group_accuracy": self._groups.worst(values),
        }

    def errors(self, values: npt.NDArray[Any], shuffled: Sequence[npt.NDArray[Any]]) -> Scores:
        """Implement the method of :class:`_Scorer`."""
        by_class = self._by_class.errors(values - np.mean(shuffled, axis=0))
        n_classes = int(np.isfinite(by_class).sum())
        mean, worst = self._groups.errors(values, shuffled)
        return {
            "accuracy": mean,
            "balanced_accuracy": float(np.sqrt(np.nansum(by_class**2)) / n_classes),
            "worst_group_accuracy": worst,
        }


class _LossScorer:
    """Scores of a regression. The value of a prediction is its negative loss."""

    sign = -1

    def __init__(
        self,
        y: npt.NDArray[Any],
        loss: Loss,
        groups: npt.NDArray[Any] | None,
        sample_weight: npt.NDArray[np.floating[Any]] | None,
        min_rows: int,
    ) -> None:
        self._y, self._loss = y, loss
        keys = np.zeros(len(y), np.int64) if groups is None else groups
        self._groups = _Groups(keys, sample_weight, min_rows)

    def values(self, predicted: npt.NDArray[Any]) -> Float64:
        """Implement the method of :class:`_Scorer`."""
        return -self._loss(np.asarray(predicted, np.float64), self._y)

    def scores(self, values: npt.NDArray[Any]) -> Scores:
        """Implement the method of :class:`_Scorer`."""
        return {"loss": self._groups.mean(values), "worst_group_loss": self._groups.worst(values)}

    def errors(self, values: npt.NDArray[Any], shuffled: Sequence[npt.NDArray[Any]]) -> Scores:
        """Implement the method of :class:`_Scorer`."""
        mean, worst = self._groups.errors(values, shuffled)
        return {"loss": mean, "worst_group_loss": worst}


class _Groups:
    """Weighted means of values over all rows and in the worst group; small groups are pooled."""

    def __init__(
        self,
        keys: npt.NDArray[Any],
        sample_weight: npt.NDArray[np.floating[Any]] | None,
        min_rows: int,
    ) -> None:
        self.weight = np.ones(len(keys)) if sample_weight is None else np.asarray(sample_weight, np.float64)
        names, place = np.unique(keys, return_inverse=True)
        sizes = dict(enumerate(np.bincount(place).tolist()))
        compared = compare_groups(sizes, sizes, min_rows=min_rows)
        entry = np.full(len(names), len(compared))
        for index, one in enumerate(compared):
            entry[list(one.members)] = index
        self._cells = _Cells(entry[place], self.weight, len(compared))

    def mean(self, values: npt.NDArray[Any]) -> float:
        """Return the mean over all rows."""
        return float(self.weight @ values / self.weight.sum())

    def worst(self, values: npt.NDArray[Any]) -> float:
        """Return the least mean of a group."""
        return float(np.nanmin(self._cells.means(values)))

    def errors(self, values: npt.NDArray[Any], shuffled: Sequence[npt.NDArray[Any]]) -> tuple[float, float]:
        """Return the standard errors of the mean loss and of the worst group's, see :class:`_Scorer`."""
        loss = values - np.mean(shuffled, axis=0)
        by_group = self._cells.errors(loss)
        worst = {int(np.nanargmin(self._cells.means(one))) for one in (values, *shuffled)}
        centred = loss - self.weight @ loss / self.weight.sum()
        mean = float(np.sqrt((self.weight * centred) @ (self.weight * centred)) / self.weight.sum())
        return mean, float(max(by_group[g] for g in worst))


class _Cells:
    """Weighted means of values by cell (class or group) of the rows; NaN for a cell without weight."""

    def __init__(self, place: npt.NDArray[np.integer[Any]], weight: Float64, n_cells: int) -> None:
        # The last cell holds the rows that are in no compared group; it is not returned.
        self._place, self._weight, self._n = place, weight, n_cells + 1
        self._total = np.bincount(place, weight, minlength=self._n)

    def means(self, values: npt.NDArray[Any]) -> Float64:
        """Return the mean of each cell, shape (cells,)."""
        return self._ratio(np.bincount(self._place, self._weight * values, minlength=self._n), self._total)

    def errors(self, values: Float64) -> Float64:
        """Return the standard error of each cell's mean, shape (cells,)."""
        means = np.nan_to_num(np.append(self.means(values), 0.0))
        centred = self._weight * (values - means[self._place])
        squares = np.bincount(self._place, centred**2, minlength=self._n)
        return np.asarray(self._ratio(np.sqrt(squares), self._total))

    def _ratio(self, value: npt.NDArray[Any], total: npt.NDArray[Any]) -> Float64:
        found = np.full(self._n, np.nan)
        np.divide(value, total, out=found, where=total > 0)
        return found[:-1]
