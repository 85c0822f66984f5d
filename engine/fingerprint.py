"""Fingerprints: what an operator's output depends on, hashed. Same fingerprint, same bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.store import write_json


def digest(value: Any) -> str:
    """Hex sha256 (first 32 digits) of a JSON-able value, independent of key order."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]


class IdentityCache:
    """Remembers the content hash of local files by size and modification time.

    Hashing reads every byte, so a repeated plan over unchanged files would read the dataset again.
    """

    def __init__(self, path: Path, identify: Callable[[str], str]) -> None:
        self._path, self._identify = path, identify
        self._known = self._load()
        self._changed = False

    def __call__(self, path: str) -> str:
        """The file's identity, computed only if the file is new or has changed."""
        if not Path(path).is_file():
            return self._identify(path)
        stat = Path(path).stat()
        stamp = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
        known = self._known.get(path)
        if known is None or any(known.get(key) != value for key, value in stamp.items()):
            known = {**stamp, "identity": self._identify(path)}
            self._known[path] = known
            self._changed = True
        return str(known["identity"])

    def save(self) -> None:
        """Keep what was computed, if the folder exists: planning alone leaves no trace."""
        if self._changed and self._path.parent.is_dir():
            write_json(self._path, self._known)

    def _load(self) -> dict[str, dict[str, Any]]:
        try:
            known: dict[str, dict[str, Any]] = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return known
