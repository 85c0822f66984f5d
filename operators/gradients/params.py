"""Parameters of the ``gradients`` operator."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from operators.base import OperatorParams, Resources
from operators.gradients.names import found_in
from operators.gradients.projection import Method
from operators.gradients.stored import Layout, Number


def _check_pattern(pattern: str) -> str:
    try:
        found_in([], pattern)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{pattern[:200]!r} is not a regular expression of RE2: {error}") from error
    return pattern


class ProjectionParams(OperatorParams):
    """Parameters of the random projection that shortens gradients; it is drawn from the recipe's seed."""

    dim: int = Field(ge=1, le=2**16)
    """Numbers that are left of a gradient. Cosines keep an error of about ``1 / sqrt(dim)``."""
    method: Method = "gaussian"
    """``gaussian``: a dense random matrix. ``tensor_sketch``: as exact, and far faster for linear layers,
    whose gradients are then never formed."""
    accept_error: bool = Field(default=False, exclude=True)
    """Do not warn that projected gradients are for looking, not for deciding on eps. Changes no value."""


def _read_projection(value: Any) -> Any:
    """Read a number alone as the length."""
    return {"dim": value} if isinstance(value, int) else value


class StoredParams(OperatorParams):
    """Gradients that are there already, as an array on disk; row i belongs to row i of the source."""

    path: str
    """A ``.npy`` file, a file of numbers alone (``np.memmap``), or the folder of a bergson index. It must be
    readable under that path on every worker. What is in it is part of the fingerprint."""
    format: Layout | Literal["auto"] = "auto"
    """``auto``: a folder is ``bergson``, ``.npy`` is ``npy``, all else ``memmap``."""
    dtype: Number | None = None
    """Number type of a ``memmap``, little-endian. Half precision is read as float32."""
    shape: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] | None = None
    """Shape of a ``memmap``: rows, and numbers in a row."""


class GradientsParams(OperatorParams):
    """Parameters of ``gradients``: which gradients of the probe's loss to compute, and how."""

    parameters: Annotated[str, AfterValidator(_check_pattern)] | None = None
    """Regular expression of RE2: only parameters in whose name it is found. Default: all of the probe.
    For a large model name its last layers; ``head`` is the last linear layer of ``logistic`` and ``mlp``."""
    bias: Literal["balanced", "plain"] = "balanced"
    """``balanced``: the gradient in a linear layer's bias counts for as much as that in its weights, times
    the root mean square length of what enters the layer. It carries the size of a row's error, which is
    what sets rare rows apart, and drowns beside many features. ``plain``: as the papers have it."""
    chunk_size: Annotated[int, Field(ge=1)] | None = None
    """Rows per forward pass; halved by itself while a GPU runs out of memory. Default: 512, and on a GPU as
    many as have 512 MiB of gradients, at most 16,384."""
    form: Literal["flat", "factored"] = "flat"
    """``flat``: one number per parameter. ``factored``: activation and error of every layer, whose product
    a flat gradient is: k + C numbers instead of C (k + 1) for a head of C classes over k features. Distances
    are as exact. For ``nn.Linear`` layers that see one vector a row; of what looks at gradients only
    ``groups: {method: grasp}`` can read them, and does so by itself."""
    route: Literal["auto", "layers", "func"] = "auto"
    """``layers``: activation x error of every layer, from one pass forward and one back. ``func``:
    ``vmap(grad)`` of the whole model. ``auto``: ``layers`` where it is right on two trial rows."""
    projection: Annotated[ProjectionParams | None, BeforeValidator(_read_projection)] = None
    """Project every gradient to ``dim`` numbers; ``projection: 256`` is ``{dim: 256}``. ``fit`` then measures
    the error of cosines on a sample. Default: gradients as they are."""
    stored: StoredParams | None = None
    """Read gradients from disk instead of computing them: the chain then needs no probe, and no other
    parameter may be given. Default: compute them."""
    resources: Resources = Resources()
    """Resources of one actor. ``cpus`` is also torch's number of threads. A GPU is used if there is one,
    unless ``gpus`` is 0."""

    @model_validator(mode="after")
    def _factors_as_they_are(self) -> GradientsParams:
        if self.form == "factored" and self.projection is not None:
            raise ValueError(
                "form is factored and projection is set: factors are short and exact as they are, and are "
                "not projected. Remove one of the two"
            )
        if self.form == "factored" and self.route == "func":
            raise ValueError("form is factored, and route is func, which knows no factors. Remove one")
        return self

    @model_validator(mode="after")
    def _stored_alone(self) -> GradientsParams:
        others = sorted(self.model_fields_set - {"stored", "resources"})
        if self.stored is not None and others:
            raise ValueError(
                f"stored is set, so no gradient is computed, and {others[0]} says how to. Remove one of them"
            )
        return self
