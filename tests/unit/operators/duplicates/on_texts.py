"""The kernel on texts in memory, in one piece."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from operators.duplicates.minhash import Duplicates, band_keys, older_in_band, oldest, signatures


def find_duplicates(texts: Sequence[str], threshold: float = 0.8, shingle: int = 8) -> Duplicates:
    """Return the older near duplicate of each text; the texts are in the order of their age."""
    has_any, found = signatures(texts, shingle)
    ids, everything = np.flatnonzero(has_any), np.ones(len(found), np.bool_)
    pairs = []
    for keys in band_keys(found, threshold):
        rows, others, similar = older_in_band(keys, ids, found, threshold, everything)
        pairs.append((ids[rows], ids[others], similar))
    return oldest(np.arange(len(texts)), pairs)
