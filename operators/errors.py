"""Errors of operators. They may be raised in any process of a run."""

from __future__ import annotations

from typing import Any


class OperatorError(Exception):
    """The data or the parameters cannot be used. The message names the place, the value and the remedy."""


class CannotPredictError(OperatorError):
    """A kept state cannot serve the new rows; the operator has to be fitted again. The message says why."""


class ResourceError(OperatorError):
    """The cluster lacks resources that the operator needs. The message has the amounts and the key."""


class RowError(OperatorError):
    """One row cannot be used. ``shard`` and ``row`` (0-based within the shard) identify it."""

    def __init__(self, message: str, *, shard: int, row: int, column: str = "", value: str = "") -> None:
        super().__init__(message)
        self.shard, self.row, self.column, self.value = shard, row, column, value

    def __reduce__(self) -> tuple[Any, ...]:
        place = {"shard": self.shard, "row": self.row, "column": self.column, "value": self.value}
        return _rebuild_row_error, (str(self), place)


def _rebuild_row_error(message: str, place: dict[str, Any]) -> RowError:
    return RowError(message, **place)
