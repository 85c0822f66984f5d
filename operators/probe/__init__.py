"""The probe: a classifier trained on the dataset, whose mistakes and gradients later operators read.

Importing this package does not import torch: the first use of one of the names below does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy
from operators.probe.settings import Settings

if TYPE_CHECKING:
    from operators.probe.kernel import train
    from operators.probe.scoring import predict
    from operators.probe.trained import Trained

__all__ = ["Settings", "Trained", "predict", "train"]
_DEFINED_IN = {"Trained": "trained", "predict": "scoring", "train": "kernel"}

__getattr__ = lazy(__name__, _DEFINED_IN)
