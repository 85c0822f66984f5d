"""Names of parameters by a recipe's regular expression, in linear time.

A recipe is not trusted, and Python's ``re`` tries every way of splitting a name among nested groups, which
may take for ever. RE2, which Arrow has, reads a name once; it knows no look-around and no back references.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc


def found_in(names: Iterable[str], pattern: str) -> list[str]:
    """Return the names in which RE2 finds the pattern. Raises ArrowInvalid for a faulty pattern."""
    known = pa.array([*names, ""], pa.string())  # never empty: Arrow would not look at the pattern
    return [name for name in known.filter(pc.match_substring_regex(known, pattern)).to_pylist() if name]


def exactly(names: Iterable[str]) -> str:
    """Return an expression that is found in these names and no others, for the kernels."""
    return f"^(?:{'|'.join(re.escape(name) for name in sorted(names))})$"
