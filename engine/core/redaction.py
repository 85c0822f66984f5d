"""Redaction of passwords and tokens in errors, logs, manifests, reports and MLflow records."""

from __future__ import annotations

import os
import re
from typing import Any

from connectors.errors import HIDDEN, SECRET_WORDS, redact_uris

_NAME = re.compile(rf"{SECRET_WORDS}$", re.IGNORECASE)
SHORTEST = 8
"""Shortest value of an environment variable that is redacted; shorter ones could be ordinary words."""


def redact(text: str) -> str:
    """Replace users and passwords of URIs, secret query values, and secrets of the environment.

    Secrets of the environment are the values of variables whose names end like ``..._TOKEN``,
    ``..._PASSWORD`` or ``..._ACCESS_KEY``.
    """
    text = redact_uris(text)
    for name, value in os.environ.items():
        if len(value) >= SHORTEST and _NAME.search(name) and value in text:
            text = text.replace(value, HIDDEN)
    return text


def redact_all(value: Any) -> Any:
    """Redact every text in a JSON-able value, including keys."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(str(key)): redact_all(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_all(entry) for entry in value]
    return value
