"""The result of a training of the probe. Importing this module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Generic, TypeVar

M = TypeVar("M", covariant=True)
N = TypeVar("N")


@dataclass(frozen=True)
class Trained(Generic[M]):
    """A trained model with the record of its training."""

    model: M
    """A torch module on the CPU in eval mode, or a :class:`operators.models.linear.LinearModel`."""
    n_parameters: int
    """Trainable numbers in the model."""
    loss_curve: list[float]
    """Objective at each evaluation (``logistic``; rank 0 only), or mean loss of each epoch."""
    converged: bool
    """Whether L-BFGS arrived within ``max_iterations``; true for Adam, which runs its epochs."""
    n_rows: int
    train_loss: float
    """Weighted mean softmax cross-entropy in nats, without penalty."""
    train_accuracy: float
    """Weighted share of rows that are predicted right."""

    def with_model(self, model: N) -> Trained[N]:
        """Return the record with the same model in another form."""
        record = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "model"}
        return Trained(model, **record)
