"""Errors of sources and sinks. Their texts never show the passwords and keys of a URI.

This module needs no other package, so that a program which only redacts text starts without pyarrow.
"""

from __future__ import annotations

import re

HIDDEN = "***"
SECRET_WORDS = r"(?:password|passwd|secret|token|credential|signature|api_?key|access_?key|account_?key|sig)"
_USER = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s@'\"]+@")
_QUERY = re.compile(rf"([?&][^=&\s'\"]*{SECRET_WORDS}[^=&\s'\"]*=)[^&\s'\"]+", re.IGNORECASE)


def redact_uris(text: str) -> str:
    """The text without users and passwords of URIs, and without secret query values."""
    return _QUERY.sub(rf"\1{HIDDEN}", _USER.sub(rf"\1{HIDDEN}@", text))


class ConnectorError(Exception):
    """A source or sink cannot be used: the text names the file, row, column, value and the fix.

    Users, passwords and keys in the URIs of the text are hidden.
    """

    def __init__(self, text: str) -> None:
        super().__init__(redact_uris(text))


class CorruptError(ConnectorError):
    """The bytes of a file, or of one of its shards, are not what its format asks for."""
