"""Placing new rows in groups that were learnt before, without learning them again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from operators.base import Context, OperatorError, ShardInfo
from operators.groups.base import GroupsBase
from operators.groups.methods import method_class
from operators.groups.state import RECORD, read_record


@dataclass(frozen=True)
class _NoShards:
    """A reader without shards: placing rows reads the state alone."""

    shards: tuple[ShardInfo, ...] = ()

    def read(self, shard: int, columns: Any) -> pa.Table:
        raise OperatorError("operators.groups.assign: there are no shards to read.")

    read_source = read


def assign(state: Path, table: pa.Table) -> pa.Table:
    """Columns ``group`` and ``group_outlier`` of new rows, from a fitted state.

    Parameters
    ----------
    state : the state folder of a fitted ``groups``: ``<output>/store/<fingerprint>/state``. Every method
        but ``oracle`` leaves all that is needed there.
    table : the columns that the method requires (``y``, and ``gradient``, ``gradient_factors``, ``x`` or
        ``loss``), as the operators of the same run make them of the new rows.

    Raises
    ------
    OperatorError
        The folder holds no such state, a column is missing, the method cannot place new rows
        (``oracle``), or a class had no row in ``fit``.
    """
    try:
        record = read_record(state)
        params = record["params"]
    except (OSError, ValueError, KeyError):
        raise OperatorError(
            f"{state / RECORD} cannot be read, so the folder is no state of `groups`. Give the folder "
            "<output>/store/<fingerprint>/state; `rowsieve plan RECIPE --json` shows the fingerprint."
        ) from None
    kind = method_class(str(params["method"]))
    operator = kind(kind.Params.recorded(params))
    if isinstance(operator, GroupsBase):
        operator = operator.as_fitted(record)
    missing = sorted(set(operator.requires) - set(table.column_names))
    if missing:
        raise OperatorError(
            f"operators.groups.assign: method `{params['method']}` needs the column {missing[0]!r} of the "
            f"new rows; there are: {', '.join(table.column_names)}."
        )
    if not isinstance(operator, GroupsBase):
        raise OperatorError(f"operators.groups.assign: method `{params['method']}` cannot place new rows.")
    return operator.open_for_new_rows(Context(_NoShards(), state))(table)
