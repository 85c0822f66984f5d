"""Keeps passwords and keys that stand in a URI out of messages."""

from __future__ import annotations

import re

HIDDEN = "***"
WORD = r"(?:password|passwd|secret|token|credential|signature|api_?key|access_?key|account_?key|sig)"
_USER = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s@'\"]+@")
_QUERY = re.compile(rf"([?&][^=&\s'\"]*{WORD}[^=&\s'\"]*=)[^&\s'\"]+", re.IGNORECASE)


def hide(text: str) -> str:
    """The text without users and passwords of URIs, and without secret query values."""
    return _QUERY.sub(rf"\1{HIDDEN}", _USER.sub(rf"\1{HIDDEN}@", text))
