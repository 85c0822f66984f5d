"""The ``groups`` operator: what all methods have in common, and which class carries a method out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.base import (
    CATEGORY,
    GROUP,
    IS_OUTLIER,
    OUTLIER_SOURCE,
    Apply,
    Context,
    Operator,
    OperatorParams,
)

NOISE = -1
P = TypeVar("P", bound=OperatorParams)


class Groups(Operator[P]):
    """Adds ``group`` (-1: in none), ``is_outlier`` and ``outlier_source``, by one of several methods."""

    name = "groups"
    version = 1
    Params: ClassVar[type[OperatorParams]] = OperatorParams
    uses: ClassVar[tuple[str, ...]] = ("ingest",)

    @classmethod
    def variant(cls, params: Mapping[str, Any]) -> type[Operator[Any]]:
        """The class of ``method``, by default ``grasp``. Raises OperatorError for an unknown one."""
        from operators.groups.methods import method_class

        return method_class(str(params.get("method", "grasp")))

    @classmethod
    def variants(cls) -> dict[str, type[Operator[Any]]]:
        """All methods that load, by name."""
        from operators.groups.methods import known_methods

        return known_methods()

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """Group, whether the row is judged corrupt, and by what."""
        return (
            pa.field(GROUP, pa.int32()),
            pa.field(IS_OUTLIER, pa.bool_()),
            pa.field(OUTLIER_SOURCE, CATEGORY),
        )

    def place(self, context: Context) -> Apply:
        """Like ``open``, for rows that ``fit`` has not seen: their groups from the state alone."""
        return self.open(context)


def group_columns(group: npt.NDArray[np.int32], method: str = "") -> pa.Table:
    """The columns that ``groups`` adds; rows in no group count as outliers by that method's noise."""
    outlier = group == NOISE
    sources = pa.array(["", f"{method}:noise"])
    source = pa.DictionaryArray.from_arrays(pa.array(outlier.astype(np.int8)), sources)
    return pa.table({GROUP: group, IS_OUTLIER: outlier, OUTLIER_SOURCE: source})
