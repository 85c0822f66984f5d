"""Redaction of passwords and tokens in errors, logs, manifests, reports and MLflow records."""

from __future__ import annotations

import os
import re
from typing import Any

from connectors.errors import HIDDEN, SECRET_WORDS, redact_uris

_PROPERTY = re.compile(
    rf"{SECRET_WORDS}|(?:secret|access|account)-key|connection-string|authorization|session-kwargs",
    re.IGNORECASE,
)
"""Names of a catalog's properties whose values are secret."""
_NAME = re.compile(rf"{SECRET_WORDS}$", re.IGNORECASE)
SHORTEST = 8
"""Shortest value of an environment variable that is redacted; shorter ones could be ordinary words."""


def redact(text: str) -> str:
    """Replace users and passwords of URIs, secret query values, and secrets of the environment.

    Secrets of the environment are the values of variables whose names end like ``..._TOKEN``,
    ``..._PASSWORD`` or ``..._ACCESS_KEY``.
    """
    return _redact(text, _secrets())


def redact_all(value: Any) -> Any:
    """Redact every text in a JSON-able value, including keys.

    Of the properties of a ``catalog``, those whose names say that they are secret are redacted as a whole.
    """
    return _redact_all(value, _secrets())


def _secrets() -> list[str]:
    """Return the values of the environment that are secret by the names of their variables."""
    return [value for name, value in os.environ.items() if len(value) >= SHORTEST and _NAME.search(name)]


def _redact(text: str, secrets: list[str]) -> str:
    text = redact_uris(text)
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def _redact_all(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, str):
        return _redact(value, secrets)
    if isinstance(value, dict):
        return {
            _redact(str(key), secrets): (
                _redact_catalog(entry, secrets) if key == "catalog" else _redact_all(entry, secrets)
            )
            for key, entry in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_redact_all(entry, secrets) for entry in value]
    return value


def is_secret(name: str) -> bool:
    """Return whether the name of a catalog's property says that its value is secret."""
    return _PROPERTY.search(name) is not None


def _redact_catalog(value: Any, secrets: list[str]) -> Any:
    if not isinstance(value, dict):
        return _redact_all(value, secrets)
    return {
        str(key): HIDDEN if is_secret(str(key)) else _redact_all(entry, secrets)
        for key, entry in value.items()
    }
