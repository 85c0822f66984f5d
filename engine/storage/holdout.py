"""Rows that are held out from everything: which they are, and their part.

The draw depends on nothing but the rows themselves: not on the recipe's seed, nor on other files. So a row
that one version holds out is held out by every later one, and no model of any version was trained on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.base import ROW_ID, ShardReader
from operators.hashing import END, row_hashes
from operators.row_identity import key_hashes, position_identities, source_column

PURPOSE = "source/holdout"
SEED = 0
FITTED, VALIDATION, TEST = range(3)
Parts = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Holdout:
    """Shares of the rows that no operator learns from."""

    test: float
    """Share of rows, 0 to 1, that are published as test rows."""
    validation: float = 0.0
    """Share of rows that are published as validation rows."""
    key: str | None = None
    """Source column whose value decides; default: the bytes of the file and the position in it."""

    def parts(self, reader: ShardReader, shard: int) -> Parts:
        """Part of each row of a shard (n,): ``FITTED``, ``VALIDATION`` or ``TEST``."""
        info = reader.shards[shard]
        row_ids = np.arange(info.first_row, info.first_row + info.n_rows, dtype=np.int64)
        identities = position_identities([info], row_ids)
        if self.key is not None and len(row_ids):
            rows = pa.table({ROW_ID: row_ids})
            keys, there = key_hashes(source_column(reader, self.key, rows))
            identities = np.where(there, keys, identities)
        hashes = row_hashes(identities, SEED, PURPOSE)
        parts = np.full(len(hashes), FITTED, np.int8)
        parts[hashes < np.uint64(int((self.test + self.validation) * END))] = VALIDATION
        parts[hashes < np.uint64(int(self.test * END))] = TEST
        return parts
