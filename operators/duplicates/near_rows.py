"""The rows that ``duplicates`` has stored, searched again by another operator for near rows of another kind.

``split`` asks whether a row is near an older one of another part. The oldest near row, which is all that
``duplicates`` adds to the table, may lie in the same part when a younger one does not.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from operators.arrays import Ids, Mask
from operators.duplicates.pairs import KindOf, Kinds
from operators.duplicates.params import DuplicatesParams


def near_other_kind(state: Path, params: DuplicatesParams, ids: Ids, kinds: Kinds, kind_of: KindOf) -> Mask:
    """Return whether each row is near an older one of another kind.

    Parameters
    ----------
    state, params : the state folder and the parameters of ``duplicates``.
    ids : (n,) ascending row ids of rows that nearly duplicate an older one.
    kinds : (n,) their kinds.
    kind_of : kinds of the older rows.

    Texts are found as far as a band finds them, among the oldest ``minhash.COMPARED`` rows of another kind
    with one key of the band.
    """
    if not len(ids):
        return np.zeros(0, np.bool_)
    if params.columns:
        from operators.duplicates.stored import texts_near_other_kind

        return texts_near_other_kind(state, params.threshold, ids, kinds, kind_of)
    from operators.duplicates.vectors import vectors_near_other_kind

    return vectors_near_other_kind(state, params.distance, ids, kinds, kind_of)
