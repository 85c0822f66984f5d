"""Content hashes of local files, remembered by size, times and inode."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connectors.storage import Place
from engine.core.json_files import read_json, write_json


@dataclass(frozen=True)
class IdentityCache:
    """Remembers the content hash of local files by size, modification time, and number and time of the inode.

    Hashing reads every byte, so a repeated plan over unchanged files would read the dataset again. A file may
    be replaced by another of the same size and modification time, as by ``rsync -t``; nobody can set the time
    of the inode. A file that was renamed or touched is hashed once more.
    """

    path: Place
    """File that keeps the hashes between plans."""
    identify: Callable[[str], str]
    """Computes the content hash of a file."""

    def identities(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the identity of each local file; computed only for files that are new or have changed.

        Whenever there are such files, those that are gone are forgotten.
        """
        known = self._load()
        fresh = {path: self._entry(path, known.get(path)) for path in paths}
        changed = any(known.get(path) != entry for path, entry in fresh.items())
        with suppress(OSError):  # without the cache the files are only hashed again
            # Planning writes nothing: the first run creates the folder.
            if changed and self.path.parent.is_dir():
                there = {path: entry for path, entry in known.items() if os.path.exists(path)}
                write_json(self.path, there | fresh)
        return {path: str(entry["identity"]) for path, entry in fresh.items()}

    def _entry(self, path: str, known: dict[str, Any] | None) -> dict[str, Any]:
        stat = Path(path).stat()
        state = {
            "size": stat.st_size,
            "mtime_ns": stat.st_mtime_ns,
            "ctime_ns": stat.st_ctime_ns,
            "inode": stat.st_ino,
        }
        same = isinstance(known, dict) and all(known.get(key) == value for key, value in state.items())
        if same and known and isinstance(known.get("identity"), str):
            return known
        return {**state, "identity": self.identify(path)}

    def _load(self) -> dict[str, dict[str, Any]]:
        try:
            known = read_json(self.path)
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}
