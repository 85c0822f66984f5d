"""A count with its noun, for reports, the command line and messages. Importing it needs no package."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Format a count with its noun.

    Examples
    --------
    >>> count(1, "row"), count(1797, "row"), count(0, "class")
    ('1 row', '1,797 rows', '0 classes')
    """
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Return the plural of a noun, or of its last word."""
    return noun + ("es" if noun.endswith(("s", "x")) else "s")
