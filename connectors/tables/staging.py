"""Folders that an export writes beside its place: put there in one step, and removed once abandoned."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import time
import uuid
from pathlib import Path

from connectors.storage import remove_tree

ABANDONED_SECONDS = 24 * 3600
"""Time without a change after which the export that wrote a staged folder has ended."""
STAGED = r"\.[0-9a-f]{32}(\.[0-9a-f]{32}\.old)?"
"""Ends the name of a staged folder."""
RENAME_EXCHANGE, WORKING_DIRECTORY = 2, -100
"""Flag, and the place from which relative paths start, of Linux's ``renameat2``."""
UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def staged_name(name: str) -> str:
    """Return a new name for a staged folder, which readers of the folder above leave out."""
    return f"_{name}.{uuid.uuid4().hex}"


def replace_folder(staged: Path, folder: Path) -> None:
    """Put a staged folder in the place of one that is there, which then has a name that begins as its own.

    Readers find one of the two at any time on Linux, where the file system can exchange them. Elsewhere there
    is a moment between two renames. Raises OSError.
    """
    if _exchange(staged, folder):
        return
    old = staged.with_name(f"{staged.name}.{uuid.uuid4().hex}.old")
    folder.rename(old)
    try:
        staged.rename(folder)
    except OSError:
        if not folder.exists():
            old.rename(folder)
        raise


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; False where the system cannot. Raises OSError."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    paths = (os.fsencode(one.absolute()), os.fsencode(other.absolute()))
    if rename(WORKING_DIRECTORY, paths[0], WORKING_DIRECTORY, paths[1], RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(other))


def remove_abandoned(folder: Path, name: str = "") -> None:
    """Remove staged folders whose exports have died; with ``name``, those whose own names begin so."""
    pattern = re.compile(rf"_{re.escape(name)}.+{STAGED}")
    for path in folder.iterdir():
        is_staged = pattern.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
        if is_staged and time.time() - _last_change(path) > ABANDONED_SECONDS:
            remove_tree(path)


def _last_change(folder: Path) -> float:
    """Return the time of the last change in a folder; now where it cannot be told."""
    try:
        return max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))
    except OSError:
        return time.time()
