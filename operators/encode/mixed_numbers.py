"""Columns of numbers in which a few cells hold words, such as ``n/a``, ``unknown`` or ``>100``.

One such cell makes a file's column text. The column stays numeric: its words count as missing values, and are
named. :mod:`operators.encode.summary` collects them, and :mod:`operators.encode.kinds` decides.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.arrays import Float64
from operators.encode.sketches import Histogram
from operators.ingest.kernel import FLOAT32_MAX

MAX_WORDS = 20
"""Distinct words of a column that are kept; with more of them the column is no column of numbers."""
MAX_WORD_SHARE = 0.02
"""Share of the values up to which words stand among numbers. More of them may be a category."""
MIN_NUMBERS = 20
"""Least distinct numbers: a grade of 1 to 12 or ``K`` is a category, of which each value has a feature."""
CODE = re.compile(r"[A-Za-z]{1,3}[-/]?\d+|\d+[-/]?[A-Za-z]")
"""Words such as ``136A`` and ``C12``: the numbers beside them are codes, such as those of families."""
N_SHOWN = 3
"""Words that a message names."""


@dataclass(frozen=True)
class MixedNumbers:
    """The values of a text column, divided into numbers and words; mergeable.

    Attributes
    ----------
    numbers : the values that are numbers, but for those beyond the range of float32, whose rows are faulty.
    words : all values that are no finite numbers with their rows, at most ``MAX_WORDS``.
    """

    numbers: Histogram
    words: Mapping[str, int]

    @classmethod
    def of(cls, texts: pa.Array, found: Float64, rows: npt.NDArray[np.int64]) -> Self | None:
        """Divide distinct texts (n,), none missing, with their numbers (NaN for words) and rows.

        Returns None if there are more than ``MAX_WORDS`` words.
        """
        is_usable = np.abs(found) <= FLOAT32_MAX  # a NaN is not
        places = np.flatnonzero(~np.isfinite(found))
        if len(places) > MAX_WORDS:
            return None
        counts: Counter[str] = Counter()
        for text, n in zip(texts.take(pa.array(places)).to_pylist(), rows[places].tolist(), strict=True):
            counts[text] += n
        return cls(Histogram.of(found[is_usable], rows[is_usable]), counts)

    def merge(self, other: MixedNumbers) -> MixedNumbers | None:
        """Return the values of both; None if they have more than ``MAX_WORDS`` words together."""
        words = Counter(self.words) + Counter(other.words)
        return None if len(words) > MAX_WORDS else MixedNumbers(self.numbers.merge(other.numbers), words)

    @property
    def n_words(self) -> int:
        """Rows with a word."""
        return sum(self.words.values())

    @property
    def are_mostly_numbers(self) -> bool:
        """Return whether at least half of the rows hold a number."""
        return self.numbers.rows > 0 and self.numbers.rows >= self.n_words

    @property
    def are_numbers_with_few_words(self) -> bool:
        """Return whether the words are so few that the column is one of numbers."""
        rows = self.numbers.rows + self.n_words
        few = 0 < self.n_words <= MAX_WORD_SHARE * rows and self.numbers.distinct >= MIN_NUMBERS
        return few and not any(CODE.fullmatch(word) for word in self.words)

    @property
    def about(self) -> str:
        """The words with their rows, as a clause."""
        ordered = sorted(self.words.items(), key=lambda item: (-item[1], item[0]))
        shown = ", ".join(f"{word!r} ({n:,})" for word, n in ordered[:N_SHOWN])
        more = f" and {len(ordered) - N_SHOWN} further texts" if len(ordered) > N_SHOWN else ""
        rows, verb = self.numbers.rows + self.n_words, "is" if self.n_words == 1 else "are"
        counts = "counts" if self.n_words == 1 else "count"
        return f"{self.n_words:,} of {rows:,} values {verb} no number and {counts} as missing: {shown}{more}"
