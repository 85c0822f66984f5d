"""The built-in objectives, as functions on torch tensors, and the objective of a training by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from engine.recipe.objectives import CROSS_ENTROPY, PINBALL, SQUARED, parse_objective
from engine.training.objectives.base import Objective
from operators.base import OperatorError


class CrossEntropy:
    """Softmax cross-entropy in nats: a classification by maximum likelihood."""

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Implement the method of :class:`engine.training.objectives.Objective`."""
        return nn.functional.cross_entropy(outputs, y, reduction="none")


class Squared:
    """(y - f)^2, which the mean of the target given the features makes smallest."""

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Implement the method of :class:`engine.training.objectives.Objective`."""
        return (y - outputs).square()


class Pinball:
    """max(q (y - f), (q - 1) (y - f)), which the quantile q makes smallest (Koenker and Bassett 1978)."""

    def __init__(self, quantile: float) -> None:
        self.quantile = quantile

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Implement the method of :class:`engine.training.objectives.Objective`."""
        residual = y - outputs
        return torch.maximum(self.quantile * residual, (self.quantile - 1) * residual)


BUILT_IN: Mapping[str, Callable[[Any], Objective]] = MappingProxyType(
    {CROSS_ENTROPY: lambda _: CrossEntropy(), SQUARED: lambda _: Squared(), PINBALL: Pinball}
)


def objective_of(text: str) -> Objective:
    """Return the objective that a recipe names. Raises OperatorError if a package makes something else."""
    named = parse_objective(text)
    if named.plugin is None:
        return BUILT_IN[named.name](named.number)
    made = named.plugin.make(named.number)
    if not isinstance(made, Objective):
        raise OperatorError(
            f"train.objective {text}: the installed package made a {type(made).__name__}, which lacks the "
            f"method losses(outputs, y). See engine.training.objectives.Objective."
        )
    return made
