"""Near duplicates among texts: MinHash signatures, bands of them as keys, and the older row of each pair.

A text is the set of its shingles (Broder 1997): all runs of a few characters, after Unicode normalisation,
case folding and with single spaces. The share of 128 minimum hashes in which two texts agree estimates their
Jaccard similarity. Rows that agree in all hashes of at least one band are compared (locality-sensitive
hashing; Leskovec, Rajaraman, Ullman: Mining of Massive Datasets, section 3.4).

A text is a duplicate if an older text is near it, whether or not that text is a duplicate itself: of two
texts that are kept, none is near the other, as far as the bands find pairs.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from operators.arrays import Float32, Ids, Mask
from operators.hashing import Hashes, row_hashes

N_HASHES = 128
RECALL = 0.99
"""Least probability that two texts at the threshold share a band."""
COMPARED = 256
"""Most rows of each of its bands, the oldest ones, with which a row is compared."""
SHINGLES_AT_ONCE = 2**14
"""Shingles in memory: a text may be as large as a shard, and each of its shingles takes sixty bytes."""
ROWS_AT_ONCE = 2**16
"""Rows whose signatures are in memory, and as many older ones: all rows of a source may have one text."""
SPACES = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029"
"""Characters that are spaces, beside those that the compatible form makes one."""
SEED = 20_261_123
NONE = -1

Signatures = npt.NDArray[np.uint32]


class StoredRows(Protocol):
    """Signatures of rows, in memory or on disk."""

    def __getitem__(self, rows: Ids, /) -> Signatures:
        """Return the signatures (p, N_HASHES) at positions (p,)."""
        ...


@dataclass(frozen=True)
class Duplicates:
    """The older near duplicate of each row.

    Attributes
    ----------
    of : (n,) row id of the oldest row that was found near; -1: none.
    similarity : (n,) estimated similarity with that row; 0: none.
    """

    of: Ids
    similarity: Float32


def plain_text(text: str) -> str:
    """Return a text in compatible composed form, in lower case and with single spaces.

    >>> plain_text(" To  be ")
    'to be'
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    for space in SPACES:
        plain = plain.replace(space, " ")
    while "  " in plain:
        plain = plain.replace("  ", " ")
    return plain.strip()


def shingles(plain: str, size: int, first: int = 0, count: int | None = None) -> list[str]:
    """Return the shingles of a plain text: all, or so many from ``first`` on. An empty text has none.

    >>> shingles(plain_text("To  be"), 4)
    ['to b', 'o be']
    """
    end = max(len(plain) - size + 1, 1) if plain else 0
    end = end if count is None else min(end, first + count)
    return [plain[start : start + size] for start in range(first, end)]


def signatures(texts: Sequence[str], size: int) -> tuple[Mask, Signatures]:
    """Return the minimum hashes of texts.

    Parameters
    ----------
    texts : n texts.
    size : characters of a shingle.

    Returns
    -------
    (n,) whether the text has any shingle, and (m, N_HASHES) for the m texts that do.

    Raises
    ------
    ImportError
        The package ``rensa`` is missing; the text names the extra that brings it.
    """
    try:
        from rensa import RMinHash
    except ImportError as error:
        raise ImportError(
            f"operators.duplicates compares texts by rensa, which does not import here ({error}). "
            "Run `pip install 'rowsieve[duplicates]'`."
        ) from None
    found = np.empty((len(texts), N_HASHES), np.uint32)
    has_any = np.zeros(len(texts), np.bool_)
    for row, text in enumerate(texts):
        if plain := plain_text(text):
            sketch = RMinHash(num_perm=N_HASHES, seed=SEED)
            for first in range(0, len(plain), SHINGLES_AT_ONCE):
                sketch.update(shingles(plain, size, first, SHINGLES_AT_ONCE))
            found[row] = sketch.digest()
            has_any[row] = True
    return has_any, found[has_any]


def choose_bands(threshold: float) -> tuple[int, int]:
    """Return the number of bands and their length in hashes.

    The bands are the longest of which two texts at the threshold share one with probability ``RECALL``.

    >>> choose_bands(0.8)
    (21, 6)
    """
    for length in range(N_HASHES, 1, -1):
        bands = N_HASHES // length
        if 1.0 - (1.0 - threshold**length) ** bands >= RECALL:
            return bands, length
    return N_HASHES, 1


def band_keys(found: Signatures, threshold: float) -> Hashes:
    """Return a hash of each band, (bands, m) uint64, of signatures (m, N_HASHES)."""
    bands, length = choose_bands(threshold)
    odd = row_hashes(np.arange(length), SEED, "duplicates/bands") | np.uint64(1)
    blocks = found[:, : bands * length].reshape(len(found), bands, length).astype(np.uint64)
    return np.ascontiguousarray((blocks * odd).sum(axis=2, dtype=np.uint64).T)


def similarities(found: StoredRows, rows: Ids, others: Ids) -> Float32:
    """Return the share of equal hashes of pairs of rows, given as positions (p,) in ``found``."""
    share: Float32 = (found[rows] == found[others]).mean(axis=1, dtype=np.float32)
    return share


def older_in_band(
    keys: Hashes, ids: Ids, found: StoredRows, threshold: float, wanted: Mask
) -> tuple[Ids, Ids, Float32]:
    """Return the oldest near row that one band finds, for rows that are ``wanted`` and have one.

    Parameters
    ----------
    keys, ids, wanted : (m,) key of the band, row id (older rows have smaller ones), and whether the row is
        asked for.
    found : (m, N_HASHES) signatures, of which at most ``ROWS_AT_ONCE`` are asked for at a time.
    threshold : least similarity.

    Returns
    -------
    (p,) positions of the rows, positions of the older ones, and their similarity.
    """
    order = np.lexsort((ids, keys))
    change = np.flatnonzero(np.diff(keys[order], prepend=keys[order[:1]])) if len(order) else order
    start = np.zeros(len(order), np.int64)
    start[change] = change
    start = np.maximum.accumulate(start)
    place = np.arange(len(order)) - start
    asked = np.flatnonzero((place > 0) & wanted[order])
    empty = np.empty(0, np.int64)
    pieces: list[tuple[Ids, Ids, Float32]] = [(empty, empty, np.empty(0, np.float32))]
    for first in range(0, len(asked), ROWS_AT_ONCE):
        left = asked[first : first + ROWS_AT_ONCE]
        for member in range(COMPARED):
            left = left[place[left] > member]
            if not len(left):
                break
            rows, others = order[left], order[start[left] + member]
            similar = similarities(found, rows, others)
            near = similar >= threshold
            pieces.append((rows[near], others[near], similar[near]))
            left = left[~near]
    return tuple(np.concatenate(values) for values in zip(*pieces, strict=True))  # type: ignore[return-value]


def oldest(ids: Ids, pairs: Sequence[tuple[Ids, Ids, Float32]]) -> Duplicates:
    """Return, for rows ``ids`` (n,), the oldest of what all bands found.

    Parameters
    ----------
    ids : (n,) ascending row ids.
    pairs : for each band (p,) row ids, row ids of the older rows, and similarities. Other rows may be among
        them.
    """
    of, similarity = np.full(len(ids), NONE, np.int64), np.zeros(len(ids), np.float32)
    for rows, others, similar in pairs:
        place = np.searchsorted(ids, rows)
        known = place < len(ids)
        known[known] = ids[place[known]] == rows[known]
        place, others, similar = place[known], others[known], similar[known]
        better = (of[place] == NONE) | (others < of[place])
        of[place[better]], similarity[place[better]] = others[better], similar[better]
    return Duplicates(of, similarity)
