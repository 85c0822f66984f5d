"""Parts of messages: the nearest known name, the first of many names, texts and values in few characters."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the closest known name, or an empty text.

    Examples
    --------
    >>> nearest("Grapes", ["grasp", "kmeans"])
    " Did you mean 'grasp'?"
    """
    found = closest(name, known)
    return "" if found is None else f" Did you mean {found!r}?"


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to ``name``, ignoring case, or None."""
    names: dict[str, str] = {}
    for other in known:
        names.setdefault(other.casefold(), other)
    found = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=0.6)
    return names[found[0]] if found else None


def shorten(value: Any, most: int = 80) -> str:
    """Return a value as an error text shows it, in at most ``most`` characters."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def cut(text: str, most: int) -> str:
    """Return a text in at most ``most`` characters; a longer one ends in an ellipsis.

    Examples
    --------
    >>> cut("education", 5), cut("age", 5)
    ('educ…', 'age')
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def first_of(names: Sequence[str], most: int, between: str = ", ") -> str:
    """Return the first ``most`` names on one line, and the number of the others.

    Examples
    --------
    >>> first_of(["a", "b", "c", "d"], 2), first_of(["a", "b"], 2)
    ('a, b and 2 more', 'a, b')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more
