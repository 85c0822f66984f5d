"""Scores of a regression by group: mean losses in place of accuracies."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from engine.training.data.rows import GroupedRows
from engine.training.evaluation.by_group import INFERRED, MORE_ROWS, group_label, place_of_group
from engine.training.fit.ensemble import Ensemble
from engine.training.objectives import losses_of, objective_of
from operators.arrays import Float64
from operators.metrics.group_scores import (
    few_rows_text,
    not_compared,
    pool_groups,
    pooled_name,
    simultaneous_level,
)


@dataclass(frozen=True)
class LossScore:
    """Mean loss of one group; None for a group without rows."""

    group: str
    rows: int
    loss: float | None
    low: float
    high: float
    """Interval of the mean by its standard error, 95 %, of this group by itself."""
    train_rows: int
    pooled: bool = False
    """Whether it has so few rows that it is pooled or left out; see :mod:`operators.metrics.group_scores`."""


@dataclass(frozen=True, kw_only=True)
class LossTable:
    """Mean loss by group of one grouping, such as the inferred groups."""

    groups: tuple[LossScore, ...]
    worst_group: str | None
    """Name of the group of largest mean loss; small groups are pooled under one name."""
    worst_group_rows: int
    worst_group_loss: float | None
    worst_group_low: float | None
    worst_group_high: float | None
    """Interval that holds the largest true mean loss of any compared group with probability 95 %."""
    average: float | None
    """Group losses weighted by the groups' shares of the train rows; None where no train rows are known."""
    without_rows: tuple[str, ...]
    """Groups of the train rows that have none here."""
    left_out: tuple[str, ...] = ()
    """Groups with rows that are in no figure of the worst group: they have too few rows, also together."""

    def notes(self) -> str:
        """Name the groups that are pooled or left out, with their mean loss; see group_scores."""
        rows = {group.group: group.rows for group in self.groups}
        loss = {g.group: f"mean loss {g.loss:.4g}" for g in self.groups if g.loss is not None}
        text = few_rows_text(rows, details=loss, remedy=MORE_ROWS)
        pool_is_worst = text and self.worst_group not in rows and self.worst_group_loss is not None
        return f"{text}, the worst, with {self.worst_group_loss:.4g}" if pool_is_worst else text


@dataclass(frozen=True, kw_only=True)
class RegressionEvaluation:
    """Scores of one model of numbers on one set of rows. Losses are in the objective's own unit."""

    task: ClassVar[str] = "regression"

    rows: int
    objective: str
    loss: float | None
    """Mean loss of the objective."""
    rmse: float | None
    """Root of the mean squared error, in the target's unit."""
    mae: float | None
    """Mean absolute error, in the target's unit."""
    r2: float | None
    """1 - squared error / squared deviation of the target from its mean here; None where all are equal."""
    coverage: float | None
    """Share of the rows whose target is at most the prediction: near q for ``pinball:q``."""
    groupings: dict[str, LossTable]

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as JSON-able values."""
        return asdict(self)

    def metrics(self, prefix: str = "") -> dict[str, float]:
        """Return the scores under flat names, as MLflow takes them."""
        found: dict[str, float | None] = {
            name: getattr(self, name) for name in ("loss", "rmse", "mae", "r2", "coverage")
        }
        for name, table in self.groupings.items():
            start = "" if name == INFERRED else f"{name}_"
            found[f"{start}worst_group_loss"] = table.worst_group_loss
            found[f"{start}worst_group_loss_high"] = table.worst_group_high
            found[f"{start}average_loss"] = table.average
        return {prefix + key: value for key, value in found.items() if value is not None}

    def ranking(self, grouping: str) -> tuple[float | None, float | None]:
        """Return the negative losses of the worst group and of all rows: the larger the better."""
        worst, loss = self.groupings[grouping].worst_group_loss, self.loss
        return None if worst is None else -worst, None if loss is None else -loss

    def notes(self, grouping: str) -> str:
        """Name the groups that are pooled or left out as they have too few rows; empty without any."""
        return self.groupings[grouping].notes() if grouping in self.groupings else ""


@dataclass
class LossSums:
    """Rows of each group of one grouping, and the sums of their losses and of their squares."""

    rows: Counter[Any] = field(default_factory=Counter)
    losses: Counter[Any] = field(default_factory=Counter)
    squares: Counter[Any] = field(default_factory=Counter)

    def add(self, other: LossSums) -> None:
        """Add the sums of other rows."""
        for mine, theirs in zip(self._parts, other._parts, strict=True):
            mine.update(theirs)

    @property
    def _parts(self) -> tuple[Counter[Any], ...]:
        return self.rows, self.losses, self.squares

    def mean(self, members: tuple[Any, ...], level: float) -> tuple[float, float, float]:
        """Return the mean loss of some groups together, and the ends of its interval of a level."""
        n, total, squares = (sum(part[name] for name in members) for part in self._parts)
        mean = total / n
        if n < 2:  # one row says nothing about the spread
            return mean, 0.0, math.inf
        variance = max(squares / n - mean**2, 0.0) * n / (n - 1)
        reach = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(variance / n)
        return mean, max(mean - reach, 0.0), mean + reach


@dataclass
class RegressionSums:
    """Sums over rows that all scores of a regression are computed from."""

    n: int
    groupings: dict[str, LossSums]
    totals: Float64
    """(6,) sums of the losses, of squared and of absolute errors, of target - m, of its square, and of rows
    whose target is at most the prediction. m is the mean of the train rows."""

    def add(self, other: RegressionSums) -> None:
        """Add the sums of other rows."""
        self.n += other.n
        self.totals = self.totals + other.totals
        for name, found in other.groupings.items():
            self.groupings.setdefault(name, LossSums()).add(found)


def sum_numbers(
    model: Ensemble, rows: GroupedRows, groupings: Mapping[str, npt.NDArray[Any]], objective: str
) -> RegressionSums:
    """Sum over rows with targets. ``groupings``: name -> (n,) group of each row."""
    target, predictions = rows.numbers, model.predict_numbers(rows.X)
    losses = losses_of(objective_of(objective), predictions, target)
    errors, shifted = predictions - target, target - (model.target.mean if model.target else 0.0)
    columns = (losses, errors**2, np.abs(errors), shifted, shifted**2, target <= predictions)
    totals = np.array([float(column.sum()) for column in columns])
    return RegressionSums(
        len(rows), {name: _by_group(groups, losses) for name, groups in groupings.items()}, totals
    )


def _by_group(groups: npt.NDArray[Any], losses: Float64) -> LossSums:
    names, place = np.unique(groups, return_inverse=True)
    columns = (np.bincount(place, column, len(names)) for column in (np.ones(len(losses)), losses, losses**2))
    rows, sums, squares = (dict(zip(names.tolist(), column.tolist(), strict=True)) for column in columns)
    return LossSums(Counter({name: int(n) for name, n in rows.items()}), Counter(sums), Counter(squares))


def summarise_numbers(
    sums: RegressionSums,
    objective: str,
    train_rows: Mapping[str, Mapping[Any, int]] | None = None,
) -> RegressionEvaluation:
    """Compute the scores of a regression from sums over rows."""
    known = train_rows or {}
    tables = {name: _table(name, found, known.get(name, {})) for name, found in sums.groupings.items()}
    if not sums.n:
        return RegressionEvaluation(
            rows=0,
            objective=objective,
            loss=None,
            rmse=None,
            mae=None,
            r2=None,
            coverage=None,
            groupings=tables,
        )
    loss, squared, absolute, shifted, shifted_squares, below = (sums.totals / sums.n).tolist()
    spread = shifted_squares - shifted**2
    r2 = 1 - squared / spread if spread > 1e-12 * max(shifted_squares, 1e-300) else None
    return RegressionEvaluation(
        rows=sums.n,
        objective=objective,
        loss=loss,
        rmse=math.sqrt(squared),
        mae=absolute,
        r2=r2,
        coverage=below,
        groupings=tables,
    )


def _table(grouping: str, found: LossSums, train_rows: Mapping[Any, int]) -> LossTable:
    train = {group: count for group, count in train_rows.items() if count}
    names = sorted({*found.rows, *train}, key=place_of_group)
    rows = {name: found.rows[name] for name in names}
    entries = pool_groups(rows)
    level = simultaneous_level(len(entries))
    compared = [(found.mean(members, level), members) for members in entries]
    alone = {members[0] for members in entries if len(members) == 1}
    scores = []
    for name in names:
        n = found.rows[name]
        loss, low, high = found.mean((name,), simultaneous_level(1)) if n else (None, 0.0, math.inf)
        label, pooled = group_label(grouping, name), n > 0 and name not in alone
        scores.append(
            LossScore(
                group=label,
                rows=n,
                loss=loss,
                low=low,
                high=high,
                train_rows=train.get(name, 0),
                pooled=pooled,
            )
        )
    (worst, members) = max(compared, key=lambda entry: entry[0][0], default=((None, None, None), ()))
    scored = [(score.loss, score.train_rows) for score in scores if score.loss is not None]
    share = sum(n for _, n in scored)
    return LossTable(
        groups=tuple(scores),
        worst_group=pooled_name([group_label(grouping, name) for name in members]) if members else None,
        worst_group_rows=sum(found.rows[name] for name in members),
        worst_group_loss=worst[0],
        worst_group_low=max((ends[1] for ends, _ in compared), default=None),
        worst_group_high=max((ends[2] for ends, _ in compared), default=None),
        average=sum(loss * n for loss, n in scored) / share if share else None,
        without_rows=tuple(score.group for score in scores if not score.rows),
        left_out=tuple(group_label(grouping, name) for name in not_compared(rows)),
    )
