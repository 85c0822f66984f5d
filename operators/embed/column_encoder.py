"""Base class of operators that turn one source column into features and learn from no row."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

import pyarrow as pa

from operators.base import FEATURE_FAULT, FEATURES, REASON, VECTOR, Operator, OperatorParams

P = TypeVar("P", bound=OperatorParams)


class ColumnEncoder(Operator[P]):
    """Adds ``x``, the features of a text or an image, and ``x_fault`` where there are none.

    Nothing is learnt from rows, so that another label, or another draw of validation and test rows, needs no
    second pass.
    """

    fits_on_all_rows = True

    @property
    @abstractmethod
    def column(self) -> str:
        """Return the source column with texts or images."""

    @property
    def requires(self) -> tuple[str, ...]:
        """Return no column: the operator reads the source."""
        return ()

    @property
    def source_columns(self) -> tuple[str, ...]:
        """Return the column with texts or images."""
        return (self.column,)

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """Return the added columns: the features, null if the row cannot be used, and the reason for that."""
        return pa.field(FEATURES, VECTOR), pa.field(FEATURE_FAULT, REASON)

    @property
    def can_predict(self) -> bool:
        """Return True: what encodes a row was made elsewhere."""
        return True
