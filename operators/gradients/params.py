"""Parameters of the ``gradients`` operator."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from operators.base import OperatorParams, Resources
from operators.gradients.projection import Method


def _check_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    return pattern


class ProjectionParams(OperatorParams):
    """How gradients are made shorter by a random projection drawn from the recipe's seed."""

    dim: int = Field(ge=1)
    """Numbers that are left of a gradient. Cosines keep an error of about ``1 / sqrt(dim)``."""
    method: Method = "gaussian"
    """``gaussian``: a dense random matrix. ``tensor_sketch``: as exact, and far faster for linear layers,
    whose gradients are then never formed."""
    accept_error: bool = Field(default=False, exclude=True)
    """Do not warn that projected gradients are for looking, not for deciding on eps. Changes no value."""


def _read_projection(value: Any) -> Any:
    """A number alone is the length."""
    return {"dim": value} if isinstance(value, int) else value


class GradientsParams(OperatorParams):
    """Which gradients of the probe's loss to take, and how."""

    parameters: Annotated[str, AfterValidator(_check_pattern)] | None = None
    """Regular expression: only parameters in whose name ``re.search`` finds it. Default: all of the probe.
    For a large model name its last layers; ``head`` is the last linear layer of ``logistic`` and ``mlp``."""
    chunk_size: int = Field(default=512, ge=1)
    """Rows per forward pass; halved by itself while a GPU runs out of memory."""
    route: Literal["auto", "layers", "func"] = "auto"
    """``layers``: activation x error of every layer, from one pass forward and one back. ``func``:
    ``vmap(grad)`` of the whole model. ``auto``: ``layers`` where two trial rows come out right."""
    projection: Annotated[ProjectionParams | None, BeforeValidator(_read_projection)] = None
    """Project every gradient to ``dim`` numbers; ``projection: 256`` is ``{dim: 256}``. ``fit`` then measures
    the error of cosines on a sample. Default: gradients as they are."""
    resources: Resources = Resources()
    """Of one actor. ``cpus`` is also torch's number of threads. A GPU is used where there is one, unless
    ``gpus`` is 0."""
