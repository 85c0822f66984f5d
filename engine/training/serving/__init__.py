"""Registered models: what they store, how they are packaged, and how they answer.

MLflow imports this package by its name, which stands in the models, and calls :func:`_load_pyfunc` with the
folder of a model's files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.training.serving.pyfunc import ServedModel


def _load_pyfunc(path: str) -> ServedModel:
    """Load a model; MLflow calls this function by its name."""
    from engine.training.serving.pyfunc import ServedModel

    return ServedModel(path)
