"""Text for terminals: names of files, columns and groups are untrusted, and may hold control sequences."""

from __future__ import annotations

import json
import logging
import math
import re
import warnings
from datetime import UTC, datetime
from typing import Any

from engine.core.redaction import redact

_CONTROLS = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
"""Control characters except tab and line end, marks that turn the direction of text, lone surrogates, and
what no font draws, such as tags, by which a name may carry text that nobody sees."""
INFINITIES = ("-Infinity", "Infinity")
_CONTROL = re.compile(_CONTROLS)
_UNLESS_COLOUR = re.compile(rf"(\x1b\[[0-9;]{{0,20}}m)|{_CONTROLS}")


def printable(text: str, *, colours: bool = False) -> str:
    r"""Write control characters as ``\x1b``, so that no text moves the cursor or hides a part of itself.

    With ``colours``, sequences that only change colours stay, as they stand in the logs of Ray.

    Examples
    --------
    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    if colours:
        return _UNLESS_COLOUR.sub(lambda found: found[1] or _escaped(found[0]), text)
    return _CONTROL.sub(lambda found: _escaped(found[0]), text)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON without control characters. Values of other types are written as texts.

    Numbers that JSON lacks are as :func:`finite` returns them.
    """
    text = json.dumps(finite(value), indent=indent, ensure_ascii=False, default=str, allow_nan=False)
    return _CONTROL.sub(lambda found: json.dumps(found[0])[1:-1], text)


def finite(value: Any) -> Any:
    """Return a value without the numbers that JSON lacks, at any depth: NaN becomes None, infinity a text.

    Examples
    --------
    >>> finite({"x": [1.0, float("nan"), float("-inf")]})
    {'x': [1.0, None, '-Infinity']}
    """
    if isinstance(value, float):
        return None if math.isnan(value) else value if math.isfinite(value) else INFINITIES[value > 0]
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    return [finite(entry) for entry in value] if isinstance(value, list | tuple) else value


def when(seconds: float) -> str:
    """Format seconds since the epoch as ISO 8601 in UTC; times beyond the year 9999 as a number.

    Examples
    --------
    >>> when(0), when(1e20)
    ('1970-01-01T00:00:00+00:00', '1e+20 s after 1970')
    """
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s after 1970"


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode()


class SafeMessages(logging.Filter):
    """Takes secrets, control characters and line ends, which could forge a message, out of log messages."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the message of a record; the record itself always passes."""
        record.msg, record.args = printable(redact(record.getMessage())).replace("\n", r"\n"), ()
        return True


def format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Format a warning as ``warnings.formatwarning`` does, without secrets and control characters.

    Libraries repeat names and values of rows in warnings, such as matplotlib for a sign that its font lacks.
    """
    return printable(redact(_format_warning(message, category, filename, lineno, line)))


_format_warning = warnings.formatwarning
SAFE_MESSAGES = SafeMessages()
