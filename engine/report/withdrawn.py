"""The note on a version's report that the version was withdrawn, written into the page that is there."""

from __future__ import annotations

import html
import re

from connectors.base import ConnectorError
from connectors.storage import Place, read_whole
from engine.core.json_files import write_text
from engine.core.redaction import redact

MAX_BYTES = 256 * 2**20
"""Largest report that is changed."""
BODY = "<body>\n"
NOTE = '<p class="note" id="withdrawn" role="alert"><strong>This version was withdrawn.</strong> {why}</p>\n'
_NOTE = re.compile(re.escape(BODY) + re.escape(NOTE).replace(re.escape("{why}"), "[^<\n]*"))


def mark_report(output: Place, version: str, why: str) -> None:
    """Say at the top of a version's report why it was withdrawn; with an empty ``why``, remove the note.

    Nothing is done where there is no report, or the file is not one of Rowsieve. The note taken away leaves
    the page as it was, byte for byte.
    """
    place = output / "reports" / f"{version}.html"
    try:
        page = read_whole(place, root=output, max_bytes=MAX_BYTES).decode()
    except (OSError, ConnectorError, UnicodeDecodeError):
        return
    note = NOTE.format(why=html.escape(redact(why))) if why else ""
    plain = _NOTE.sub(lambda _: BODY, page, count=1)
    marked = plain.replace(BODY, BODY + note, 1)
    if marked != page:
        write_text(place, marked, root=output)
