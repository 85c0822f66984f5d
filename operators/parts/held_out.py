"""The draws that decide which rows are held out from every ``fit``, and as what they are published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from operators.hashing import END, Hashes, row_hashes

FITTED, VALIDATION, TEST = range(3)
By = Literal["content", "position"]
Parts = npt.NDArray[np.int8]
"""``FITTED``, ``VALIDATION`` or ``TEST`` for each row."""


@dataclass(frozen=True)
class Draw:
    """Shares of rows that are drawn by a hash of what identifies them."""

    validation: float
    test: float
    seed: int
    purpose: str
    validation_first: bool = False
    """Whether the smallest hashes are validation rows; else they are test rows."""

    def parts(self, identities: Hashes) -> Parts:
        """Return the part of each row by its identity (n,)."""
        hashes = row_hashes(identities, self.seed, self.purpose)
        first, second = (VALIDATION, TEST) if self.validation_first else (TEST, VALIDATION)
        share = self.validation if self.validation_first else self.test
        found = np.full(len(hashes), FITTED, np.int8)
        found[hashes < np.uint64(int((self.validation + self.test) * END))] = second
        found[hashes < np.uint64(int(share * END))] = first
        return found
