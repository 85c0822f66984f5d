"""Settings of the training of the probe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class SolverParams(Protocol):
    """Parameters of a recipe from which settings are made."""

    l2: float
    epochs: int
    lr: float
    batch_size: int


@dataclass(frozen=True)
class Settings:
    """Settings of the solvers: L-BFGS (``logistic``) reads the first three, Adam ``l2`` and the rest."""

    l2: float = 0.5
    """Adds l2/2 ||W||^2 to the mean loss; biases are free."""
    tolerance: float = 1e-8
    """The largest entry of the gradient at which L-BFGS stops."""
    max_iterations: int = 500
    epochs: int = 50
    lr: float = 1e-3
    batch_size: int = 128

    @classmethod
    def of(cls, params: SolverParams) -> Settings:
        """Return the settings that a recipe's parameters ask for; the others keep their defaults."""
        return cls(l2=params.l2, epochs=params.epochs, lr=params.lr, batch_size=params.batch_size)
