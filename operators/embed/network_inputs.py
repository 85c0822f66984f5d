"""``network_inputs``: texts as token ids, images as pixels, for a pretrained network that is trained itself.

The engine makes these features in a training of ``hf:`` (:mod:`operators.models.pretrained`) and when its
model answers; no recipe names the operator.
"""

from __future__ import annotations

import json
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
STEPS: dict[str, dict[str, tuple[str, ...]]] = {
    "normalizer": {
        "BertNormalizer": ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"),
        "Strip": ("strip_left", "strip_right"),
        **dict.fromkeys(("Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents"), ()),
    },
    "pre_tokenizer": {
        "ByteLevel": ("add_prefix_space", "trim_offsets", "use_regex"),
        "Digits": ("individual_digits",),
        "Metaspace": ("replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"),
        "Punctuation": ("behavior",),
        **dict.fromkeys(("BertPreTokenizer", "Whitespace", "WhitespaceSplit"), ()),
    },
    "post_processor": {
        "BertProcessing": ("sep", "cls"),
        "ByteLevel": ("add_prefix_space", "trim_offsets", "use_regex"),
        "RobertaProcessing": ("sep", "cls", "trim_offsets", "add_prefix_space"),
        "TemplateProcessing": ("single", "pair", "special_tokens"),
    },
}
"""Part of a tokenizer -> the steps that it may consist of, whose time and memory grow with the text alone,
and the keys of each beside ``type``."""
SEQUENCES = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors"}
"""Part of a tokenizer -> the key under which a ``Sequence`` of the part lists its steps."""
LOADED = ("version", "added_tokens", *STEPS, "model")
"""Keys of a tokenizer that the library is given. Padding and truncation are set here; nothing is decoded."""
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


def checked_tokenizer(found: Any) -> dict[str, Any]:
    """Return the keys of a tokenizer that the library is given.

    A folder or a stored model may be a stranger's: 34 replacements of ``a`` by ``aa``, in a file of two
    kilobytes, make 16 GB of a letter, and a regular expression may go back without end. The library ignores
    keys that it does not know, so that each step may have the keys in ``STEPS`` alone.

    Raises
    ------
    ValueError
        A step could make a short text endless, or never end; or a step or one of its keys is not known.
    """
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    for part in STEPS:
        _check_part(part, found.get(part))
    model = found.get("model")
    longest = model.get("max_input_chars_per_word") if isinstance(model, dict) else None
    if longest is not None and not (isinstance(longest, int) and 0 < longest <= MAX_WORD):
        raise ValueError(f"model.max_input_chars_per_word is {str(longest)[:40]}, not 1 to {MAX_WORD}")
    return {key: found[key] for key in LOADED if key in found}


def _check_part(part: str, found: Any) -> None:
    """Raise ValueError if a step of a part is not known, occurs twice, or has an unknown key.

    A repeated step may grow a text each time: ``ByteLevel`` doubles the bytes of all but ASCII.
    """
    known, listed = STEPS[part], SEQUENCES[part]
    allowed = {**known, "Sequence": (listed,)}
    waiting, kinds = [] if found is None else [found], list[str]()
    while waiting:
        step = waiting.pop()
        kind = step.get("type") if isinstance(step, dict) else None
        if not isinstance(kind, str) or kind not in allowed or len(kinds) == MAX_STEPS:
            raise ValueError(f"{part}: {str(kind)[:40]!r} is none of {', '.join(known)}")
        if other := sorted(step.keys() - {"type", *allowed[kind]}):
            raise ValueError(f"{part}: {kind} has the unknown key {other[0][:40]!r}")
        if kind in kinds and kind != "Sequence":
            raise ValueError(f"{part}: {kind} occurs twice")
        kinds.append(kind)
        if kind == "Sequence":
            inner = step.get(listed, [])
            if not isinstance(inner, list):
                raise ValueError(f"{part}: {listed} is no list")
            waiting += inner
        elif kind == "TemplateProcessing":
            _check_template(step.get("single"))


def _check_template(single: Any) -> None:
    """Raise ValueError unless a template takes the text and few marks, which may be long, around it."""
    few = isinstance(single, list) and len(single) <= MAX_STEPS
    if not few or not all(isinstance(piece, dict) for piece in single):
        raise ValueError(f"post_processor: single is no list of at most {MAX_STEPS} pieces")
    texts = [piece["Sequence"] for piece in single if "Sequence" in piece]
    if not all(isinstance(text, dict) and text.get("id") == "A" for text in texts):
        raise ValueError("post_processor: single takes another text than 'A'")


class TokenIds:
    """Texts as ids (max_tokens,), ``NO_TOKEN`` behind the last; an ``operators.embed.kernel.Encoder``."""

    takes: Literal["text"] = "text"

    def __init__(self, path: Path, params: NetworkInputsParams) -> None:
        from tokenizers import Tokenizer

        try:
            # Not from the file: the library sees nothing but what has been checked.
            self._tokenizer = Tokenizer.from_str(json.dumps(checked_tokenizer(read_json(path))))
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
