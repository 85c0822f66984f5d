"""Row filters of a recipe, which are values and not code; they apply to tables, statistics and folder
names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connectors.errors import ConnectorError
from connectors.schema import pick

Clause = tuple[str, str, Any]
COMPARISONS = {
    "=": "equal",
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
OPERATIONS = (*COMPARISONS, "in", "not in")
MAX_VALUES = 2_000
"""Values that a filter compares; a list counts with each of its own. With 10,000, Arrow, which makes a chain
of any expression and follows it by recursion, ended the process."""
WRITE = 'Write [column, operation, value], such as [age, ">=", 18], or a list of such lists'


@dataclass(frozen=True)
class Predicate:
    """Selects the rows for which all clauses of one of the ``conjunctions`` hold (disjunctive normal form).

    A clause is a column, one of ``OPERATIONS`` and a value. A missing value fits no clause but ``= null``.
    """

    conjunctions: tuple[tuple[Clause, ...], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns in its clauses."""
        return tuple(dict.fromkeys(name for clauses in self.conjunctions for name, _, _ in clauses))

    def mask(self, table: pa.Table) -> pa.ChunkedArray:
        """Return the mask of selected rows. Raises ConnectorError for an unknown column or impossible
        value.
        """
        refs = {name: table[name] for name in self.columns if name in table.schema.names}
        return pc.fill_null(self._test(table.schema, refs), False)

    def expression(self, schema: pa.Schema) -> pc.Expression:
        """Return a filter of statistics for pyarrow's datasets, which rules out no row that fits.

        Statistics leave out NaN, which differs from every number. Raises ConnectorError.
        """
        conjunctions = tuple(tuple(_beyond_nan(schema, one) for one in held) for held in self.conjunctions)
        wanted = Predicate(conjunctions)
        return wanted._test(schema, {name: pc.field(name) for name in self.columns})

    def renamed(self, names: Mapping[str, str]) -> Predicate | None:
        """Return it with other column names. Clauses on other columns are left out, so that more rows
        pass.
        """
        conjunctions = [
            tuple((names[n], op, v) for n, op, v in clauses if n in names) for clauses in self.conjunctions
        ]
        return Predicate(tuple(conjunctions)) if all(conjunctions) else None

    def given(self, row: pa.Table) -> Predicate | bool:
        """Return the filter that remains once the columns of ``row``, a table of one row, are known."""
        conjunctions = []
        for clauses in self.conjunctions:
            known = tuple(clause for clause in clauses if clause[0] in row.schema.names)
            if known and not Predicate((known,)).mask(row)[0].as_py():
                continue
            unknown = tuple(clause for clause in clauses if clause not in known)
            if not unknown:
                return True
            conjunctions.append(unknown)
        return Predicate(tuple(conjunctions)) if conjunctions else False

    def _test(self, schema: pa.Schema, refs: Mapping[str, Any]) -> Any:
        pick(schema, self.columns, "source.filter: the source")
        terms = (
            joined(pc.and_kleene, (_clause(schema, refs, *clause) for clause in clauses))
            for clauses in self.conjunctions
        )
        return joined(pc.or_kleene, terms)


def joined(join: Callable[[Any, Any], Any], terms: Iterable[Any]) -> Any:
    """Join terms, of which there is one at least, by an associative function, as a tree of least depth.

    pyiceberg follows expressions by recursion. Of masks, as many are in memory as the tree is deep.
    """
    trees: list[tuple[int, Any]] = []  # depth and tree, each less deep than the one before
    for term in terms:
        depth, tree = 0, term
        while trees and trees[-1][0] == depth:
            depth, tree = depth + 1, join(trees.pop()[1], tree)
        trees.append((depth, tree))
    found = trees.pop()[1]
    while trees:
        found = join(trees.pop()[1], found)
    return found


def parse(value: Any) -> Predicate | None:
    """Parse ``source.filter``: a clause, a list of them (all must hold), or a list of lists (any).

    Raises ConnectorError, also for more than ``MAX_VALUES`` values.
    """
    if value is None:
        return None
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise ConnectorError(f"source.filter: {value!r} is not a list of clauses. {WRITE}.")
    if isinstance(value[0], str):
        value = [value]
    conjunctions = [value] if any(_like_clause(part) for part in value) else value
    found = Predicate(tuple(_conjunction(clauses) for clauses in conjunctions))
    sizes = [len(v) if isinstance(v, tuple) else 1 for clauses in found.conjunctions for _, _, v in clauses]
    if sum(sizes) > MAX_VALUES:
        raise ConnectorError(
            f"source.filter: it compares {sum(sizes):,} values, and {MAX_VALUES:,} are allowed: every row is "
            f"compared with each. Mark the rows in a column, and filter by that."
        )
    return found


def _like_clause(value: Any) -> bool:
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    return listed and len(value) > 0 and isinstance(value[0], str)


def _conjunction(value: Any) -> tuple[Clause, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise ConnectorError(f"source.filter: {value!r} is not a list of clauses. {WRITE}.")
    return tuple(_checked(clause) for clause in value)


def _checked(value: Any) -> Clause:
    if not _like_clause(value) or len(value) != 3:
        raise ConnectorError(f"source.filter: {value!r} is not a clause. {WRITE}.")
    name, operation, operand = value
    if operation not in OPERATIONS:
        raise ConnectorError(
            f"source.filter: {value!r}: there is no operation {operation!r}. Known: {', '.join(OPERATIONS)}; "
            f"put it in quotes."
        )
    several = isinstance(operand, Sequence) and not isinstance(operand, str)
    if several != (operation not in COMPARISONS):
        kind = "one value" if operation in COMPARISONS else "a list of values"
        raise ConnectorError(f"source.filter: {value!r}: {operation!r} takes {kind}, not {operand!r}.")
    if operand is None and COMPARISONS[operation] not in ("equal", "not_equal"):
        raise ConnectorError(f"source.filter: {value!r}: null fits only '=' and '!='.")
    if not several:
        return name, operation, operand
    if operation == "in" and None in operand:
        raise ConnectorError(
            f"source.filter: {value!r}: null fits only '=' and '!='. For rows without a value, too, write "
            f'[[[{name}, in, [...]]], [[{name}, "=", null]]].'
        )
    return name, operation, tuple(one for one in operand if one is not None)  # null fits no "not in" anyway


def _beyond_nan(schema: pa.Schema, clause: Clause) -> Clause:
    """Return a clause that takes every value of a column of floats where NaN fits the given one."""
    name, operation, value = clause
    differs = operation in ("!=", "not in") and value is not None and name in schema.names
    return (name, "!=", None) if differs and pa.types.is_floating(_values_of(schema, name)) else clause


def _values_of(schema: pa.Schema, name: str) -> pa.DataType:
    """Return the type of a column's values, which a dictionary may hold."""
    kind = schema.field(name).type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _clause(schema: pa.Schema, refs: Mapping[str, Any], name: str, operation: str, value: Any) -> Any:
    """Return a mask or an expression, as ``refs[name]`` is a column or a reference to one."""
    ref, kind = refs[name], _values_of(schema, name)
    if pa.types.is_dictionary(schema.field(name).type):
        ref = ref.cast(kind)
    if pa.types.is_float16(kind):  # which Arrow compares with nothing
        ref = ref.cast(pa.float32())
    if value is None:
        return pc.is_null(ref) if COMPARISONS[operation] == "equal" else pc.is_valid(ref)
    if operation in COMPARISONS:
        return _compared(name, kind, ref, COMPARISONS[operation], value)
    tests = (_compared(name, kind, ref, "equal", one) for one in value)
    found = joined(pc.or_kleene, tests) if value else _nothing(ref)
    return found if operation == "in" else pc.and_kleene(pc.invert(found), pc.is_valid(ref))


def _compared(name: str, kind: pa.DataType, ref: Any, comparison: str, value: Any) -> Any:
    """Return the test of a column against one value, which is exact for whole numbers of any size."""
    _check_alike(name, kind, value)
    if pa.types.is_integer(kind):
        return _compared_to_integers(kind, ref, comparison, value)
    try:
        if pa.types.is_floating(kind):
            literal = pa.scalar(float(value))
        elif pa.types.is_decimal(kind):
            literal = pa.scalar(Decimal(value) if isinstance(value, int) else value)
        else:
            literal = pa.scalar(value).cast(kind)
    except (pa.ArrowException, OverflowError) as error:
        raise _wrong_kind(name, kind, value) from error
    return getattr(pc, comparison)(ref, literal)


def _compared_to_integers(kind: pa.DataType, ref: Any, comparison: str, value: float) -> Any:
    """Return the test of a column of integers, whose values Arrow would refuse to cast to another type.

    The number is replaced by the integer of the column's range that makes the same test.
    """
    signed = pa.types.is_signed_integer(kind)
    low, high = (-(2**63), 2**63 - 1) if signed else (0, 2**64 - 1)
    if isinstance(value, float) and math.isnan(value):
        return pc.is_valid(ref) if comparison == "not_equal" else _nothing(ref)
    value = max(low - 1, min(value, high + 1))
    limit = math.ceil(value) if comparison in ("less", "greater_equal") else math.floor(value)
    if comparison in ("equal", "not_equal"):
        is_possible, otherwise = limit == value and low <= limit <= high, comparison == "not_equal"
    else:
        is_possible, otherwise = low <= limit <= high, (limit > high) == comparison.startswith("less")
    if not is_possible:
        return pc.is_valid(ref) if otherwise else _nothing(ref)
    return getattr(pc, comparison)(ref, pa.scalar(limit, pa.int64() if signed else pa.uint64()))


def _nothing(ref: Any) -> Any:
    """Return a test that no row passes."""
    return pc.and_kleene(pc.is_null(ref), pc.is_valid(ref))


def _check_alike(name: str, kind: pa.DataType, value: Any) -> None:
    """Raise ConnectorError for a value that a column of this type cannot hold."""
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    alike = is_number == numbers and isinstance(value, bool) == pa.types.is_boolean(kind)
    if not alike:
        raise _wrong_kind(name, kind, value)
    if pa.types.is_date(kind) and isinstance(value, datetime) and value.time() != time():
        raise ConnectorError(
            f"source.filter: column {name!r} is {kind}, whose values have no time of day, and {value!r} has "
            f"one. Write the date alone."
        )


def _wrong_kind(name: str, kind: pa.DataType, value: Any) -> ConnectorError:
    return ConnectorError(
        f"source.filter: column {name!r} is {kind}, and {value!r} is not such a value. Write one, in quotes "
        f"if it is text."
    )
