"""Errors of sources and sinks. Their texts never show the passwords and keys of a URI.

This module needs no other package, so that a program which only redacts text starts without pyarrow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

HIDDEN = "***"
SECRET_WORDS = r"(?:password|passwd|secret|token|credential|signature|api_?key|access_?key|account_?key|sig)"
_QUERY = re.compile(
    rf"([?&#](?=[^=&?#\s'\"]*?{SECRET_WORDS})[^=&?#\s'\"]*+=)(?!\*\*\*)[^&\s'\"]+",
    re.IGNORECASE,
)
"""``?token=...`` of a URI, up to the next ``&``; a query may hold a second ``?``."""
_SETTING = re.compile(
    r"((?<![a-z])(?:(?:pg)?password|passwd|secret|token|credential|signature|sig|(?:api|access|account)[_-]?key)"
    r"(?:s|[_.-][a-z_.-]{1,30})?)"
    r"(=|['\"]\s{0,3}[:=]\s{0,3}(?=['\"]))"
    r"('(?:[^'\\]|\\.)*(?:'|\\?\Z)|\"(?:[^\"\\]|\\.)*(?:\"|\\?\Z)|(?!\*\*\*|\d{1,6}(?![^\s,;&]))[^\s'\",;&]+)",
    re.IGNORECASE | re.DOTALL,
)
"""``password=...`` of a connection string, and ``'token': '...'`` of a mapping, also one cut short."""
_BEARER = re.compile(r"\b(Bearer|Basic) +[A-Za-z0-9._~+/=-]{8,}")
_WORD = re.compile(r"[^\s'\"]+")
_MARKS = ("://", "=", "'", '"', "Bearer", "Basic")
"""A text without any of these holds no secret that the expressions above find."""


def redact_uris(text: str) -> str:
    """Replace users and passwords of URIs, and secret settings, by ``***``. Takes linear time."""
    if not any(mark in text for mark in _MARKS):
        return text
    text = _QUERY.sub(rf"\1{HIDDEN}", _WORD.sub(_redact_user, text))
    text = _SETTING.sub(rf"\1\2{HIDDEN}", text)
    # A setting within a URI's user may have contained the slash that ended the authority.
    return _WORD.sub(_redact_user, _BEARER.sub(rf"\1 {HIDDEN}", text))


def _redact_user(found: re.Match[str]) -> str:
    """Replace the text between ``://`` and ``@``. A password may contain ``/`` and ``@``."""
    first, *rest = found.group().split("://")
    return "://".join([first, *map(_without_user, rest)])


def _without_user(rest: str) -> str:
    authority, slash, path = rest.partition("/")
    if "@" in authority and not (":" in authority.partition("@")[0] and "@" in path):
        return f"{HIDDEN}@{authority.rpartition('@')[2]}{slash}{path}"
    user, mark, host = rest.rpartition("@")
    return f"{HIDDEN}@{host}" if mark and ":" in user.partition("/")[0] else rest


@dataclass(frozen=True)
class OddValue:
    """A value that does not fit the others of its column, for whoever corrects the settings of a source."""

    column: str
    value: object
    expected: str
    """Arrow's name of the type of the other values."""


class ConnectorError(Exception):
    """A source or sink cannot be used. The message names the file, row, column, value and remedy.

    Users, passwords and keys in the URIs of the text are hidden.
    """

    odd_value: OddValue | None
    """The value that the message names, where it is one that does not fit its column."""

    def __init__(self, text: str, odd_value: OddValue | None = None) -> None:
        super().__init__(redact_uris(text))
        self.odd_value = odd_value


class CorruptError(ConnectorError):
    """The bytes of a file, or of one of its shards, are not valid in its format."""
