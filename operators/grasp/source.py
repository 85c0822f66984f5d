"""Where the vectors of a class come from: a column of flat rows or of packed ones, projected or not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from operators.base import ShardReader
from operators.factored import Part, unpack
from operators.gradients.adaptor import PROJECTION
from operators.groups.gather import gather_class
from operators.groups.state import Ids

if TYPE_CHECKING:
    from operators.grasp.drawing import DrawnClass


@dataclass(frozen=True)
class Source:
    """Where the vectors of a class are: a column of the shards, flat or packed; or drawn rows on disk."""

    shards: ShardReader
    column: str
    parts: Sequence[Part] | None
    drawn: Mapping[int, DrawnClass] = field(default_factory=dict)

    def drawn_from(self, index: int) -> int:
        """Rows of a class of which only drawn ones are clustered; 0 where all are."""
        return self.drawn[index].n_rows if index in self.drawn else 0

    def gradients(self, index: int) -> tuple[Ids, Any]:
        """Row ids (none of drawn rows) and gradients of a class."""
        row_ids: Ids = np.empty(0, np.int64)
        if index in self.drawn:
            vectors: Any = self.drawn[index].vectors()
        else:
            row_ids, columns = gather_class(self.shards, index, [self.column])
            vectors = columns.get(self.column)
        if vectors is None or self.parts is None:
            return row_ids, vectors
        return row_ids, unpack(vectors, self.parts)


def read_projection(maker: Path | None) -> dict[str, Any]:
    """How the gradients were projected, and by how much that moves cosines; empty where they are not."""
    path = maker / PROJECTION if maker else None
    if path is None or not path.exists():
        return {}
    record: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return record
