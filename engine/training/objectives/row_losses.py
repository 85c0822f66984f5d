"""Losses of rows in the steps of a training, and the scores by which an epoch is chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from engine.training.data.rows import GroupedRows, Shards
from engine.training.objectives.base import Objective, TargetScale
from operators.arrays import Float64
from operators.base import OperatorError
from operators.communicator import Slots
from operators.probe.scoring import logits, predict

SAME = 16 * float(np.finfo(np.float64).eps)
"""Deviation of a target, in parts of its mean, up to which all its values are equal but for rounding."""
LEAST_DEVIATION = 1e-70
"""Least deviation of a target; squares of squared errors are formed for intervals, and must be numbers."""


class RowLosses(Protocol):
    """Losses and scores of rows, as a training asks its objective for them: of classes or of numbers."""

    @property
    def scale(self) -> TargetScale | None:
        """The map from outputs to predicted numbers; None for a classification."""
        ...

    @property
    def unit(self) -> float:
        """Loss in the objective's own unit that a loss of 1 in a step stands for."""
        ...

    @property
    def score_names(self) -> tuple[str, str]:
        """Names of the worst group's and of the mean score in the curve of a training."""
        ...

    @property
    def sign(self) -> int:
        """-1 where a named score is better the smaller it is, else 1."""
        ...

    def answers(self, rows: GroupedRows) -> Tensor:
        """Return what the model is to answer on rows (n,): class indices, or numbers."""
        ...

    def of_step(self, outputs: Tensor, answers: Tensor) -> Tensor:
        """Return the losses (b,) of a step's rows by the model's outputs (b, k), in ``unit``."""
        ...

    def scores(self, model: nn.Module, rows: GroupedRows) -> Float64:
        """Return a score of each row (n,), the larger the better, by a model in eval mode."""
        ...


@dataclass(frozen=True)
class ClassLosses:
    """Losses of a classification. Rows are scored by whether they are classified correctly."""

    objective: Objective
    scale = None
    unit = 1.0
    score_names = ("worst_group_accuracy", "accuracy")
    sign = 1

    def answers(self, rows: GroupedRows) -> Tensor:
        """Implement the method of :class:`RowLosses`."""
        return torch.from_numpy(rows.y)

    def of_step(self, outputs: Tensor, answers: Tensor) -> Tensor:
        """Implement the method of :class:`RowLosses`."""
        return _losses(self.objective, outputs, answers)

    def scores(self, model: nn.Module, rows: GroupedRows) -> Float64:
        """Implement the method of :class:`RowLosses`."""
        if not len(rows):
            return np.zeros(0)
        right: Float64 = (predict(model, rows.X, rows.y)[0] == rows.y).astype(np.float64)
        return right


@dataclass(frozen=True)
class NumberLosses:
    """Losses of a regression, whose network answers in standard deviations from the train rows' mean target.

    ``unit`` is the mean loss of that mean as a constant answer: a step's losses do not depend on the unit of
    the target, so that step sizes, and the rules' own parameters, mean the same for every target.
    """

    objective: Objective
    scale: TargetScale
    unit: float
    score_names = ("worst_group_loss", "mean_loss")
    sign = -1

    def answers(self, rows: GroupedRows) -> Tensor:
        """Implement the method of :class:`RowLosses`."""
        return torch.from_numpy(rows.numbers)

    def of_step(self, outputs: Tensor, answers: Tensor) -> Tensor:
        """Implement the method of :class:`RowLosses`."""
        # A GPU without float64 is not supported; the b numbers of a step cost nothing.
        predictions = self.scale.mean + self.scale.std * outputs[:, 0].double()
        return _losses(self.objective, predictions, answers) / self.unit

    def scores(self, model: nn.Module, rows: GroupedRows) -> Float64:
        """Implement the method of :class:`RowLosses`."""
        if not len(rows):
            return np.zeros(0)
        return -losses_of(self.objective, self.scale.predictions(logits(model, rows.X)[:, 0]), rows.numbers)


def losses_of(objective: Objective, predictions: Float64, target: Float64) -> Float64:
    """Return the losses (n,) of predictions (n,), in the objective's own unit."""
    found = _losses(
        objective, torch.from_numpy(np.asarray(predictions)), torch.from_numpy(np.asarray(target))
    )
    losses: Float64 = found.numpy().astype(np.float64)
    return losses


def _losses(objective: Objective, outputs: Tensor, y: Tensor) -> Tensor:
    """Return the losses (b,). Raises OperatorError for an objective that returns another shape."""
    found = objective.losses(outputs, y)
    if found.shape != y.shape:
        raise OperatorError(
            f"train.objective: {type(objective).__name__}.losses returned the shape {tuple(found.shape)} for "
            f"{len(y)} rows. It returns one loss for each row; see engine.training.objectives.Objective."
        )
    return found


def number_losses(objective: Objective, shards: Shards, slots: Slots) -> NumberLosses:
    """Return the losses of a regression, scaled by the target of the train rows; three passes over them.

    Where all targets are equal, the deviation and the unit of losses are 1. Raises OperatorError where there
    is no train row, the squares of the target are not numbers, or a constant answer has no finite loss.
    """
    n, mean, spread, deviation = _moments(shards, slots)
    if math.isfinite(mean) and spread <= SAME * abs(mean):
        return NumberLosses(objective, TargetScale(mean, 1.0), 1.0)
    if not (spread >= LEAST_DEVIATION and deviation <= 1 / LEAST_DEVIATION):
        raise OperatorError(
            f"train.target: the train rows' numbers deviate by {spread:g} from their mean {mean:g} on "
            f"average, so that squares of squared errors are not numbers. Give it in another unit, in which "
            f"the deviation lies between {LEAST_DEVIATION:g} and {1 / LEAST_DEVIATION:g}."
        )

    def constant(shard: int) -> Tensor:
        target = shards[shard].numbers
        losses = losses_of(objective, np.full(len(target), mean), target)
        return torch.tensor([float(losses.sum())], dtype=torch.float64)

    unit = float(slots.total_over_shards(constant)) / n
    if not np.isfinite(unit) or unit < 0:
        raise OperatorError(
            f"The mean loss of the constant answer {mean:g} is {unit:g}; an objective's losses are finite "
            f"and at least 0. Look at the target and at the objective."
        )
    return NumberLosses(objective, TargetScale(mean, deviation), unit or 1.0)


def _moments(shards: Shards, slots: Slots) -> tuple[float, float, float, float]:
    """Return the number of train rows, and mean, mean absolute and standard deviation of their target.

    Two passes over the rows.
    """

    def sums(shard: int, mean: float) -> Tensor:
        shifted = shards[shard].numbers - mean
        found = (len(shifted), shifted.sum(), np.abs(shifted).sum(), (shifted**2).sum())
        return torch.tensor([float(one) for one in found], dtype=torch.float64)

    with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what is not finite
        n, total, _, _ = slots.total_over_shards(lambda shard: sums(shard, 0.0)).tolist()
        if not n:
            raise OperatorError(
                "No row has the split train, so there is nothing to train on. Lower split.validation and "
                "split.test in the recipe, or drop fewer rows."
            )
        mean = total / n
        _, rest, spread, squares = slots.total_over_shards(lambda shard: sums(shard, mean)).tolist()
    # The mean of the deviations from the mean is its rounding error, and the spread of equal targets.
    error = rest / n
    return n, mean + error, spread / n, float(np.sqrt(max(squares / n - error * error, 0.0)))
