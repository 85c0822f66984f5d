"""A network of a factory or of ``hf:`` as an MLflow model of the flavour ``pytorch``, beside the pyfunc.

It is the graph that ``torch.export`` writes, with its weights and without a pickle: to load it and to answer
takes torch alone, neither Rowsieve, nor the package of the factory, nor transformers. It takes features,
token ids or pixels, not raw rows, and answers with probabilities, or with the number that a regression
predicts.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from engine.core.errors import one_line
from engine.core.policy import current_policy
from engine.recipe.estimators import is_estimator
from engine.training.fit.ensemble import Ensemble
from engine.training.objectives import TargetScale
from operators.models.spec import BUILT_IN

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

FLAVOUR = "pytorch"
MODEL_FILE = "data/model.pt2"
TRACED_ROWS, CHECKED_ROWS = 2, 5
"""Rows that the graph is traced with, and other ones that it must answer as the network does."""
TOLERANCE = 1e-4
_log = logging.getLogger("rowsieve")


class Answers(nn.Module):
    """A network that answers as the model does: probabilities (n, C), or the numbers (n,) of a regression."""

    def __init__(self, network: nn.Module, target: TargetScale | None) -> None:
        super().__init__()
        self.network = network
        self.target = target

    def forward(self, x: Tensor) -> Tensor:
        """Map features (n, d) to answers."""
        outputs: Tensor = self.network(x)
        if self.target is None:
            return torch.softmax(outputs, dim=1)
        return self.target.mean + self.target.std * outputs[:, 0]


def save_network(model: Ensemble, folder: Path, pins: Sequence[str]) -> None:
    """Write the network as an MLflow model into a new folder, with these pinned packages.

    Nothing is written for built-in networks, estimators and mixtures. A network that cannot be exported, or
    whose graph answers otherwise, is left out with a warning: the pyfunc is the model all the same.
    """
    if len(model.models) != 1 or model.spec.model in BUILT_IN or is_estimator(model.spec.model):
        return
    answers = Answers(model.models[0], model.target).eval()
    if (weights := _bytes_of(answers)) > current_policy().max_model_bytes // 3:
        _warn(model, f"its {weights:,} bytes of weights would lie in the model twice")
        return
    try:
        _export(answers, folder, model.spec.n_features, pins)
        _check(answers, folder, model.spec.n_features)
    except Exception as error:  # tracing runs the network's own code on stand-ins for values
        shutil.rmtree(folder, ignore_errors=True)
        _warn(model, f"{type(error).__name__}: {one_line(error, 300)}")


def _bytes_of(network: nn.Module) -> int:
    return sum(value.nbytes for value in network.state_dict().values())


def _warn(model: Ensemble, why: str) -> None:
    _log.warning(
        "train.model %s has no MLflow model of the flavour %s beside the pyfunc, which is not affected: %s",
        model.spec.model,
        FLAVOUR,
        why,
    )


def _rows(n: int, n_features: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Return rows that every network reads: whole numbers from 0 to 2, which are token ids too."""
    return (np.arange(n * n_features) % 3).reshape(n, n_features).astype(np.float32)


def _export(answers: Answers, folder: Path, n_features: int, pins: Sequence[str]) -> None:
    import mlflow.pytorch

    example = _rows(TRACED_ROWS, n_features)
    with torch.no_grad():
        width = tuple(answers(torch.from_numpy(example)).shape[1:])
        mlflow.pytorch.save_model(
            answers,
            folder,
            serialization_format="pt2",
            input_example=example,
            signature=_signature(n_features, width),
            pip_requirements=list(pins),
        )


def _signature(n_features: int, width: tuple[int, ...]) -> ModelSignature:
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    kind = np.dtype(np.float32)
    return ModelSignature(
        Schema([TensorSpec(kind, (-1, n_features))]), Schema([TensorSpec(kind, (-1, *width))])
    )


def _check(answers: Answers, folder: Path, n_features: int) -> None:
    """Raise ValueError unless the stored graph answers another number of rows as the network does."""
    rows = torch.from_numpy(_rows(CHECKED_ROWS, n_features))
    stored = torch.export.load(folder / MODEL_FILE).module()
    with torch.no_grad():
        if not torch.allclose(stored(rows), answers(rows), atol=TOLERANCE, rtol=TOLERANCE):
            raise ValueError("the exported graph answers otherwise than the network")
