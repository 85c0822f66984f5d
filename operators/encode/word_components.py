"""Components of the words of free text, which a sentence encoder of a few hundred numbers may lose.

Latent semantic analysis: the frequent words of a text as tf-idf of length 1, projected on the directions in
which a sample of texts varies most. Source: Deerwester et al., "Indexing by latent semantic analysis" (1990).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from operators.arrays import Float32
from operators.base import ROW_ID, ShardReader
from operators.encode.column_forms import as_texts
from operators.encode.params import MAX_COMPONENTS
from operators.hashing import row_hashes, uniform
from operators.threads import limit_threads
from operators.unspaced_scripts import lower_words

PURPOSE = "encode/words"
SAMPLE_ROWS = 10_000
MAX_LENGTH = 4_000
"""Characters of a text that are read."""
MAX_WORDS = 5_000
MIN_TEXTS = 3
"""Texts of the sample that a word must occur in."""
COMPONENT_TYPE = "<f2"
"""The sample does not determine components better than by half precision."""


@dataclass(frozen=True)
class WordComponents:
    """Fitted components of the words of texts.

    Attributes
    ----------
    vocabulary : v words in lower case.
    idf : inverse document frequency of each, shape (v,).
    components : directions, shape (v, k).
    separated : whether pairs of characters stand for the words of scripts without spaces; not so in states of
        earlier releases.
    """

    vocabulary: tuple[str, ...]
    idf: Float32
    components: Float32
    separated: bool = True

    @property
    def width(self) -> int:
        """Return the number of components, k."""
        return int(self.components.shape[1])

    @classmethod
    def fit(cls, texts: Sequence[str], width: int, seed: int) -> Self | None:
        """Fit at most ``width`` components on a sample of texts; None if there are too few words."""
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import CountVectorizer

        counter = CountVectorizer(
            preprocessor=lower_words, min_df=MIN_TEXTS, max_features=MAX_WORDS, dtype=np.float32
        )
        try:
            counts = counter.fit_transform([text[:MAX_LENGTH] for text in texts])
        except ValueError:  # no word occurs often enough
            return None
        width = min(width, min(counts.shape) - 1)
        if width < 1:
            return None
        document_frequency = np.asarray((counts > 0).sum(axis=0), np.float64).ravel()
        idf = (np.log((1 + counts.shape[0]) / (1 + document_frequency)) + 1).astype(np.float32)
        with limit_threads(1):  # the same bytes, however many cores there are
            found = TruncatedSVD(width, random_state=seed).fit(_weighted(counts, idf))
        components = found.components_.T.astype(COMPONENT_TYPE).astype(np.float32)
        return cls(tuple(counter.get_feature_names_out().tolist()), idf, components)

    def transform(self, texts: Sequence[str | None]) -> Float32:
        """Return the components of n texts, (n, k); 0 for a missing text and one without known words."""
        counts = self._counter.transform([(text or "")[:MAX_LENGTH] for text in texts])
        return np.asarray(_weighted(counts, self.idf) @ self.components, np.float32)

    @cached_property
    def _counter(self) -> Any:
        from sklearn.feature_extraction.text import CountVectorizer

        read = lower_words if self.separated else str.lower
        return CountVectorizer(preprocessor=read, vocabulary=list(self.vocabulary), dtype=np.float32)

    def to_json(self) -> dict[str, Any]:
        """Return the components as JSON-able values."""
        return {
            "vocabulary": list(self.vocabulary),
            "separated": self.separated,
            "idf": _packed(self.idf, "<f4"),
            "components": _packed(self.components, COMPONENT_TYPE),
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        """Read what :meth:`to_json` returned. Raises ValueError where the sizes do not fit."""
        words = tuple(str(word) for word in found["vocabulary"])
        idf = _unpacked(found["idf"], "<f4")
        components = _unpacked(found["components"], COMPONENT_TYPE)
        if len(set(words)) != len(words) or len(idf) != len(words) or len(components) % max(len(words), 1):
            raise ValueError("the words of an encoding and their components differ in number")
        if not (np.isfinite(idf).all() and np.isfinite(components).all()):
            raise ValueError("the components of the words of an encoding are not finite")
        if len(components) > MAX_COMPONENTS * len(words):
            raise ValueError(f"an encoding has {len(components) // len(words):,} components of its words")
        separated = bool(found.get("separated", False))
        return cls(words, idf, components.reshape(len(words), -1), separated)


def sampled_texts(reader: ShardReader, column: str, share: float, seed: int, shard: int) -> list[str]:
    """Return the texts of a share of a shard's rows, drawn by a hash of their ids. Runs on a worker."""
    table = reader.read_source(shard, [column])
    first = reader.shards[shard].first_row
    counted = np.arange(first, first + table.num_rows, dtype=np.int64)
    ids = table[ROW_ID].to_numpy() if ROW_ID in table.column_names else counted
    drawn = np.flatnonzero(uniform(row_hashes(ids, seed, PURPOSE)) < share)
    texts = as_texts(table[column]).take(drawn).to_pylist()
    return [text[:MAX_LENGTH] for text in texts if text]


def _weighted(counts: Any, idf: Float32) -> Any:
    """Return tf-idf of length 1 as a sparse matrix (n, v), with 1 + log(count) as term frequency."""
    from scipy.sparse import csr_matrix
    from sklearn.preprocessing import normalize

    values = csr_matrix(counts, dtype=np.float32, copy=True)
    values.data = (1 + np.log(values.data)) * idf[values.indices]
    return normalize(values)


def _packed(values: Float32, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values).astype(kind).tobytes()).decode("ascii")


def _unpacked(text: str, kind: str) -> npt.NDArray[np.float32]:
    return np.frombuffer(base64.b64decode(text, validate=True), kind).astype(np.float32)
