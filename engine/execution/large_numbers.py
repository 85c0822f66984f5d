"""Names the numbers of an operator's parameters that may ask for more memory than there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from operators.base import Operator

LEAST, MOST_NAMED = 1000, 3
"""Smallest number that is named, and how many are."""


def large_numbers(operator: Operator[Any]) -> str:
    """Return the largest whole numbers that the recipe gives an operator, as in ``dim: 2,000,000``."""
    given = operator.params.model_dump(exclude_unset=True, exclude={"resources"})
    found = sorted(_numbers(given), key=lambda entry: -entry[1])[:MOST_NAMED]
    return ", ".join(f"{key}: {value:,}" for key, value in found if value >= LEAST)


def _numbers(value: Any, key: str = "") -> Iterator[tuple[str, int]]:
    if isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _numbers(entry, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _numbers(entry, key)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield key, value
