"""Models on disk: weights as safetensors, the description as JSON. Nothing is ever unpickled.

Importing this module does not import torch: linear models are read and written without it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import safetensors
import safetensors.numpy

from operators.base import OperatorError
from operators.models.linear import LinearModel
from operators.models.spec import ModelSpec

if TYPE_CHECKING:
    from torch import nn

WEIGHTS = "model.safetensors"
DESCRIPTION = "model.json"
UNREADABLE = (RuntimeError, ValueError, TypeError, AttributeError, OSError)
"""Errors of safetensors where a file is damaged, or has numbers of a type that NumPy lacks, as bfloat16."""


def save(model: nn.Module, spec: ModelSpec, folder: Path) -> None:
    """Write ``model.safetensors`` and ``model.json`` into ``folder``, which is made if missing.

    Equal weights give equal bytes. Weights that are tied inside the model are stored once.
    """
    import safetensors.torch

    folder.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_model(model, str(folder / WEIGHTS))
    _describe(spec, folder)


def save_linear(model: LinearModel, spec: ModelSpec, folder: Path) -> None:
    """Write the files of :func:`save` for a model ``logistic``, without torch."""
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.numpy.save_file(model.arrays(), str(folder / WEIGHTS))
    _describe(spec, folder)


def _describe(spec: ModelSpec, folder: Path) -> None:
    (folder / DESCRIPTION).write_text(spec.model_dump_json(indent=2) + "\n", encoding="utf-8")


def copy(source: Path, folder: Path) -> None:
    """Copy what :func:`save` wrote to another folder."""
    for name in (WEIGHTS, DESCRIPTION):
        shutil.copyfile(source / name, folder / name)


def load(folder: Path) -> nn.Module:
    """Read what :func:`save` wrote; the module comes back on the CPU, in eval mode.

    A ``package.module:factory`` is imported and called, as in training; the file itself runs no code. A
    description of more weights than the file has bytes is refused before the model is built.

    Raises
    ------
    OperatorError
        A file is missing or damaged, or the weights do not fit the described model.
    """
    import safetensors.torch

    from operators.models.building import build

    spec = load_spec(folder)
    with _damage_named(spec, folder):
        model = build(spec, seed=0)
        safetensors.torch.load_model(model, str(folder / WEIGHTS))
    return model.eval()


def load_linear(folder: Path) -> LinearModel:
    """Read the model ``logistic`` that :func:`save` or :func:`save_linear` wrote, without torch.

    Raises
    ------
    OperatorError
        A file is missing or damaged, or holds another model.
    """
    spec = load_spec(folder)
    with _damage_named(spec, folder):
        return LinearModel.of(spec, safetensors.numpy.load_file(str(folder / WEIGHTS)))


@contextmanager
def _damage_named(spec: ModelSpec, folder: Path) -> Iterator[None]:
    """Raise OperatorError where the block cannot read the weights, or they are fewer than described."""
    try:
        size = (folder / WEIGHTS).stat().st_size
        if spec.n_weights > size:
            raise ValueError(f"{spec.n_weights} weights in {size} bytes")
        yield
    except FileNotFoundError as error:
        raise OperatorError(
            f"{folder / WEIGHTS} is missing: run the operator that trains it again."
        ) from error
    except (*UNREADABLE, safetensors.SafetensorError) as error:
        raise OperatorError(
            f"{folder / WEIGHTS} does not hold the weights of model '{spec.model}' that {DESCRIPTION} "
            f"beside it describes: {error}. If the factory's code changed, train again."
        ) from error


def load_spec(folder: Path) -> ModelSpec:
    """Read the description that :func:`save` wrote. Raises OperatorError if missing or damaged."""
    path = folder / DESCRIPTION
    try:
        return ModelSpec.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise OperatorError(f"{path} is missing: run the operator that trains the model again.") from error
    except (ValueError, OSError) as error:  # among them pydantic's, and bytes that are not UTF-8
        text = " ".join(str(error).split())[:500]
        raise OperatorError(f"{path} is not a description of a model: {text}. Train it again.") from error
