"""Where the vectors of a class come from: a column of flat rows or of packed ones, projected or not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operators.base import ShardReader
from operators.factored import Part, unpack
from operators.gradients.adaptor import PROJECTION
from operators.grasp.state import Ids
from operators.groups.gather import gather_class


@dataclass(frozen=True)
class Source:
    """Where the vectors of a class are: a column of the shards, flat or packed."""

    shards: ShardReader
    column: str
    parts: Sequence[Part] | None

    def gradients(self, index: int) -> tuple[Ids, Any]:
        """Row ids and gradients of a class."""
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
