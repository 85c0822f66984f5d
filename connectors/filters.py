"""Row filters of a recipe, which are values and not code; they apply to tables, statistics and folder
names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
        """Return the filter as an expression for pyarrow's datasets. Raises ConnectorError."""
        return self._test(schema, {name: pc.field(name) for name in self.columns})

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
    return name, operation, tuple(operand) if several else operand


def _clause(schema: pa.Schema, refs: Mapping[str, Any], name: str, operation: str, value: Any) -> Any:
    """Return a mask or an expression, as ``refs[name]`` is a column or a reference to one."""
    ref, kind = refs[name], schema.field(name).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        ref = ref.cast(kind)
    if value is None:
        return pc.is_null(ref) if COMPARISONS[operation] == "equal" else pc.is_valid(ref)
    if operation in COMPARISONS:
        return getattr(pc, COMPARISONS[operation])(ref, _literal(name, kind, value))
    literals = [_literal(name, kind, one) for one in value]
    tests = (pc.equal(ref, literal) for literal in literals)
    found = joined(pc.or_kleene, tests) if literals else pc.and_kleene(pc.is_null(ref), pc.is_valid(ref))
    return found if operation == "in" else pc.and_kleene(pc.invert(found), pc.is_valid(ref))


def _literal(name: str, kind: pa.DataType, value: Any) -> pa.Scalar:
    """Return the value as the column's type; as it is where a number meets a column of other numbers."""
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    alike = is_number == numbers and isinstance(value, bool) == pa.types.is_boolean(kind)
    try:
        if not alike:
            raise pa.ArrowInvalid("another kind of value")
        return pa.scalar(value) if numbers else pa.scalar(value).cast(kind)
    except pa.ArrowException as error:
        raise ConnectorError(
            f"source.filter: column {name!r} is {kind}, and {value!r} is not such a value. Write one, "
            f"in quotes if it is text."
        ) from error
