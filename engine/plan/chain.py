"""The chain of operators: its order, its checks, and the columns that every published version has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from connectors.foundation.remedies import add_operator
from engine.core.errors import InputError
from operators.base import (
    CATEGORY,
    DUPLICATE_OF,
    FACTORS,
    GRADIENT,
    GROUP,
    IS_OUTLIER,
    MARK,
    OUTLIER_SOURCE,
    ROW_ID,
    SPLIT,
    WEIGHT,
    Operator,
    OperatorError,
)

CONTRACT: tuple[pa.Field, ...] = (
    pa.field(ROW_ID, pa.int64(), nullable=False),
    pa.field(GROUP, pa.int32(), nullable=False),
    pa.field(IS_OUTLIER, pa.bool_(), nullable=False),
    pa.field(OUTLIER_SOURCE, CATEGORY, nullable=False),
    pa.field(WEIGHT, pa.float32(), nullable=False),
    pa.field(SPLIT, CATEGORY, nullable=False),
)
"""The columns that every published row has in addition to those of the source."""

DESCRIPTIONS = {
    ROW_ID: "Dense, stable position of the row among all rows of the source; the key for joins.",
    GROUP: "Inferred group within the row's class; -1: the row belongs to no group.",
    IS_OUTLIER: "Whether the row is probably corrupt.",
    OUTLIER_SOURCE: "The evidence for is_outlier; empty for other rows.",
    WEIGHT: "Sample weight for training; 0 for dropped rows. Its mean is 1 over the rows that operators have "
    "learnt from: the train rows, or all where learnt_from in the manifest says so.",
    SPLIT: "Part that the row belongs to: train, validation, test or dropped.",
    DUPLICATE_OF: "The row_id of the oldest older row that the row nearly duplicates; empty: of none.",
    "fold": "Fold of the row for cross-validation, from 0; -1: a test row or a dropped one.",
}
"""Content of the published columns. An operator of another package describes its own by the key
``description`` of its field's metadata."""

ENCODE = "encode"
"""Operator that makes the features of every table that has more than vectors; a recipe need not name it."""

CUES = "cues"
"""Operator whose weights the default of ``weights`` multiplies; a recipe need not name it."""

USUAL_ADDER = {
    GROUP: "groups",
    IS_OUTLIER: "outliers",
    OUTLIER_SOURCE: "outliers",
    WEIGHT: "weights",
    SPLIT: "split",
}
USUAL_ADDER |= {"gradient": "gradients", "prediction": "probe", "loss": "probe"}


def contract_columns(manifest: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the entry in a manifest's ``outputs`` of each column of the contract, by its name there.

    Entries are found by their names, which all have the same prefix: that of the first name that ends in
    ``row_id``. A manifest of another release, or a forged one, may lack some or all of them, and may have
    others in between.
    """
    entries: dict[str, Any] = {}
    for entry in manifest.get("outputs", ()):
        entries.setdefault(str(entry["name"]), entry)
    key = next((name for name in entries if name.endswith(ROW_ID)), "")
    names = {field.name: key.removesuffix(ROW_ID) + field.name for field in CONTRACT}
    return {name: entries[published] for name, published in names.items() if key and published in entries}


def wants_verdict(chain: Sequence[Operator[Any]]) -> bool:
    """Return whether operators mark outliers and no operator combines their marks."""
    added = {field.name for operator in chain for field in operator.adds}
    return IS_OUTLIER not in added and any(name.endswith(MARK) for name in added)


def wants_cues(chain: Sequence[Operator[Any]]) -> bool:
    """Return whether an operator builds on ``cues``, which the recipe does not name."""
    named = any(operator.name == CUES for operator in chain)
    return not named and any(CUES in (*operator.uses, *_factors(operator)) for operator in chain)


def _factors(operator: Operator[Any]) -> tuple[str, ...]:
    """Return the names of the operators whose weights this one multiplies unless others are chosen."""
    found: tuple[str, ...] = getattr(operator, "usual_factors", ())
    return found


def resolve_chain(chain: Sequence[Operator[Any]]) -> list[Operator[Any]]:
    """Let every operator adapt to the others. Raises InputError if one cannot work among them."""
    try:
        return [operator.in_chain(chain) for operator in chain]
    except OperatorError as error:
        raise InputError(str(error)) from None


def topological_order(chain: Sequence[Operator[Any]]) -> list[Operator[Any]]:
    """Return the operators ordered so that each comes after those that it reads from.

    The order in the recipe has no influence. Operators whose inputs nobody adds come last;
    ``check_composition`` reports what is missing. `ingest` comes as early as possible, since only the
    operators that make its features may read rows that it rejects.
    """
    waiting, ordered = sorted(chain, key=_ingest_first), list[Operator[Any]]()
    while waiting:
        adders = {field.name for operator in waiting for field in operator.adds}
        names = {operator.name for operator in waiting}
        ready = (o for o in waiting if not adders.intersection(o.requires) and not names.intersection(o.uses))
        ordered.append(next(ready, waiting[0]))
        waiting.remove(ordered[-1])
    return ordered


def _ingest_first(operator: Operator[Any]) -> tuple[bool, str]:
    return operator.name != "ingest", operator.name


def check_composition(chain: Sequence[Operator[Any]]) -> None:
    """Raise InputError if an operator misses an input, or two add the same column."""
    adder: dict[str, str] = {}
    seen: set[str] = set()
    everything = {field.name: operator.name for operator in chain for field in operator.adds}
    for operator in chain:
        _check_inputs(operator, adder, seen, everything)
        for field in operator.adds:
            if field.name in adder:
                raise InputError(
                    f"operators.{operator.name}: adds the column {field.name!r}, which {adder[field.name]} "
                    f"adds already. Remove one of the two."
                )
            adder[field.name] = operator.name
        seen.add(operator.name)
    for field in CONTRACT[1:]:
        if field.name not in adder:
            raise InputError(
                f"operators: nothing adds the column {field.name!r}, which every published row has. "
                f"{add_operator(USUAL_ADDER[field.name])} to the recipe's operators."
            )


def _check_inputs(
    operator: Operator[Any], adder: dict[str, str], seen: set[str], everything: dict[str, str]
) -> None:
    for column in operator.requires:
        if column not in adder:
            fix = _how_to_add(column, everything)
            raise InputError(
                f"operators.{operator.name}: needs the column {column!r}, which no operator adds. {fix}"
            )
    for name in operator.uses:
        if name not in seen:
            raise InputError(
                f"operators.{operator.name}: uses what {name} has fitted, but the recipe has no {name}. "
                f"{add_operator(name)} to its operators."
            )


def _how_to_add(column: str, everything: dict[str, str]) -> str:
    if column == GRADIENT and FACTORS in everything:
        return (
            "Gradients are kept as factors here, which only the method grasp of `groups` can read. Set "
            f"`{everything[FACTORS]}: {{form: flat}}`."
        )
    usual = USUAL_ADDER.get(column)
    return f"{add_operator(usual)}." if usual else f"There are: {', '.join(sorted(everything))}."
