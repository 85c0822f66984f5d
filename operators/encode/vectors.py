"""Columns that are vectors already, and free text, which a pretrained network makes vectors of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
import pyarrow as pa

from operators.arrays import Float32
from operators.base import OperatorError
from operators.encode.column_forms import as_texts
from operators.encode.column_use import missing_network
from operators.encode.word_components import WordComponents
from operators.encoded_features import Output
from operators.ingest.kernel import Codes, assemble_features


@dataclass(frozen=True)
class VectorEncoding:
    """A column of vectors, entry by entry."""

    source: str
    width: int

    @property
    def outputs(self) -> list[Output]:
        """Return the features, with the source column of each."""
        labels = [f"{self.source}[{k}]" for k in range(self.width)]
        return [Output(self.source, "vector", label, "entry") for label in labels]

    def encode(self, column: pa.ChunkedArray, x: Float32, codes: Codes) -> None:
        """Write the entries of n rows into ``x`` (n, width), and reasons of faulty rows into ``codes``."""
        found, reasons = assemble_features(pa.table({self.source: column}), [self.source], [self.width])
        x[:], codes[:] = found, reasons[:, 0]

    def to_json(self) -> dict[str, Any]:
        """Return the encoding as JSON-able values."""
        return {"type": "vector", "source": self.source, "width": self.width}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        """Read what :meth:`to_json` returned."""
        return cls(found["source"], found["width"])


@dataclass(frozen=True)
class TextEncoding:
    """Free text through a network of ``embed``, and its words; a missing text is the vector 0.

    Attributes
    ----------
    source : the column.
    width : length of the network's vectors.
    params : parameters of ``operators.embed``, as JSON values. Old records lack a precision: it was float32.
    words : components of the words, which follow on the network's vectors; None without them.
    """

    source: str
    width: int
    params: dict[str, Any]
    words: WordComponents | None = None

    @property
    def outputs(self) -> list[Output]:
        """Return the features, with the source column of each."""
        width = self.width + (self.words.width if self.words else 0)
        labels = [f"{self.source}[{k}]" for k in range(width)]
        return [Output(self.source, "text", label, "entry") for label in labels]

    def encode(self, column: pa.ChunkedArray, x: Float32, codes: Codes) -> None:
        """Write the vectors of n texts into ``x`` (n, outputs), which is 0. No text is a fault."""
        from operators.embed.kernel import embed_rows

        texts = as_texts(column).to_pylist()
        encoder = _encoder(tuple(sorted(self.params.items())))
        batch_size = int(self.params["batch_size"])
        vectors, reasons = embed_rows(encoder, texts, batch_size=batch_size)
        used = np.array([row for row in range(len(texts)) if row not in reasons], np.intp)
        if len(used):
            x[used, : self.width] = vectors
        if self.words:
            x[:, self.width :] = self.words.transform(texts)

    def to_json(self) -> dict[str, Any]:
        """Return the encoding as JSON-able values."""
        found = {"type": "text", "source": self.source, "width": self.width, "params": self.params}
        return found | ({"words": self.words.to_json()} if self.words else {})

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        """Read what :meth:`to_json` returned."""
        words = WordComponents.from_json(found["words"]) if "words" in found else None
        return cls(found["source"], found["width"], found["params"], words)


def text_width(params: dict[str, Any]) -> int:
    """Return the length of the network's vectors. Runs on a worker; raises OperatorError without packages."""
    from operators.embed.kernel import embed_rows

    if lack := missing_network(str(params["model"])):
        raise OperatorError(f"The column {params['column']!r} is free text. {lack}.")
    vectors, _ = embed_rows(_encoder(tuple(sorted(params.items()))), ["text"])
    return int(vectors.shape[1])


@lru_cache(maxsize=2)
def _encoder(items: tuple[tuple[str, Any], ...]) -> Any:
    """Load a network once for each process. Raises OperatorError where its packages are missing."""
    from operators.embed.adaptor import find_factory
    from operators.embed.params import EmbedParams
    from operators.models import prepare_device

    params = EmbedParams.recorded(dict(items))
    resources = params.resources.on(float("inf"), prefers_gpu=True)
    factory = find_factory(params.model, "operators.encode.text.model")
    return factory(params, prepare_device(resources.cpus, resources.gpus))
