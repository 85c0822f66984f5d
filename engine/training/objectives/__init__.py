"""Objectives: the loss of a row, and what a training does with it for classes and for numbers."""

from engine.training.objectives.base import Objective, TargetScale
from engine.training.objectives.registry import CrossEntropy, Pinball, Squared, objective_of
from engine.training.objectives.row_losses import (
    ClassLosses,
    NumberLosses,
    RowLosses,
    losses_of,
    number_losses,
)

__all__ = [
    "ClassLosses",
    "CrossEntropy",
    "NumberLosses",
    "Objective",
    "Pinball",
    "RowLosses",
    "Squared",
    "TargetScale",
    "losses_of",
    "number_losses",
    "objective_of",
]
