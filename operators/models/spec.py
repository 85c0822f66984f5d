"""Specification of a classifier: its architecture and preprocessing as values of a recipe."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from connectors.foundation.messages import nearest

BUILT_IN = ("logistic", "mlp")
PRETRAINED = "hf:"
"""Begins the name of a pretrained network in Hugging Face's format; the rest is its folder."""


def check_model_name(name: str) -> str:
    """Return ``name`` if it is ``logistic``, ``mlp`` or ``package.module:factory``; else raise ValueError."""
    if name in BUILT_IN or re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
        return name
    raise ValueError(
        f"model '{name}' is neither one of {', '.join(BUILT_IN)} nor 'package.module:factory'."
        f"{nearest(name, BUILT_IN)}"
    )


ModelName = Annotated[str, AfterValidator(check_model_name)]
Widths = tuple[Annotated[int, Field(ge=1)], ...]


SMALLEST_STD = 1e-3
"""Of colours from 0 to 1, about a quarter of one of 255 steps; pixels are divided by it."""
Mean = Annotated[float, Field(ge=-1e3, le=1e3)]
Deviation = Annotated[float, Field(ge=SMALLEST_STD, le=1e3)]


class PretrainedSpec(BaseModel):
    """A pretrained network of texts or images, of which the last layers are trained."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    takes: Literal["text", "image"]
    """The input of the network: texts as token ids, or images as pixels."""
    config: dict[str, Any]
    """The network's own configuration, checked by :mod:`operators.models.pretrained`."""
    layers: int | Literal["all"]
    """Number of the last layers that are trained; ``all``: every parameter."""
    mean: tuple[Mean, Mean, Mean] = (0.5, 0.5, 0.5)
    """Mean of each colour of images, from 0 to 1, that the network was trained with."""
    std: tuple[Deviation, Deviation, Deviation] = (0.5, 0.5, 0.5)
    """Standard deviation of each colour of images that the network was trained with."""


def _check_spec_name(name: str) -> str:
    return name if name.startswith(PRETRAINED) else check_model_name(name)


class ModelSpec(BaseModel):
    """A classifier from ``n_features`` numbers to ``n_classes`` logits."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Annotated[str, AfterValidator(_check_spec_name)] = "logistic"
    """``logistic`` (one linear layer), ``mlp`` (ReLU layers of ``hidden`` widths), or the import path
    ``package.module:factory`` of a function that is called as ``factory(n_features, n_classes)`` and returns
    a ``torch.nn.Module`` from (n, n_features) rows to (n, n_classes) logits; or ``hf:FOLDER``."""
    hidden: Widths = (50, 50)
    """Widths of the hidden layers; only ``mlp`` reads it."""
    standardize: bool = True
    """Put a fixed layer ``(x - mean) / std`` in front."""
    blocks: Widths = ()
    """Widths of consecutive features that share one std, the root mean square of theirs, as the entries of
    one vector column do; default: each has its own."""
    n_features: int = Field(ge=1)
    n_classes: int = Field(ge=1)
    """Number of outputs; 1 for a regression."""
    pretrained: PretrainedSpec | None = None
    """The network of a model ``hf:``, which is built without reading its folder; None for other models."""

    @model_serializer(mode="wrap")
    def _without_gaps(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out ``pretrained`` where there is none, so that models of other names keep their bytes."""
        found: dict[str, Any] = handler(self)
        if self.pretrained is None:
            found.pop("pretrained", None)
        return found

    @model_validator(mode="after")
    def _pretrained_is_described(self) -> ModelSpec:
        if self.model.startswith(PRETRAINED) != (self.pretrained is not None):
            raise ValueError(f"model {self.model!r} and pretrained do not belong together")
        return self

    @model_validator(mode="after")
    def _blocks_are_all_features(self) -> ModelSpec:
        if self.blocks and sum(self.blocks) != self.n_features:
            raise ValueError(f"blocks sum to {sum(self.blocks)}, and there are {self.n_features} features")
        return self

    @property
    def n_weights(self) -> int:
        """Number of weights and biases of a built-in model; 0 for any other, which is not known here."""
        if self.model not in BUILT_IN:
            return 0
        widths = (self.n_features, *(self.hidden if self.model == "mlp" else ()), self.n_classes)
        return sum((wide + 1) * narrow for wide, narrow in pairwise(widths))
