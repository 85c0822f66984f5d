"""Remedies of error messages as arguments of ``rowsieve.curate``, for readers who have no recipe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from connectors.foundation.remedies import missing_operator
from engine.core.errors import InputError
from engine.recipe.recipe import STANDARD_CHAIN
from engine.recipe.yaml_text import parse_yaml

_KEY = re.compile(r"\bsource\.(\w+)(?:: (\[\[.*?\]\]|\[.*?\]|\{.*?\})| to (\w+))?")
"""A key of the recipe's section ``source``, and the value that the message gives it, if any."""
ARGUMENTS = ("label", "features")
"""Keys of ``source`` that are arguments of their own."""


def with_arguments(text: str) -> str:
    """Return a message, followed by the arguments of ``curate`` that set the keys it names, if any.

    Examples
    --------
    >>> with_arguments("Set source.on_error to quarantine.")
    "Set source.on_error to quarantine. In Python: curate(..., source={'on_error': 'quarantine'})."
    """
    values: dict[str, str] = {}
    for key, written, word in _KEY.findall(text):
        value = repr(word) if word else _python_value(written)
        if key != "path" and values.get(key, "...") == "...":
            values[key] = value
    calls = [
        f"curate(..., {key}={value})" if key in ARGUMENTS else f"curate(..., source={{{key!r}: {value}}})"
        for key, value in values.items()
    ]
    return f"{text} In Python: {' or '.join(calls)}." if calls else text


def with_whole_chain(text: str, operators: Mapping[str, Mapping[str, Any]] | None) -> str:
    """Return a message, followed by the standard chain with the given operators where one is missing.

    Parameters
    ----------
    operators
        The operators that ``curate`` was given as a chain; None: none were given.
    """
    missing = missing_operator(text)
    if missing is None or operators is None:
        return text
    chain = {name: dict(operators.get(name) or params) for name, params in STANDARD_CHAIN.items()}
    chain |= {name: dict(params) for name, params in operators.items() if name not in chain}
    if chain["groups"] != STANDARD_CHAIN["groups"]:  # another method, which reads what is missing
        chain.setdefault(missing, {})
    return f"{text} `operators` names the whole chain. The standard one with yours: operators={chain}."


def _python_value(written: str) -> str:
    """Return a value in YAML as Python writes it; `...` for none, and for what is not YAML."""
    try:
        return repr(parse_yaml(written, "")) if written else "..."
    except InputError:
        return "..."
