"""Groups that a column gives: the class label, and the true groups. They bound every inferred grouping."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.base import (
    LABEL,
    ROW_ID,
    Apply,
    Context,
    Executor,
    OperatorError,
    OperatorParams,
    ShardReader,
)
from operators.groups.base import GroupsBase, group_columns
from operators.groups.params import NoneParams, OracleParams
from operators.groups.state import read_group_record, write_group_record

MAX_VALUES = 10_000


class ClassLabel(GroupsBase[NoneParams]):
    """Groups that equal the classes, which are known without any method."""

    version = 2
    Params: ClassVar[type[OperatorParams]] = NoneParams

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the label column, which separates the classes."""
        return (LABEL,)

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Store the parameters; nothing is learnt."""
        write_group_record(context.state, self.params)
        return {}

    def open(self, context: Context) -> Apply:
        """Return the function that takes the class as group; it needs no state."""
        return lambda table: group_columns(table.column(LABEL).to_numpy().astype(np.int32))


class Oracle(GroupsBase[OracleParams]):
    """Takes a column with the true groups as group, as an upper bound of what inference can reach.

    Groups are the values of the column, numbered in the order of their text; rows without a value are in no
    group. A value that occurs in several classes is one group.
    """

    version = 3
    Params: ClassVar[type[OperatorParams]] = OracleParams

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the label column, which only valid rows have."""
        return (LABEL,)

    @property
    def oracle_columns(self) -> tuple[str, ...]:
        """Return the column with the groups, which may be named under ``truth``."""
        return (self.params.column,)

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Collect the values. Raises OperatorError for more than 10,000."""
        shards = [shard.index for shard in context.shards.shards]
        values: set[str] = set()
        for found in executor.map(partial(_values, context.shards, self.params.column), shards):
            values |= found
            if len(values) > MAX_VALUES:
                raise OperatorError(
                    f"operators.groups.column: {self.params.column!r} has more than {MAX_VALUES:,} values, "
                    "which is too many for groups. Name a column with the true group of each row."
                )
        write_group_record(context.state, self.params, values=sorted(values))
        return {"groups": float(len(values)), "oracle": 1.0}

    def open(self, context: Context) -> Apply:
        """Return a function that reads the column of a table's rows."""
        values = pa.array(read_group_record(context.state)["values"], pa.string())
        shards = sorted(context.shards.shards, key=lambda shard: shard.first_row)
        firsts = [shard.first_row for shard in shards]

        def apply(table: pa.Table) -> pa.Table:
            ids = table.column(ROW_ID).to_numpy()
            if not len(ids):
                return group_columns(np.empty(0, np.int32), self.params.method)
            shard = shards[bisect_right(firsts, int(ids[0])) - 1]
            names = _names(context.shards, self.params.column, shard.index).take(ids - shard.first_row)
            return group_columns(_codes(names, values), self.params.method)

        return apply

    @property
    def can_predict(self) -> bool:
        """Return False: the truth of new rows cannot be inferred."""
        return False

    def open_for_new_rows(self, context: Context) -> Apply:
        """Raise OperatorError, since the truth of new rows cannot be inferred."""
        raise OperatorError(
            "operators.groups: method `oracle` reads the truth of the rows it was given; it cannot place new "
            "rows. Use a method that infers groups, or run the operator again."
        )


def _names(shards: ShardReader, column: str, shard: int) -> pa.Array:
    """Return the column as text, for all rows of a shard; NaN counts as no value, and -0.0 as 0.0."""
    found = shards.read_source(shard, [column]).column(column)
    if pa.types.is_dictionary(found.type):
        found = found.cast(found.type.value_type)
    if pa.types.is_floating(found.type):
        found = pc.if_else(pc.is_nan(found), None, pc.add(found, pa.scalar(0.0, found.type)))
    return pc.cast(found, pa.string()).combine_chunks()


def _values(shards: ShardReader, column: str, shard: int) -> set[str]:
    return {value for value in pc.unique(_names(shards, column, shard)).to_pylist() if value is not None}


def _codes(names: Any, values: Any) -> npt.NDArray[np.int32]:
    codes = pc.fill_null(pc.index_in(names, values), -1)
    return np.asarray(codes.to_numpy(zero_copy_only=False), np.int32)
