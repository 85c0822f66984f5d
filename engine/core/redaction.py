"""Keeps passwords and tokens out of what people read: errors, logs, MLflow, manifests, reports."""

from __future__ import annotations

import os
import re
from typing import Any

from connectors.errors import HIDDEN, SECRET_WORDS, redact_uris

_NAME = re.compile(rf"{SECRET_WORDS}$", re.IGNORECASE)
SHORTEST = 8
"""A shorter value of a variable is no secret worth the name, and would hide ordinary words."""


def redact(text: str) -> str:
    """The text without users and passwords of URIs, secret query values, and secrets of the environment.

    The latter are values of variables with names such as ``..._TOKEN``, ``..._PASSWORD``, ``..._ACCESS_KEY``.
    """
    text = redact_uris(text)
    for name, value in os.environ.items():
        if len(value) >= SHORTEST and _NAME.search(name) and value in text:
            text = text.replace(value, HIDDEN)
    return text


def redact_all(value: Any) -> Any:
    """The same for every text in a JSON-able value, keys included."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(str(key)): redact_all(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_all(entry) for entry in value]
    return value
