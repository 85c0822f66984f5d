"""The nearest known name, for messages about a name that does not exist. The engine uses it too.

Connectors have their own (``connectors.errors.nearest``), because they import nothing of the operators.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the closest known name, or an empty text.

    Examples
    --------
    >>> nearest("grapes", ["grasp", "kmeans"])
    " Did you mean 'grasp'?"
    """
    names = list(known)
    same = [other for other in names if other.casefold() == name.casefold()]
    found = same or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f" Did you mean {found[0]!r}?" if found else ""
