"""Evaluation of a model by group, by the tail of its losses (CVaR) and by calibration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from engine.training.evaluation.metric_sums import (
    NAT_STEPS,
    GroupSums,
    MetricSums,
    average_precision,
    cvar_of_steps,
    group_calibration,
    sum_over_rows,
)
from engine.training.fit.ensemble import Ensemble
from operators.arrays import Float64
from operators.metrics.group_scores import (
    MIN_ROWS,
    NEARLY_ALL_WRONG,
    compare_groups,
    few_rows_text,
    not_compared,
    pooled_name,
    worst_of,
    wrong_labels_text,
)
from operators.metrics.intervals import wilson_interval

INFERRED = "inferred"
"""Name of the grouping by inferred groups."""
MORE_ROWS = "a larger validation or test split has more of them"
"""Remedy where groups have too few scored rows to be compared."""
ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)


class Scores(Protocol):
    """Scores of a model on a split, of a classification or of a regression."""

    @property
    def task(self) -> str:
        """``classification`` or ``regression``."""
        ...

    @property
    def rows(self) -> int:
        """Number of scored rows."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as JSON-able values."""
        ...

    def metrics(self, prefix: str = "") -> dict[str, float]:
        """Return the scores under flat names, as MLflow takes them."""
        ...

    def ranking(self, grouping: str) -> tuple[float | None, float | None]:
        """Return the scores of the worst group of a grouping and of all rows: the larger the better."""
        ...

    def notes(self, grouping: str) -> str:
        """Name the groups that are pooled, left out, or have wrong labels; empty without any."""
        ...


@dataclass(frozen=True)
class GroupScore:
    """Accuracy of one group. A group without rows has none: it is neither 0 nor 1."""

    group: str
    rows: int
    accuracy: float | None
    low: float
    high: float
    """Ends of the 95 % Wilson interval of this group's accuracy."""
    train_rows: int
    ece: float | None = None
    """Expected calibration error of the group; on few rows it is large by chance."""
    overconfidence: float | None = None
    """Mean probability of the predicted class less the accuracy."""
    pooled: bool = False
    """Whether it has so few rows that it is pooled or left out; see :mod:`operators.metrics.group_scores`."""


@dataclass(frozen=True, kw_only=True)
class GroupTable:
    """Accuracy by group of one grouping, such as the inferred groups."""

    groups: tuple[GroupScore, ...]
    worst_group: str | None
    """Name of the worst of the compared groups; small groups are pooled under one name."""
    worst_group_rows: int
    worst_group_accuracy: float | None
    worst_group_low: float | None
    worst_group_high: float | None
    """Interval that holds the lowest true accuracy of any compared group with probability 95 %."""
    average: float | None
    """Group accuracies weighted by the groups' shares of the train rows, as in the papers; over groups with
    rows. None if no train rows are known."""
    without_rows: tuple[str, ...]
    """Groups of the train rows that have none here."""
    left_out: tuple[str, ...] = ()
    """Groups with rows that are in no figure of the worst group: they have too few rows, also together."""
    wrong_labels: dict[str, float] = field(default_factory=dict)
    """Estimated share of wrong labels, by group. A group is in no figure of the worst group if it is above
    ``NEARLY_ALL_WRONG``: the worst group would be decided by how well a model fits wrong labels."""

    def is_nearly_all_wrong(self, group: str) -> bool:
        """Return whether nearly all labels of a group are wrong by the estimate."""
        return self.wrong_labels.get(group, 0.0) > NEARLY_ALL_WRONG

    def notes(self) -> str:
        """Name the groups that are pooled or left out, with the rows that are right, or have wrong labels."""
        with_rows = {group.group for group in self.groups if group.rows}
        wrong = {name: share for name, share in self.wrong_labels.items() if name in with_rows}
        return "; ".join(filter(None, [self._few_rows_text(), wrong_labels_text(wrong)]))

    def _few_rows_text(self) -> str:
        rows = {group.group: group.rows for group in self.groups if not self.is_nearly_all_wrong(group.group)}
        right = {
            group.group: f"{round(group.accuracy * group.rows):,} right"
            for group in self.groups
            if group.accuracy is not None
        }
        text = few_rows_text(rows, details=right, remedy=MORE_ROWS)
        pool_is_worst = text and self.worst_group not in rows and self.worst_group_accuracy is not None
        return f"{text}, the worst, with {self.worst_group_accuracy:.3f}" if pool_is_worst else text


@dataclass(frozen=True)
class CvarPoint:
    """Mean losses of the worst alpha of the rows."""

    alpha: float
    value: float
    """Mean 0/1 loss of the worst alpha of the rows, for the model with its present mixture."""
    reweighted: float | None
    """This loss for the base models mixed for this alpha; None for a single model. Mixtures are chosen on the
    validation rows, on which the value is therefore too good; use that on the test rows."""
    deterministic: float
    """min(1, error/alpha): the value of any single model of the same error."""
    coin: float
    """1 - 1/C: the value at every alpha of guessing by a fair draw over the classes."""
    log_loss: float
    """Mean of -log of the served probability of the true class over the worst alpha of the rows, in nats."""


@dataclass(frozen=True)
class CalibrationCurve:
    """Reliability by bins of the predicted class's probability; bins without rows are left out."""

    ece: float | None
    confidence: tuple[float, ...]
    accuracy: tuple[float, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Scores of one model on one set of rows."""

    task: ClassVar[str] = "classification"

    rows: int
    accuracy: float | None
    """Share of rows that the served model classifies correctly; it answers by the mean of the base models'
    probabilities."""
    groupings: dict[str, GroupTable]
    cvar: tuple[CvarPoint, ...]
    calibration: CalibrationCurve
    balanced_accuracy: float | None = None
    """Unweighted mean of the classes' accuracies."""
    log_loss: float | None = None
    """Mean of -log of the probability of the true class, in nats."""
    auprc: float | None = None
    """Mean over classes of the area under precision by recall, of the probabilities in steps of .001."""

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as JSON-able values."""
        return asdict(self)

    def metrics(self, prefix: str = "") -> dict[str, float]:
        """Return the scores under flat names, as MLflow takes them."""
        found: dict[str, float | None] = {
            "accuracy": self.accuracy,
            "balanced_accuracy": self.balanced_accuracy,
            "log_loss": self.log_loss,
            "auprc": self.auprc,
            "ece": self.calibration.ece,
        }
        for name, table in self.groupings.items():
            start = "" if name == INFERRED else f"{name}_"
            found[f"{start}worst_group_accuracy"] = table.worst_group_accuracy
            found[f"{start}worst_group_accuracy_low"] = table.worst_group_low
            found[f"{start}average_accuracy"] = table.average
        found |= {f"cvar_{point.alpha:g}": point.value for point in self.cvar}
        found |= {f"log_loss_cvar_{point.alpha:g}": point.log_loss for point in self.cvar}
        return {prefix + key: value for key, value in found.items() if value is not None}

    def ranking(self, grouping: str) -> tuple[float | None, float | None]:
        """Return the accuracies of the worst group of a grouping and of all rows: the larger the better."""
        return self.groupings[grouping].worst_group_accuracy, self.accuracy

    def notes(self, grouping: str) -> str:
        """Name the groups that are pooled, left out, or have wrong labels; empty without any."""
        return self.groupings[grouping].notes() if grouping in self.groupings else ""


def evaluate(
    model: Ensemble,
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    groups: Mapping[str, npt.ArrayLike] | npt.ArrayLike,
    *,
    alphas: Sequence[float] = ALPHAS,
    train_rows: Mapping[str, Mapping[Any, int]] | None = None,
    min_rows: int = MIN_ROWS,
) -> Evaluation:
    """Score a model on rows in memory.

    Parameters
    ----------
    model
        A trained model.
    X, y
        (n, d) features and (n,) class indices.
    groups
        (n,) group of each row, called ``inferred``, where any negative number means that the row is
        in no group; or several such by name, then of any values.
    alphas
        Tails of the CVaR curve, each in (0, 1].
    train_rows
        By grouping, train rows of each group; default: none are known.
    min_rows
        Scored rows below which groups are pooled before the worst is looked for.
    """
    named = dict(groups) if isinstance(groups, Mapping) else {INFERRED: groups}
    if INFERRED in named:
        named[INFERRED] = by_class(named[INFERRED], y)
    mixtures = mixtures_for(model, alphas)
    return summarise(sum_over_rows(model, X, y, named, mixtures), model, alphas, train_rows, min_rows)


def by_class(groups: npt.ArrayLike, y: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Rename rows of class c that are in no group (any negative number) to -1 - c; returns (n,)."""
    numbers = np.asarray(groups, np.int64)
    return np.where(numbers < 0, -1 - np.asarray(y, np.int64), numbers)


def mixtures_for(model: Ensemble, alphas: Sequence[float]) -> list[Float64]:
    """Return mixture weights (T,) for each alpha; an empty list for a single model."""
    return [model.reweight(alpha).model_weights for alpha in alphas] if len(model.models) > 1 else []


def summarise(
    sums: MetricSums,
    model: Ensemble,
    alphas: Sequence[float],
    train_rows: Mapping[str, Mapping[Any, int]] | None = None,
    min_rows: int = MIN_ROWS,
    wrong_labels: Mapping[int, float] = MappingProxyType({}),
) -> Evaluation:
    """Compute scores from sums over rows.

    The losses of ``sums`` beyond the first are those of ``mixtures_for(model, alphas)``. ``wrong_labels``
    holds the estimated share of wrong labels of inferred groups that have some.
    """
    known, wrong = train_rows or {}, {INFERRED: wrong_labels}
    tables = {
        name: _table(name, found, known.get(name, {}), min_rows, wrong.get(name, {}))
        for name, found in sums.groupings.items()
    }
    return Evaluation(
        rows=sums.n,
        accuracy=_accuracy(sums),
        groupings=tables,
        cvar=_curve(sums, model.spec.n_classes, alphas),
        calibration=_reliability(sums),
        balanced_accuracy=_balanced_accuracy(sums),
        log_loss=sums.log_loss / sums.n if sums.n else None,
        auprc=average_precision(sums.ranks),
    )


def _accuracy(sums: MetricSums) -> float | None:
    return sums.correct / sums.n if sums.n else None


def _balanced_accuracy(sums: MetricSums) -> float | None:
    shares = [sums.labels.right[label] / rows for label, rows in sums.labels.rows.items() if rows]
    return sum(shares) / len(shares) if shares else None


def _table(
    grouping: str,
    found: GroupSums,
    train_rows: Mapping[Any, int],
    min_rows: int,
    wrong_labels: Mapping[Any, float],
) -> GroupTable:
    train = {group: count for group, count in train_rows.items() if count}
    names = sorted({*found.rows, *train}, key=place_of_group)
    rows = {name: found.rows[name] for name in names if wrong_labels.get(name, 0.0) <= NEARLY_ALL_WRONG}
    rows = rows if any(rows.values()) else {name: found.rows[name] for name in names}
    compared = compare_groups(rows, found.right, min_rows=min_rows)
    alone = {group.members[0] for group in compared if not group.pooled}
    scores = []
    for name in names:
        n, right = found.rows[name], found.right[name]
        low, high = wilson_interval(min(right, n), n)
        accuracy = right / n if n else None
        pooled = n > 0 and name in rows and name not in alone
        label = group_label(grouping, name)
        ece, over = group_calibration(found.bins[name]) if name in found.bins else (None, None)
        scores.append(
            GroupScore(
                group=label,
                rows=n,
                accuracy=accuracy,
                low=float(low),
                high=float(high),
                train_rows=train.get(name, 0),
                ece=ece,
                overconfidence=over,
                pooled=pooled,
            )
        )
    scored = [(score.accuracy, score) for score in scores if score.accuracy is not None]
    worst = worst_of(compared)

    def labels(members: Sequence[Any]) -> list[str]:
        return [group_label(grouping, name) for name in members]

    share = sum(score.train_rows for _, score in scored)
    return GroupTable(
        groups=tuple(scores),
        worst_group=pooled_name(labels(worst.members), min_rows=min_rows) if worst else None,
        worst_group_rows=worst.rows if worst else 0,
        worst_group_accuracy=worst.accuracy if worst else None,
        worst_group_low=min((group.low for group in compared), default=None),
        worst_group_high=min((group.high for group in compared), default=None),
        average=sum(accuracy * score.train_rows for accuracy, score in scored) / share if share else None,
        without_rows=tuple(score.group for score in scores if not score.rows),
        left_out=tuple(labels(not_compared(rows, min_rows=min_rows))),
        wrong_labels={group_label(grouping, name): n for name, n in wrong_labels.items() if name in names},
    )


def group_label(grouping: str, name: Any) -> str:
    """Return a group's name for people; an inferred one below 0 holds a class's rows that are in no group."""
    return f"rows without a group, class {-1 - name}" if grouping == INFERRED and name < 0 else str(name)


def place_of_group(group: Any) -> tuple[bool, float, str]:
    """Return the key by which groups are sorted: numbers, then rows without a group, then texts."""
    number = isinstance(group, int | float)
    return (not number, (math.inf if group < 0 else group) if number else 0.0, str(group))


def _curve(sums: MetricSums, n_classes: int, alphas: Sequence[float]) -> tuple[CvarPoint, ...]:
    if not sums.n:
        return ()
    error = cvar_of_steps(sums.losses[0], 1.0)
    points = []
    for index, alpha in enumerate(alphas):
        reweighted = cvar_of_steps(sums.losses[index + 1], alpha) if len(sums.losses) > 1 else None
        value, nats = cvar_of_steps(sums.losses[0], alpha), cvar_of_steps(sums.nats, alpha, NAT_STEPS)
        points.append(CvarPoint(alpha, value, reweighted, min(1.0, error / alpha), 1 - 1 / n_classes, nats))
    return tuple(points)


def _reliability(sums: MetricSums) -> CalibrationCurve:
    shape = sums.calibration
    filled = shape.rows > 0
    ece = shape.ece
    return CalibrationCurve(
        None if math.isnan(ece) else ece,
        tuple(shape.confidence[filled].tolist()),
        tuple(shape.accuracy[filled].tolist()),
        tuple(shape.rows[filled].tolist()),
    )
