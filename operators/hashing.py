"""Deterministic pseudorandom numbers of rows: hashes of row ids that do not depend on shards or workers; and
integer keys by which numbers are sorted.

Operators draw samples, folds and starting weights from these hashes. Each use names its ``purpose``, so that
two draws with one seed are independent of each other. Only the sample on which ``split: {method: cluster}``
tries its starts has the empty purpose, because published splits would change otherwise. Draws that must not
change with new files hash the identities of :mod:`operators.row_identity` instead of row ids.

Source: the output function of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
OOPSLA 2014, figure 15), which maps 64-bit integers one to one.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64

END = 1 << 64
"""One more than the largest hash."""

Hashes: TypeAlias = npt.NDArray[np.uint64]


def row_hashes(row_ids: npt.NDArray[np.integer], seed: int, purpose: str = "") -> Hashes:
    """Hash each row id; for one seed and purpose no two rows have the same hash.

    Parameters
    ----------
    row_ids : (n,) integers: row ids, or identities of rows.
    seed : any integer; only its value modulo 2^64 counts.
    purpose : what the hashes decide, as ``operator/use``, such as ``eos/sample``. Hashes of different
        purposes are independent.

    Returns
    -------
    (n,) uint64.

    Examples
    --------
    >>> import numpy as np
    >>> row_hashes(np.arange(3), seed=0).tolist() == row_hashes(np.arange(3), seed=0).tolist()
    True
    """
    key = _mix(np.array([seed % END], np.uint64))
    if purpose:
        salt = int.from_bytes(blake2b(purpose.encode(), digest_size=8).digest(), "little")
        key = _mix(key ^ np.uint64(salt))
    return _mix(row_ids.astype(np.uint64) ^ key)


def uniform(hashes: Hashes) -> Float64:
    """Map hashes (n,) to float64 in the open interval (0, 1), by their upper 53 bits."""
    found: Float64 = ((hashes >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return found


def folds_of(
    row_ids: npt.NDArray[np.integer], n_folds: int, seed: int, purpose: str
) -> npt.NDArray[np.int64]:
    """Return the fold (n,) of each row, from 0 to n_folds - 1, by its hash."""
    return (row_hashes(row_ids, seed, purpose) % np.uint64(n_folds)).astype(np.int64)


def draw_rows(
    row_ids: npt.NDArray[np.integer], size: int, seed: int, purpose: str = ""
) -> npt.NDArray[np.intp]:
    """Return the ascending positions of the ``size`` rows with the smallest hashes, or of all if there are
    fewer.

    Examples
    --------
    >>> import numpy as np
    >>> draw_rows(np.arange(5), 9, seed=0).tolist(), len(draw_rows(np.arange(5), 2, seed=0))
    ([0, 1, 2, 3, 4], 2)
    """
    if len(row_ids) <= size:
        return np.arange(len(row_ids))
    hashes = row_hashes(row_ids, seed, purpose)
    return np.sort(np.argpartition(hashes, size)[:size])


def _mix(x: Hashes) -> Hashes:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = x ^ (x >> np.uint64(31))
    return mixed


def order_keys(values: Float64) -> Hashes:
    """Map float64 values, none NaN, to uint64 keys of the same order; 0 and -0 have one key."""
    bits = (values + 0.0).view(np.uint64)
    sign = np.uint64(1 << 63)
    return np.where(bits & sign, ~bits, bits | sign)
