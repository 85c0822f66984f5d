"""The losses that are built in, as functions on torch tensors."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
