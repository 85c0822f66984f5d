"""Redaction of passwords and tokens in errors, logs, manifests, reports and MLflow records."""

from __future__ import annotations

import html
import json
import os
import re
from typing import Any
from urllib.parse import quote, quote_plus

from connectors.errors import HIDDEN, SECRET_WORDS, redact_uris

_PROPERTY = re.compile(
    rf"{SECRET_WORDS}|(?:secret|access|account)-key|connection-string|authorization|session-kwargs",
    re.IGNORECASE,
)
"""Names of a catalog's properties whose values are secret."""
_NAME = re.compile(rf"(?:{SECRET_WORDS}|_key)s?$", re.IGNORECASE)
_ESCAPE = re.compile("%..")
SHORTEST = 8
"""Shortest value of an environment variable that is redacted; shorter ones could be ordinary words."""


def redact(text: str) -> str:
    """Replace users and passwords of URIs, secret query values, and secrets of the environment.

    Secrets of the environment are the values of variables whose names end like ``..._TOKEN``,
    ``..._PASSWORD``, ``..._SECRET`` or ``..._KEY``.
    """
    return _redact(text, _secrets())


def redact_all(value: Any) -> Any:
    """Redact every text in a JSON-able value, including keys.

    Of the properties of a ``catalog``, those whose names say that they are secret are redacted as a whole.
    """
    return _redact_all(value, _secrets())


def _secrets() -> list[str]:
    """Return the values of the environment that are secret by the names of their variables, longest first.

    Each is also returned as HTML, JSON, Python and URIs write it: pages and messages quote what they show.
    """
    found = {value for name, value in os.environ.items() if len(value) >= SHORTEST and _NAME.search(name)}
    quoted = (
        (
            value,
            _as_html(value),
            repr(value)[1:-1],
            json.dumps(value)[1:-1],
            json.dumps(value, ensure_ascii=False)[1:-1],
            *_in_uris(value),
        )
        for value in found
    )
    return sorted({form for forms in quoted for form in forms}, key=lambda form: (-len(form), form))


def _in_uris(text: str) -> set[str]:
    """Return a text as URIs write it, with large and with small digits."""
    forms = {quote(text, errors="replace"), quote(text, safe="", errors="replace")}
    forms.add(quote_plus(text, errors="replace"))
    return forms | {_ESCAPE.sub(lambda found: found.group().lower(), form) for form in forms}


def _as_html(text: str) -> str:
    """Return a text as the templates write it."""
    return html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")


def _redact(text: str, secrets: list[str]) -> str:
    for secret in secrets:  # first, since redacting a setting may remove a part of a secret
        text = text.replace(secret, HIDDEN)
    return redact_uris(text)


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
