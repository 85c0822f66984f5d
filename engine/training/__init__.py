"""Robust training on a published version: ``train(TrainSpec(...), executor)``.

Importing this package does not import torch, Ray or MLflow: the first use of one of the names below may.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.training.params import TrainParams, parse_params

if TYPE_CHECKING:
    from engine.training.ensemble import Ensemble
    from engine.training.evaluation import Evaluation, evaluate
    from engine.training.in_memory import fit_arrays
    from engine.training.running import TrainResult, TrainSpec, train

__all__ = [
    "Ensemble",
    "Evaluation",
    "TrainParams",
    "TrainResult",
    "TrainSpec",
    "evaluate",
    "fit_arrays",
    "parse_params",
    "train",
]

_HOMES = {
    "Ensemble": "ensemble",
    "Evaluation": "evaluation",
    "TrainResult": "running",
    "TrainSpec": "running",
    "evaluate": "evaluation",
    "fit_arrays": "in_memory",
    "train": "running",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'engine.training' has no attribute {name!r}")
    return getattr(import_module(f"engine.training.{_HOMES[name]}"), name)
