"""Pretrained networks (``hf:``) as base models: their description, inputs and identity."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from pydantic import ValidationError

from engine.recipe.pretrained import check_pretrained, folder_of, missing_pretrained
from engine.recipe.trainers import TrainParams
from operators.base import OperatorError
from operators.embed.network_inputs import TOKENIZER, NetworkInputsParams
from operators.models.pretrained import (
    CONFIG,
    PIXELS,
    WEIGHTS,
    image_size,
    max_tokens,
    read_pretrained,
    vocabulary,
)
from operators.models.spec import PretrainedSpec


def pretrained_spec(params: TrainParams) -> PretrainedSpec | None:
    """Return the description of the network that the parameters name; None for another model.

    Raises OperatorError, with the remedy, if a package, the folder or a file of it is missing or damaged.
    """
    if not params.is_pretrained:
        return None
    if text := missing_pretrained(params.model):
        raise OperatorError(text)
    layers: int | Literal["all"] = check_pretrained(params.model, params.model_params).layers
    return read_pretrained(folder_of(params.model), layers)


def inputs_of(params: TrainParams) -> NetworkInputsParams | None:
    """Return how rows become inputs of the network; None for a model of features."""
    spec = pretrained_spec(params)
    if spec is None:
        return None
    asked = check_pretrained(params.model, params.model_params)
    if spec.takes == "image":
        size = asked.image_size or image_size(spec)
        return _inputs(params, column=asked.column, takes="image", image_size=size)
    if asked.image_size is not None:
        raise OperatorError(f"model_params.image_size: {params.model} reads texts. Remove the key.")
    return _inputs(
        params,
        column=asked.column,
        takes="text",
        max_tokens=min(asked.max_tokens, max_tokens(spec)),
        vocabulary=vocabulary(spec),
        folder=str(folder_of(params.model)),
    )


def _inputs(params: TrainParams, **found: Any) -> NetworkInputsParams:
    """Return the checked inputs. Raises OperatorError for sizes of the network that cannot be used."""
    try:
        return NetworkInputsParams.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        raise OperatorError(
            f"{folder_of(params.model) / CONFIG}: {first['loc'][0]}: {first['msg']}, not {first['input']!r}. "
            "Use another network."
        ) from None


def content_of(params: TrainParams) -> list[str]:
    """Return digests of the files of a pretrained network, part of a training's fingerprint; else empty."""
    if not params.is_pretrained:
        return []
    if text := missing_pretrained(params.model):
        raise OperatorError(text)
    found = []
    for name in (CONFIG, WEIGHTS, TOKENIZER, PIXELS):
        path = folder_of(params.model) / name
        if path.is_file():
            with path.open("rb") as file:
                found.append(f"{name}:{hashlib.file_digest(file, 'sha256').hexdigest()}")
    return found
