"""Mergeable counts of a column's values: a histogram of numbers and a table of texts.

Both are exact up to a bound and bounded in size beyond it. What they answer does not depend on how the rows
are divided into shards or on the order of merging, except the low counts of a table beyond its bound, which
are lower bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.arrays import Float64
from operators.hashing import END, Hashes, order_keys, row_hashes

MAX_BUCKETS = 2**14
"""Distinct values that a histogram counts exactly; above it neighbouring values share a bucket."""
MAX_VALUES = 2**17
"""Distinct texts whose rows are counted exactly."""
MAX_HASHES = 2048
"""Smallest hashes from which a number of distinct values is estimated, with a standard error of 2 %."""
EXACT = 2**53
"""float64 holds all whole numbers up to this one, and not all beyond it."""

Counts = npt.NDArray[np.int64]


def _no_hashes() -> Hashes:
    return np.empty(0, np.uint64)


@dataclass(frozen=True)
class Histogram:
    """Numbers counted in buckets whose bounds are prefixes of the numbers' binary form.

    A bucket holds the numbers that agree in all but the last ``shift`` bits of their 64-bit form, which keeps
    their order. ``shift`` is the smallest with which at most ``MAX_BUCKETS`` buckets are in use, a property
    of the set of values alone. With at most that many distinct values, every bucket is one value, and all
    figures are exact. Else a quantile is off by less than the width of its bucket.

    Attributes
    ----------
    low, high : least and greatest number of each bucket, (b,) float64, ascending.
    counts : rows of each bucket, (b,) int64.
    shift : bits of the numbers' form that a bucket leaves open; 0 where the buckets are exact.
    hashes : the smallest hashes of the distinct values; empty where the buckets are exact.
    """

    low: Float64
    high: Float64
    counts: Counts
    shift: int = 0
    hashes: Hashes = field(default_factory=_no_hashes)

    @classmethod
    def of(cls, values: npt.ArrayLike, counts: npt.ArrayLike | None = None) -> Self:
        """Count finite numbers (n,), each of which stands for so many rows (default: one)."""
        numbers = np.asarray(values, np.float64) + 0.0  # no negative zero
        if counts is None:
            numbers = np.sort(numbers)
            weights = np.ones(len(numbers), np.int64)
        else:
            order = np.argsort(numbers, kind="stable")
            numbers, weights = numbers[order], np.asarray(counts, np.int64)[order]
        starts = _starts(numbers[1:] != numbers[:-1]) if len(numbers) else np.empty(0, np.intp)
        distinct, summed = numbers[starts], _sums(weights, starts)
        return cls._bounded(distinct, distinct, summed, 0, _no_hashes())

    def merge(self, other: Histogram) -> Self:
        """Return the histogram of the rows of both."""
        shift = max(self.shift, other.shift)
        low = np.concatenate([self.low, other.low])
        order = np.argsort(low, kind="stable")
        high = np.concatenate([self.high, other.high])[order]
        counts = np.concatenate([self.counts, other.counts])[order]
        hashes = _no_hashes()
        if shift:
            hashes = _smallest(np.concatenate([self._all_hashes(), other._all_hashes()]))
        return self._bounded(low[order], high, counts, shift, hashes)

    @classmethod
    def _bounded(cls, low: Float64, high: Float64, counts: Counts, shift: int, hashes: Hashes) -> Self:
        """Join buckets, ascending by ``low``, with the smallest possible shift of at least ``shift``."""
        keys = order_keys(low)
        differing = _bit_lengths(keys[1:] ^ keys[:-1])
        finest = shift
        if int((differing > shift).sum()) >= MAX_BUCKETS:
            finest = int(np.partition(differing, -MAX_BUCKETS)[-MAX_BUCKETS])
        if finest and not shift:
            hashes = _smallest(_number_hashes(low))
        if not len(low):
            return cls(low, high, counts, finest, hashes)
        starts = _starts(differing > finest)
        return cls(low[starts], np.maximum.reduceat(high, starts), _sums(counts, starts), finest, hashes)

    def _all_hashes(self) -> Hashes:
        return self.hashes if self.shift else _number_hashes(self.low)

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return int(self.counts.sum())

    @property
    def is_exact(self) -> bool:
        """Return whether every bucket is a single value."""
        return self.shift == 0

    @property
    def distinct(self) -> int:
        """Number of distinct values; an estimate unless :attr:`is_exact`."""
        return len(self.low) if self.is_exact else _estimate(self.hashes)

    def quantiles(self, q: npt.ArrayLike) -> Float64:
        """Return quantiles by linear interpolation between ranks, as ``numpy.quantile`` does.

        Parameters
        ----------
        q : probabilities, any shape.

        Raises
        ------
        ValueError
            There are no rows.
        """
        if not len(self.low):
            raise ValueError("there is no row to take a quantile of")
        ranks = np.asarray(q, np.float64) * (self.rows - 1)
        below = np.floor(ranks)
        first, second = self._at(below), self._at(np.minimum(below + 1, self.rows - 1))
        part = ranks - below
        found = np.where(part < 0.5, first + (second - first) * part, second - (second - first) * (1 - part))
        return np.asarray(np.clip(found, self.low[0], self.high[-1]))

    def _at(self, ranks: Float64) -> Float64:
        """Return the numbers with these ranks; those of a bucket are taken as evenly spaced."""
        ends = np.cumsum(self.counts)
        bucket = np.searchsorted(ends, ranks, side="right")
        inside = ranks - (ends - self.counts)[bucket]
        steps = np.maximum(self.counts[bucket] - 1, 1)
        low = self.low[bucket]
        return np.asarray(low + (self.high[bucket] - low) * (inside / steps))


@dataclass(frozen=True)
class ValueCounts:
    """Texts and the number of rows of each.

    Up to ``MAX_VALUES`` distinct texts the counts are exact. Beyond it the most frequent ones are kept, by
    the merge of Misra-Gries summaries (Agarwal et al., Mergeable summaries, PODS 2012): a count is then too
    low by at most ``error``, and every text with more than ``error`` rows is kept.

    Attributes
    ----------
    values : distinct texts, ascending, as ``large_string``.
    counts : rows of each, (v,) int64.
    error : most rows that a count may lack; 0 where the counts are exact.
    hashes : the smallest hashes of the distinct texts; empty where the counts are exact.
    """

    values: pa.Array
    counts: Counts
    error: int = 0
    hashes: Hashes = field(default_factory=_no_hashes)

    @classmethod
    def of(cls, values: pa.Array, counts: npt.ArrayLike) -> Self:
        """Add up texts (not null) with counts; a text may occur more than once."""
        return cls._bounded(*_added_up(values, np.asarray(counts, np.int64)), 0, _no_hashes())

    def merge(self, other: ValueCounts) -> Self:
        """Return the counts of the rows of both."""
        values = pa.concat_arrays([self.values, other.values])
        added = _added_up(values, np.concatenate([self.counts, other.counts]))
        hashes = _no_hashes()
        if self.error or other.error:
            hashes = _smallest(np.concatenate([self._all_hashes(), other._all_hashes()]))
        return self._bounded(*added, self.error + other.error, hashes)

    @classmethod
    def _bounded(cls, values: pa.Array, counts: Counts, error: int, hashes: Hashes) -> Self:
        if len(values) <= MAX_VALUES:
            return cls(values, counts, error, hashes)
        if not error:
            hashes = _smallest(_text_hashes(values))
        lost = int(np.partition(counts, -MAX_VALUES - 1)[-MAX_VALUES - 1])
        kept = np.flatnonzero(counts > lost)
        return cls(values.take(pa.array(kept)), counts[kept] - lost, error + lost, hashes)

    def _all_hashes(self) -> Hashes:
        return self.hashes if self.error else _text_hashes(self.values)

    @property
    def is_exact(self) -> bool:
        """Return whether all texts are kept, with all their rows."""
        return self.error == 0

    @property
    def distinct(self) -> int:
        """Number of distinct texts; an estimate unless :attr:`is_exact`."""
        return len(self.values) if self.is_exact else _estimate(self.hashes)

    def most_frequent(self, n: int) -> list[tuple[str, int]]:
        """Return at most ``n`` texts with their rows, most rows first; ties in the order of the texts."""
        order = np.argsort(-self.counts, kind="stable")[:n]
        texts = self.values.take(pa.array(order)).to_pylist()
        return list(zip(texts, self.counts[order].tolist(), strict=True))


def _hashes_of_integers(values: npt.NDArray[np.integer]) -> Hashes:
    """Return the smallest hashes of distinct whole numbers, which float64 may not tell apart."""
    return _smallest(row_hashes(np.ascontiguousarray(values).view(np.int64), 0, "encode/distinct"))


def large_integers(column: pa.ChunkedArray) -> Hashes:
    """Return the smallest hashes of the whole numbers from 2^53 on, which float64 rounds."""
    if column.type.bit_width < 64 or column.null_count == len(column):
        return np.empty(0, np.uint64)
    span = pc.min_max(column)
    if max(abs(span["min"].as_py()), abs(span["max"].as_py())) <= EXACT:
        return np.empty(0, np.uint64)
    values = column.drop_null().to_numpy()
    rounded = (values > EXACT) | (values < -EXACT) if values.dtype.kind == "i" else values > EXACT
    return _hashes_of_integers(values[rounded])


def merged_hashes(mine: Hashes, other: Hashes) -> Hashes:
    """Return the smallest hashes of two sets."""
    return _smallest(np.concatenate([mine, other]))


def distinct_of(hashes: Hashes) -> int:
    """Return how many distinct values the smallest hashes stand for; an estimate for many."""
    return _estimate(hashes)


def _starts(changes: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """Return where runs start, given whether each entry but the first begins one."""
    return np.concatenate([[0], np.flatnonzero(changes) + 1]).astype(np.intp)


def _sums(counts: Counts, starts: npt.NDArray[np.intp]) -> Counts:
    return np.add.reduceat(counts, starts) if len(starts) else counts


def _added_up(values: pa.Array, counts: Counts) -> tuple[pa.Array, Counts]:
    """Return distinct texts, ascending by their bytes, with the sums of their counts."""
    encoded = values.cast(pa.large_string()).dictionary_encode()
    added = np.zeros(len(encoded.dictionary), np.int64)
    np.add.at(added, encoded.indices.to_numpy(), counts)
    order = pc.array_sort_indices(encoded.dictionary)
    return encoded.dictionary.take(order), added[order.to_numpy()]


def _bit_lengths(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """Return the number of bits that each integer needs, 0 for 0."""
    for step in (1, 2, 4, 8, 16, 32):
        x = x | (x >> np.uint64(step))
    return np.bitwise_count(x)


def _number_hashes(numbers: Float64) -> Hashes:
    return row_hashes(np.ascontiguousarray(numbers).view(np.int64), 0, "encode/distinct")


def _text_hashes(values: pa.Array) -> Hashes:
    found = (blake2b(text.encode(), digest_size=8).digest() for text in values.to_pylist())
    return np.frombuffer(b"".join(found), np.uint64)


def _smallest(hashes: Hashes) -> Hashes:
    if len(hashes) > 2 * MAX_HASHES:  # of two sketches, so that each hash may be there twice
        hashes = np.partition(hashes, 2 * MAX_HASHES)[: 2 * MAX_HASHES]
    found = np.sort(hashes)
    return found[_starts(found[1:] != found[:-1])][:MAX_HASHES] if len(found) else found


def _estimate(hashes: Hashes) -> int:
    """Estimate the number of distinct values from the k smallest of their hashes (k-minimum values).

    Bar-Yossef et al., Counting distinct elements in a data stream, RANDOM 2002.
    """
    if len(hashes) < MAX_HASHES:
        return len(hashes)
    return round((MAX_HASHES - 1) / (float(hashes[-1]) / END))
