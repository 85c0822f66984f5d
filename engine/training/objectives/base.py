"""The protocol that every objective implements, and the scale of a target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from torch import Tensor

from operators.arrays import Float64


@runtime_checkable
class Objective(Protocol):
    """The loss of a row. Autograd gives its gradient."""

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each row (b,), at least 0.

        Parameters
        ----------
        outputs : (b, C) logits of a classification, or (b,) float64 predictions in the target's unit.
        y : (b,) class indices of a classification, or float64 targets.
        """
        ...


@dataclass(frozen=True)
class TargetScale:
    """The map from a network's output to a prediction, ``mean + std * output``, by the train rows."""

    mean: float
    std: float
    """Above 0; 1 where all targets are equal."""

    def predictions(self, outputs: npt.ArrayLike) -> Float64:
        """Return predictions (n,) of outputs (n,) in the target's unit."""
        found: Float64 = self.mean + self.std * np.asarray(outputs, np.float64)
        return found

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> TargetScale:
        """Return the scale of a stored record. Raises ValueError or KeyError for a faulty record."""
        mean, std = float(record["mean"]), float(record["std"])
        if not (math.isfinite(mean) and math.isfinite(std) and std > 0):
            raise ValueError("the scale of the target is not a finite mean with a positive deviation")
        return cls(mean, std)
