"""JSON and text files that a reader sees either old or new, never in part."""

from __future__ import annotations

import json
from typing import Any

from connectors.storage import Place, write_whole


def write_json(path: Place, value: Any) -> None:
    """Write JSON so that a reader sees the old file or the whole new one, never a part."""
    write_text(path, to_json(value))


def to_json(value: Any) -> str:
    """JSON as we write it: sorted, indented, the same to the byte each time."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def write_text(path: Place, text: str) -> None:
    """Write text so that a reader sees the old file or the whole new one, never a part."""
    write_whole(path, text.encode())
