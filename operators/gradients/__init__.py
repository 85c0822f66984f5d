"""Per-sample gradients of a classifier's loss. Importing this package does not import torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from operators.gradients.projection import Projection

if TYPE_CHECKING:
    from operators.gradients.kernel import per_sample_gradients

__all__ = ["Projection", "per_sample_gradients"]


def __getattr__(name: str) -> Any:
    if name != "per_sample_gradients":
        raise AttributeError(f"module 'operators.gradients' has no attribute '{name}'")
    return import_module("operators.gradients.kernel").per_sample_gradients
