"""Classifiers that are described by plain values, and their storage without pickle.

Importing this package does not import torch; the first use of a name other than ``ModelSpec`` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy
from operators.models.spec import ModelSpec

if TYPE_CHECKING:
    from operators.models.building import Standardize, build, count_weights, device_for, prepare_device
    from operators.models.storage import load, save

__all__ = [
    "ModelSpec",
    "Standardize",
    "build",
    "count_weights",
    "device_for",
    "load",
    "prepare_device",
    "save",
]

_DEFINED_IN = {
    "Standardize": "building",
    "build": "building",
    "count_weights": "building",
    "device_for": "building",
    "prepare_device": "building",
    "load": "storage",
    "save": "storage",
}

__getattr__ = lazy(__name__, _DEFINED_IN)
