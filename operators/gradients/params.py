"""Parameters of the ``gradients`` operator."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from operators.base import OperatorParams, Resources


def _check_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    return pattern


class GradientsParams(OperatorParams):
    """Which gradients of the probe's loss to take, and how."""

    parameters: Annotated[str, AfterValidator(_check_pattern)] | None = None
    """Regular expression: only parameters in whose name ``re.search`` finds it. Default: all of the probe.
    For a large model name its last layers; ``head`` is the last linear layer of ``logistic`` and ``mlp``."""
    chunk_size: int = Field(default=512, ge=1)
    """Rows per forward pass; lower it when a large model runs out of memory."""
    projection: int | None = Field(default=None, ge=1)
    """Project every gradient to so many numbers by a random Gaussian matrix drawn from the recipe's seed.
    Distances keep a relative error of about ``1/sqrt(projection)``. Default: gradients as they are."""
    resources: Resources = Resources()
    """Of one actor. ``cpus`` is also torch's number of threads. A GPU is used where there is one, unless
    ``gpus`` is 0."""
