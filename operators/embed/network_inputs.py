"""``network_inputs``: texts as token ids, images as pixels, for a pretrained network that is trained itself.

The engine makes these features in a training of ``hf:`` (:mod:`operators.models.pretrained`) and when its
model answers; no recipe names the operator.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from operators.arrays import Float32
from operators.base import (
    Apply,
    Context,
    Cost,
    Executor,
    OperatorError,
    OperatorParams,
)
from operators.bounded_json import read_json
from operators.embed.adaptor import embedding_of
from operators.embed.column_encoder import ColumnEncoder
from operators.embed.preparation import NO_WORD, Prepared, check_text, prepare_in_threads, prepare_texts
from operators.models.pretrained import NO_TOKEN

NAME = "network_inputs"
TOKENIZER = "tokenizer.json"
STEPS = {
    "normalizer": (
        *("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD"),
        *("Strip", "StripAccents"),
    ),
    "pre_tokenizer": (
        *("BertPreTokenizer", "ByteLevel", "Digits", "Metaspace", "Punctuation"),
        *("Whitespace", "WhitespaceSplit"),
    ),
    "post_processor": ("BertProcessing", "ByteLevel", "RobertaProcessing", "TemplateProcessing"),
}
"""Part of a tokenizer -> the steps that it may consist of, whose time and memory grow with the text alone."""
MAX_STEPS, MAX_WORD = 16, 1000
"""Most steps of a part, and most characters of a word that WordPiece divides, in quadratic time."""


class NetworkInputsParams(OperatorParams):
    """Parameters of ``network_inputs``, which a training fills in."""

    column: str
    """Source column with texts or images."""
    takes: Literal["text", "image"]
    """Kind of the network's inputs."""
    max_tokens: int = Field(default=128, ge=3, le=8192)
    """Token ids of a text; longer ones are cut."""
    image_size: int = Field(default=224, ge=8, le=1024)
    """Height and width of an image in pixels."""
    vocabulary: int = Field(default=0, ge=0)
    """Token ids that the network knows."""
    folder: str = Field(default="", exclude=True)
    """Folder with ``tokenizer.json``, which ``fit`` alone reads; no record of the operator names it."""
    batch_size: int = Field(default=256, ge=1)
    """Rows that are prepared together."""


class NetworkInputs(ColumnEncoder[NetworkInputsParams]):
    """Adds ``x``, the inputs of a network for a text or an image, and ``x_fault`` where there are none."""

    name = NAME
    version = 1
    cost = Cost(20_000, 20_000, by_features=False)
    Params = NetworkInputsParams

    @property
    def column(self) -> str:
        """Return the source column with texts or images."""
        return self.params.column

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Copy the tokenizer into the state. Raises OperatorError, with the file, if it does not fit."""
        if self.params.takes == "text":
            source = Path(self.params.folder) / TOKENIZER
            TokenIds(source, self.params)
            shutil.copyfile(source, context.state / TOKENIZER)
        return {}

    def open(self, context: Context) -> Apply:
        """Read the tokenizer once."""
        params = self.params
        encoder = TokenIds(context.state / TOKENIZER, params) if params.takes == "text" else Pixels(params)

        def apply(table: pa.Table) -> pa.Table:
            return embedding_of(table, context, encoder, params.column, params.batch_size)

        return apply


def check_tokenizer(found: Any) -> None:
    """Raise ValueError for a tokenizer whose steps could make a short text endless, or never end.

    A folder or a stored model may be a stranger's: 34 replacements of ``a`` by ``aa``, in a file of two
    kilobytes, make 16 GB of a letter, and a regular expression may go back without end.
    """
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    for part, known in STEPS.items():
        waiting, n_steps = [found.get(part)], 0
        while waiting:
            step = waiting.pop()
            if step is None:
                continue
            kind = step.get("type") if isinstance(step, dict) else None
            n_steps += 1
            if kind == "Sequence" and n_steps <= MAX_STEPS:
                waiting += next((value for value in step.values() if isinstance(value, list)), [])
            elif kind not in known or n_steps > MAX_STEPS:
                raise ValueError(f"{part}: {str(kind)[:40]!r} is none of {', '.join(known)}")
    model = found.get("model")
    longest = model.get("max_input_chars_per_word") if isinstance(model, dict) else None
    if longest is not None and not (isinstance(longest, int) and 0 < longest <= MAX_WORD):
        raise ValueError(f"model.max_input_chars_per_word is {str(longest)[:40]}, not 1 to {MAX_WORD}")


class TokenIds:
    """Texts as ids (max_tokens,), ``NO_TOKEN`` behind the last; an ``operators.embed.kernel.Encoder``."""

    takes: Literal["text"] = "text"

    def __init__(self, path: Path, params: NetworkInputsParams) -> None:
        from tokenizers import Tokenizer

        try:
            check_tokenizer(read_json(path))
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exceptions
            raise OperatorError(
                f"{path}: no tokenizer can be read: {error}. The folder of `hf:` needs tokenizer.json, as "
                f"save_pretrained of a fast tokenizer writes it."
            ) from None
        if self._tokenizer.get_vocab_size() > params.vocabulary:
            raise OperatorError(
                f"{path}: the tokenizer has {self._tokenizer.get_vocab_size():,} entries, and the network "
                f"{params.vocabulary:,}. Use the tokenizer that belongs to the network."
            )
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(params.max_tokens)
        self._max_tokens = params.max_tokens
        self._marks = self._tokenizer.num_special_tokens_to_add(False)

    def prepare(self, value: str) -> NDArray[np.float32]:
        """Return the token ids. Raises ValueError for a text without a word."""
        check_text(value)
        return self._padded(self._tokenizer.encode(value).ids)

    def prepare_all(self, values: Sequence[str]) -> list[Prepared]:
        """Return the token ids of each text, or why it has none."""
        return prepare_texts(self._tokenizer, self._padded, values)

    def _padded(self, ids: Sequence[int]) -> NDArray[np.float32]:
        if len(ids) <= self._marks:
            raise ValueError(NO_WORD)
        padded = np.full(self._max_tokens, NO_TOKEN, np.float32)
        padded[: len(ids)] = ids
        return padded

    def encode(self, batch: NDArray[np.float32]) -> Float32:
        """Return the ids as they are."""
        return batch


class Pixels:
    """Images as pixels from 0 to 255 (3 * size * size,); an ``operators.embed.kernel.Encoder``."""

    takes: Literal["image"] = "image"

    def __init__(self, params: NetworkInputsParams) -> None:
        self._size = params.image_size

    def prepare(self, value: bytes | Path) -> NDArray[np.uint8]:
        """Return the pixels. Raises ValueError for what cannot be decoded."""
        from operators.image_files import open_image

        return open_image(value, self._size)

    def prepare_all(self, values: Sequence[bytes | Path]) -> list[Prepared]:
        """Return the pixels of each image, or why it has none."""
        return prepare_in_threads(self.prepare, values)

    def encode(self, batch: NDArray[np.uint8]) -> Float32:
        """Return the pixels as rows of numbers."""
        return batch.reshape(len(batch), -1).astype(np.float32)
