"""JSON and text files. A reader sees the old file or the whole new one, never a part."""

from __future__ import annotations

import json
from typing import Any

from connectors.storage import Place, write_whole


def write_json(path: Place, value: Any, *, durable: bool = True, root: Place | None = None) -> None:
    """Write JSON so that a reader sees the old file or the whole new one, never a part.

    Parameters
    ----------
    durable : flush it to disk; a note on progress, which the next one replaces, needs no flush.
    root : a folder above it, beneath which no link is followed, such as the output.
    """
    write_whole(path, to_json(value).encode(), durable=durable, root=root)


def to_json(value: Any) -> str:
    """Format a value as sorted, indented JSON: the same value always gives the same bytes."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def write_text(path: Place, text: str, *, root: Place | None = None) -> None:
    """Write text so that a reader sees the old file or the whole new one, never a part.

    No link beneath ``root``, a folder above it, is followed.
    """
    write_whole(path, text.encode(), root=root)
