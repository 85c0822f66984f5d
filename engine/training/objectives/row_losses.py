"""Losses of rows in the steps of a training, and the scores by which an epoch is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from engine.training.objectives.base import Objective, TargetScale
from engine.training.rows import GroupedRows, Shards
from operators.arrays import Float64
from operators.base import OperatorError
from operators.probe.communicator import Slots
from operators.probe.scoring import logits, predict


class RowLosses(Protocol):
    """Losses and scores of rows, as a training asks its objective for them: of classes or of numbers."""

    @property
    def scale(self) -> TargetScale | None:
        """How outputs become predictions of numbers; None for a classification."""
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

    def of_step(self, outputs: Tensor, rows: GroupedRows) -> Tensor:
        """Return the losses (b,) of a step's rows by the model's outputs (b, k), in ``unit``."""
        ...

    def scores(self, model: nn.Module, rows: GroupedRows) -> Float64:
        """Return a score of each row (n,), the larger the better, by a model in eval mode."""
        ...


@dataclass(frozen=True)
class ClassLosses:
    """Of a classification. Rows are scored by whether they are classified correctly."""

    objective: Objective
    scale = None
    unit = 1.0
    score_names = ("worst_group_accuracy", "accuracy")
    sign = 1

    def of_step(self, outputs: Tensor, rows: GroupedRows) -> Tensor:
        """Implement the method of :class:`RowLosses`."""
        return self.objective.losses(outputs, torch.from_numpy(rows.y).to(outputs.device))

    def scores(self, model: nn.Module, rows: GroupedRows) -> Float64:
        """Implement the method of :class:`RowLosses`."""
        if not len(rows):
            return np.zeros(0)
        right: Float64 = (predict(model, rows.X, rows.y)[0] == rows.y).astype(np.float64)
        return right


@dataclass(frozen=True)
class NumberLosses:
    """Of a regression. A network answers in standard deviations from the mean of the train rows' target.

    ``unit`` is the mean loss of that mean as a constant answer: a step's losses do not depend on the unit of
    the target, so that step sizes, and the rules' own parameters, mean the same for every target.
    """

    objective: Objective
    scale: TargetScale
    unit: float
    score_names = ("worst_group_loss", "mean_loss")
    sign = -1

    def of_step(self, outputs: Tensor, rows: GroupedRows) -> Tensor:
        """Implement the method of :class:`RowLosses`."""
        # A GPU without float64 is not supported; the b numbers of a step cost nothing.
        predictions = self.scale.mean + self.scale.std * outputs[:, 0].double()
        target = torch.from_numpy(rows.numbers).to(outputs.device)
        return self.objective.losses(predictions, target) / self.unit

    def scores(self, model: nn.Module, rows: GroupedRows) -> Float64:
        """Implement the method of :class:`RowLosses`."""
        if not len(rows):
            return np.zeros(0)
        return -losses_of(self.objective, self.scale.predictions(logits(model, rows.X)[:, 0]), rows.numbers)


def losses_of(objective: Objective, predictions: Float64, target: Float64) -> Float64:
    """Return the losses (n,) of predictions (n,), in the objective's own unit."""
    found = objective.losses(torch.from_numpy(np.asarray(predictions)), torch.from_numpy(np.asarray(target)))
    losses: Float64 = found.numpy().astype(np.float64)
    return losses


def number_losses(objective: Objective, shards: Shards, slots: Slots) -> NumberLosses:
    """Return the losses of a regression, scaled by the target of the train rows; three passes over them.

    Raises OperatorError where there is no train row, or the loss of a constant answer is no number.
    """

    def sums(shard: int, power: int, mean: float) -> Tensor:
        target = shards[shard].numbers
        return torch.tensor(
            [float(len(target)), float(((target - mean) ** power).sum())], dtype=torch.float64
        )

    n, total = slots.total_over_shards(lambda shard: sums(shard, 1, 0.0)).tolist()
    if not n:
        raise OperatorError("There is nothing to train on: no rows of split train.")
    mean = total / n
    std = float(np.sqrt(slots.total_over_shards(lambda shard: sums(shard, 2, mean)).tolist()[1] / n))
    scale = TargetScale(mean, std if std > np.finfo(np.float64).eps * abs(mean) else 1.0)

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
    return NumberLosses(objective, scale, unit or 1.0)
