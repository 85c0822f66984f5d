"""Names of columns: none missing, none twice, and the same in all files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count

import pyarrow as pa

from connectors.errors import ConnectorError
from connectors.foundation.messages import nearest


def number_repeated(names: Sequence[str]) -> list[str]:
    """Return names as pandas tells them apart: x, x.1, x.2; a number that is taken is left out."""
    found: dict[str, None] = {}
    given, numbers = frozenset(names), dict[str, Iterator[int]]()
    for name in names:
        one = name
        while one in found or (one != name and one in given):
            one = f"{name}.{next(numbers.setdefault(name, count(1)))}"
        found[one] = None
    return [*found]


def number_if_renamed(names: Sequence[str], renamed: Sequence[str]) -> list[str]:
    """Return the names of a file's columns, numbered where ``source.rename`` names all that come later.

    ``renamed`` are the old names of ``source.rename``, such as ``x.1`` for the second column ``x``.
    """
    numbered = number_repeated(names)
    return numbered if {*numbered} - {*names} <= {*renamed} else [*names]


def rename_remedy(names: Sequence[str]) -> str:
    """Return the remedy for columns of one name."""
    later = [new for old, new in zip(names, number_repeated(names), strict=True) if old != new]
    pairs = ", ".join(f"{name}: NAME" for name in later[:3]) + (", ..." if len(later) > 3 else "")
    return f"Name the later ones with source.rename: {{{pairs}}}"


def with_names(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return the schema with other names for its columns."""
    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])


def check_names(path: str, names: Sequence[str], or_else: str = "", key: str = "") -> None:
    """Raise ConnectorError if a column has no name or two have the same.

    ``or_else`` are the remedies for two of one name, and ``key`` is the setting that names those without one.
    """
    twice = [name for name, times in Counter(names).items() if times > 1 and (name or not key)]
    if twice:
        places = ", ".join(str(i + 1) for i, name in enumerate(names) if name == twice[0])
        raise ConnectorError(
            f"{path}: the column name {twice[0]!r} is there more than once (columns {places})"
            f"{_also(twice[1:])}. {or_else or 'Rename one of them'}."
        )
    if "" in names:
        raise ConnectorError(
            f"{path}: column {names.index('') + 1} has no name. Name it in the header, or drop it "
            f"(pandas writes such an index column unless told index=False)"
            f"{f'; {key} numbers it' if key else ''}."
        )


def _also(names: Sequence[str]) -> str:
    return f", as {'are' if len(names) > 1 else 'is'} {', '.join(map(repr, names[:5]))}" if names else ""


def check_same_names(path: str, names: Sequence[str], first_path: str, first_names: Sequence[str]) -> None:
    """Raise ConnectorError if two files' column names differ; their order may."""
    held, first_held = frozenset(names), frozenset(first_names)
    for name in first_names:
        if name not in held:
            raise ConnectorError(
                f"{path} has no column {name!r}, which {first_path} has.{nearest(name, names)} "
                f"Give all files the same columns, or narrow source.path."
            )
    for name in names:
        if name not in first_held:
            raise ConnectorError(
                f"{path} has a column {name!r}, which {first_path} has not.{nearest(name, first_names)} "
                f"Give all files the same columns, or narrow source.path."
            )
