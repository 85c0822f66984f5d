"""Robust training on a published version; ``train(TrainSpec(...), executor)`` is the entry point.

Importing this package does not import torch, Ray or MLflow: the first use of one of the names below may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.recipe.trainers import TrainParams, parse_params
from operators.lazy import lazy

if TYPE_CHECKING:
    from engine.training.evaluation.by_group import Evaluation, evaluate
    from engine.training.fit.ensemble import Ensemble
    from engine.training.fit.in_memory import fit_arrays
    from engine.training.training_run import TrainResult, TrainSpec, train

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

_DEFINED_IN = {
    "Ensemble": "fit.ensemble",
    "Evaluation": "evaluation.by_group",
    "TrainResult": "training_run",
    "TrainSpec": "training_run",
    "evaluate": "evaluation.by_group",
    "fit_arrays": "fit.in_memory",
    "train": "training_run",
}

__getattr__ = lazy(__name__, _DEFINED_IN)
