"""Pretrained networks of texts and images in Hugging Face's format, whose last layers are trained.

A folder holds ``config.json`` and ``model.safetensors``, as ``save_pretrained`` writes them. Nothing is
downloaded, unpickled or imported by a name that the folder states: the architecture comes from a fixed list,
and the configuration may hold plain values of its own fields only. A trained model is built from its
:class:`~operators.models.spec.PretrainedSpec` alone, without the folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from operators.base import OperatorError
from operators.models.spec import PretrainedSpec

TYPES: Mapping[str, Literal["text", "image"]] = MappingProxyType(
    {
        **dict.fromkeys(("bert", "distilbert", "electra", "mpnet", "roberta"), "text"),
        **dict.fromkeys(("convnext", "deit", "dinov2", "resnet", "vit"), "image"),
    }
)
"""Architectures (``model_type`` of ``config.json``) and what they take."""
OFFSET_TYPES = ("mpnet", "roberta")
"""Architectures that number positions from behind the padding id."""
MAX_DEPTH = 512
"""Most layers, and entries of a list, of a configuration: a forged one would be built for hours."""
MAX_WIDTH = 2**20
"""Largest whole number of a configuration, such as the size of a vocabulary."""
CHUNK = 64
"""Rows of a forward pass without gradients, whose activations are then dropped."""
NO_TOKEN = -1
"""Marks padding behind the token ids of a text."""
CONFIG, WEIGHTS, PIXELS = "config.json", "model.safetensors", "preprocessor_config.json"


class PretrainedNetwork(nn.Module):
    """An encoder, the mean over its tokens or places, and a new linear layer ``head``.

    Rows are (n, tokens) ids, ``NO_TOKEN`` behind the last one, or (n, 3 * size * size) pixels from 0 to 255.
    All layers but the last ``spec.layers`` are frozen, and stay in eval mode while the others are trained.
    """

    def __init__(self, spec: PretrainedSpec, n_outputs: int) -> None:
        """Build the network with random weights. Raises OperatorError for a configuration that is refused."""
        super().__init__()
        self.spec = spec
        self.encoder = _encoder(spec.config)
        config = self.encoder.config
        sizes = getattr(config, "hidden_sizes", None)
        self.head = nn.Linear(int(sizes[-1] if sizes else config.hidden_size), n_outputs)
        self._pad = int(getattr(config, "pad_token_id", None) or 0)
        self.trained_parts = _freeze(self.encoder, spec.layers)

    def train(self, mode: bool = True) -> PretrainedNetwork:
        """Set the mode of the layers that are trained; frozen ones have neither dropout nor moving means."""
        super().train(mode)
        if self.spec.layers != "all":
            self.encoder.eval()
            for part in self.trained_parts:
                part.train(mode)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Map rows to logits (n, n_outputs)."""
        if torch.is_grad_enabled() or torch.compiler.is_exporting() or len(x) <= CHUNK:
            return self._logits(x)
        return torch.cat([self._logits(part) for part in torch.split(x, CHUNK)])

    def _logits(self, x: Tensor) -> Tensor:
        pooled = self._of_texts(x) if self.spec.takes == "text" else self._of_images(x)
        return self.head(pooled)  # type: ignore[no-any-return]

    def _of_texts(self, x: Tensor) -> Tensor:
        ids = x.long()
        real = ids != NO_TOKEN
        if not torch.compiler.is_exporting():  # a graph has one width
            width = max(1, int(real.sum(dim=1).max())) if len(x) else 1
            ids, real = ids[:, :width], real[:, :width]
        padded = ids.where(real, torch.full_like(ids, self._pad))
        hidden = self.encoder(input_ids=padded, attention_mask=real.long()).last_hidden_state
        shown = real[:, :, None].to(hidden)
        return (hidden * shown).sum(dim=1) / shown.sum(dim=1).clamp(min=1)  # type: ignore[no-any-return]

    def _of_images(self, x: Tensor) -> Tensor:
        side = round((x.shape[1] / 3) ** 0.5)
        mean, std = (x.new_tensor(values)[:, None, None] for values in (self.spec.mean, self.spec.std))
        pixels = (x.reshape(-1, 3, side, side) / 255 - mean) / std
        hidden = self.encoder(pixel_values=pixels).last_hidden_state
        return hidden.mean(dim=(2, 3) if hidden.ndim == 4 else 1)  # type: ignore[no-any-return]

    def load_weights(self, folder: Path) -> None:
        """Take over the encoder's weights of a folder.

        Raises OperatorError, which names the folder, where they are missing or of another shape.
        """
        from transformers import AutoModel

        try:
            with _quiet(), torch.random.fork_rng(devices=[]):
                found, about = AutoModel.from_pretrained(  # nosec B615
                    folder,
                    config=self.encoder.config,
                    local_files_only=True,
                    use_safetensors=True,
                    trust_remote_code=False,
                    attn_implementation="eager",
                    dtype=torch.float32,
                    ignore_mismatched_sizes=True,  # named below
                    output_loading_info=True,
                )
        except Exception as error:  # every format's reader has errors of its own
            raise _refused(folder / WEIGHTS, f"{type(error).__name__}: {error}") from None
        wanted = self.encoder.state_dict()
        other = {entry[0] for entry in about["mismatched_keys"]}
        missing = sorted({*about["missing_keys"], *other} & set(wanted))
        if missing:
            raise _refused(
                folder / WEIGHTS,
                f"{missing[0]} is missing or of another shape ({len(missing)} of {len(wanted)})",
            )
        state = found.state_dict()
        self.encoder.load_state_dict({name: state[name] for name in wanted})


def read_pretrained(folder: Path, layers: int | Literal["all"]) -> PretrainedSpec:
    """Return the network that a folder describes, of which the last ``layers`` are to be trained.

    Raises OperatorError, which names the file, if it is missing, or the network cannot be used.
    """
    config = _read(folder / CONFIG)
    kind = str(config.get("model_type"))
    if kind not in TYPES:
        raise _refused(
            folder / CONFIG, f"model_type {kind!r} is none of {', '.join(TYPES)}, which can be trained here"
        )
    if not (folder / WEIGHTS).is_file():
        raise _refused(folder / WEIGHTS, "there is no such file; pickled weights are not read")
    kept = {key: value for key, value in config.items() if _is_kept(key)}
    colours = _read(folder / PIXELS) if (folder / PIXELS).is_file() else {}
    scale = {"mean": colours.get("image_mean"), "std": colours.get("image_std")}
    given = {key: value for key, value in scale.items() if value is not None}
    try:
        spec = PretrainedSpec.model_validate(
            {"takes": TYPES[kind], "config": kept, "layers": layers, **given}
        )
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        why = f"image_{place}: {str(fault['input'])[:60]} is refused: {fault['msg']}. Give three numbers"
        raise _refused(folder / PIXELS, why) from None
    with torch.device("meta"):
        _freeze(_encoder(spec.config), layers)
    return spec


def max_tokens(spec: PretrainedSpec) -> int:
    """Return the largest number of tokens of a text that the network reads."""
    config = _configuration(spec.config)
    ahead = int(config.pad_token_id or 0) + 1 if config.model_type in OFFSET_TYPES else 0
    return int(config.max_position_embeddings) - ahead


def image_size(spec: PretrainedSpec) -> int:
    """Return the height and width of an image in pixels that the network was trained on; 224 if unknown."""
    found = getattr(_configuration(spec.config), "image_size", None)
    if isinstance(found, list | tuple) and found and len(set(found)) == 1:
        found = found[0]
    return found if isinstance(found, int) and not isinstance(found, bool) else 224


def vocabulary(spec: PretrainedSpec) -> int:
    """Return the number of token ids that the network reads."""
    return int(_configuration(spec.config).vocab_size)


def count_weights(spec: PretrainedSpec, n_outputs: int) -> int:
    """Return the number of weights, for which no memory is taken."""
    with torch.device("meta"):
        network = PretrainedNetwork(spec, n_outputs)
    return sum(parameter.numel() for parameter in network.parameters())


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from drawing bars and writing reports: what is wrong is an error here."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _is_kept(key: str) -> bool:
    """Return whether a key of ``config.json`` describes the network, not how some library is to load it."""
    return not key.startswith("_") and key not in (
        *("architectures", "auto_map", "dtype", "torch_dtype", "quantization_config", "transformers_version"),
        *(
            "id2label",
            "label2id",
            "num_labels",
            "problem_type",
            "task_specific_params",
            "attn_implementation",
            "transformers_weights",  # the name of another file of weights, which may be pickled
            "adapter_name",
            "return_dict",
        ),
    )


def _configuration(config: Mapping[str, Any]) -> Any:
    """Return a configuration object of transformers, checked. Raises OperatorError."""
    from transformers import AutoConfig

    kind = str(config.get("model_type"))
    if kind not in TYPES:
        raise OperatorError(f"hf: model_type {kind!r} is none of {', '.join(TYPES)}. Use another network.")
    for key, value in config.items():
        if not _is_kept(key) or not _is_plain(key, value):
            raise OperatorError(f"hf: {key}: {str(value)[:60]!r} is not a value of a configuration.")
    try:
        return AutoConfig.for_model(kind, **{k: v for k, v in config.items() if k != "model_type"})
    except Exception as error:  # fields are checked by transformers' own classes
        raise OperatorError(f"hf: the configuration is not one of {kind}: {error}") from None


def _is_plain(key: str, value: Any) -> bool:
    """Return whether a value is a number, a text or a short list of numbers, of a size that can be built."""
    if isinstance(value, list):
        few = len(value) <= MAX_DEPTH
        if key == "depths":  # layers of each stage
            few = few and all(isinstance(one, int) and one >= 1 for one in value) and sum(value) <= MAX_DEPTH
        return few and all(not isinstance(one, list | dict) and _is_plain(key, one) for one in value)
    if isinstance(value, int) and not isinstance(value, bool):
        most = MAX_DEPTH if "layers" in key or key == "depths" else MAX_WIDTH
        return abs(value) <= most
    return value is None or isinstance(value, bool | float | str)


def _encoder(config: Mapping[str, Any]) -> Any:
    """Build an encoder with random weights, without a pooling layer that has weights of its own."""
    from transformers import AutoModel

    found = _configuration(config)
    try:
        encoder = AutoModel.from_config(found, attn_implementation="eager", trust_remote_code=False)
    except Exception as error:
        raise OperatorError(f"hf: a network of this configuration cannot be built: {error}") from None
    pooler = getattr(encoder, "pooler", None)
    if pooler is not None and any(True for _ in pooler.parameters()):
        encoder.pooler = None
    return encoder


def _freeze(encoder: nn.Module, layers: int | Literal["all"]) -> list[nn.Module]:
    """Freeze all but the last layers, and what follows them; return the modules that are trained.

    Raises OperatorError if there are fewer layers.
    """
    if layers == "all":
        return [encoder]
    stack = next(module for module in encoder.modules() if isinstance(module, nn.ModuleList))
    if not 0 <= layers <= len(stack):
        raise OperatorError(
            f"model_params.layers: the network has {len(stack)} layers, not {layers}. Give 0 to "
            f"{len(stack)}, or all."
        )
    blocks = list(stack)[len(stack) - layers :]
    trained = {id(parameter) for block in blocks for parameter in block.parameters()}
    for parameter in encoder.parameters():
        parameter.requires_grad_(id(parameter) in trained)
    return blocks


def _read(path: Path) -> dict[str, Any]:
    from operators.bounded_json import read_json

    try:
        found = read_json(path)
    except FileNotFoundError:
        raise _refused(path, "there is no such file") from None
    except (OSError, ValueError, json.JSONDecodeError) as error:
        raise _refused(path, str(error)) from None
    if not isinstance(found, dict):
        raise _refused(path, "it is not an object")
    return found


def _refused(path: Path, why: str) -> OperatorError:
    reason = " ".join(why.split())[:300].rstrip(". ")
    return OperatorError(
        f"{path}: {reason}. `hf:` needs the folder that save_pretrained writes: config.json and "
        f"model.safetensors, and of texts tokenizer.json."
    )
