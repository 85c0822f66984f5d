"""Remedies in terms of a recipe that messages end with, and what they are for readers who have no recipe.

A message is written once, for the writer of a recipe. `rowsieve init` and `rowsieve predict` are given a path
as an argument, and `rowsieve.curate` has arguments in place of keys; they adapt the message. The words that
they look for stand here, beside the functions that look for them.
"""

from __future__ import annotations

import re

CORRECT_PATH = "Correct source.path"
NAME_FILES = "Point source.path at files"
ADD_OPERATOR = "Add `{name}: {{}}`"
_MISSING_OPERATOR = re.compile(re.escape(ADD_OPERATOR.format(name="NAME")).replace("NAME", r"(\w+)"))


def add_operator(name: str) -> str:
    """Return the remedy where a recipe lacks an operator.

    Examples
    --------
    >>> add_operator("probe")
    'Add `probe: {}`'
    """
    return ADD_OPERATOR.format(name=name)


def missing_operator(text: str) -> str | None:
    """Return the first operator that a message says to add; None if it names none.

    Examples
    --------
    >>> missing_operator(f"The recipe has no probe. {add_operator('probe')}.")
    'probe'
    """
    found = _MISSING_OPERATOR.search(text)
    return found[1] if found else None


def without_recipe(text: str) -> str:
    """Return a connector's message with remedies for a path that was given as an argument, in no recipe.

    Examples
    --------
    >>> without_recipe(f"a.csv does not exist. {CORRECT_PATH}.")
    'a.csv does not exist. Correct the path.'
    """
    return text.replace(CORRECT_PATH, "Correct the path").replace(NAME_FILES, "Name files")
