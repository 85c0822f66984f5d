"""The probe: a classifier trained on the dataset, whose mistakes and gradients later operators read.

Importing this package does not import torch: the first use of one of the names below does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from operators.probe.settings import Settings

if TYPE_CHECKING:
    from operators.probe.kernel import Trained, train, train_on_arrays
    from operators.probe.scoring import predict

__all__ = ["Settings", "Trained", "predict", "train", "train_on_arrays"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'operators.probe' has no attribute '{name}'")
    home = "scoring" if name == "predict" else "kernel"
    return getattr(import_module(f"operators.probe.{home}"), name)
