"""Per-sample gradients of a classifier's loss. Importing this package does not import torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.gradients.projection import Projection
from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.gradients.kernel import per_sample_gradients

__all__ = ["Projection", "per_sample_gradients"]
_DEFINED_IN = {"per_sample_gradients": "kernel"}

__getattr__ = lazy(__name__, _DEFINED_IN)
