"""Rows of the sample in which shortcuts are searched for, with what models say of them."""

from __future__ import annotations

from typing import NamedTuple

from operators.arrays import Floats, Integers


class SearchedRows(NamedTuple):
    """Rows of the sample in which shortcuts are searched for.

    Attributes
    ----------
    Z, y, ids
        Standardised rows (n, d), labels (n,), row ids (n,).
    p
        Held-out probabilities of class-balanced models, shape (n, C).

    """

    Z: Floats
    y: Integers
    ids: Integers
    p: Floats

    @property
    def n_classes(self) -> int:
        """Return the number of classes, C."""
        return int(self.p.shape[1])
