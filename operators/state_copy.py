"""Copies of state folders, which follow no link."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from operators.errors import OperatorError

COPY_BYTES = 2**20
"""Bytes of a file that are copied at a time."""


def copy_state(source: Path, target: Path, leave_out: Sequence[str] = (), *, link: bool = False) -> None:
    """Copy a state folder, except names that match a pattern in ``leave_out`` (such as ``labels-*``).

    A state may lie in a shared output, and its copy in one again: no link is followed, as it could lead to a
    file that only this user may read. Raises OperatorError, which names it, for a link or a pipe.

    Parameters
    ----------
    source, target : the folders.
    leave_out : patterns of names.
    link : let both folders share the files (hard links) where the disk can, so that the cost does not grow
        with their size. Only for an operator that never writes into a file of its state again.
    """
    if source.is_symlink():
        raise OperatorError(f"{source} is a link. Remove it, and run the recipe again.")
    ignored = shutil.ignore_patterns(*leave_out)
    for folder, folders, files, handle in os.fwalk(source):
        left_out, here = ignored(folder, [*folders, *files]), Path(folder)
        copy = target / here.relative_to(source)
        copy.mkdir(parents=True, exist_ok=True)
        for name in [*folders, *files]:
            if name not in left_out:
                _copy_entry(handle, here / name, copy / name, link)
        folders[:] = [name for name in folders if name not in left_out]


def _copy_entry(parent: int, source: Path, target: Path, link: bool) -> None:
    """Copy or link the entry ``source`` of the open folder ``parent`` unless it is a folder itself."""
    mode = os.stat(source.name, dir_fd=parent, follow_symlinks=False).st_mode
    if stat.S_ISDIR(mode):
        return
    if stat.S_ISREG(mode):
        if link and _linked(parent, source.name, target):
            return
        target.unlink(missing_ok=True)  # a hard link of an earlier copy would write into its source
        handle = os.open(source.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
        with open(handle, "rb") as opened, target.open("wb") as copy:
            shutil.copyfileobj(opened, copy, COPY_BYTES)
        return
    raise OperatorError(f"{source} is a link or no regular file. Remove it, and run the recipe again.")


def _linked(parent: int, name: str, target: Path) -> bool:
    """Make ``target`` a hard link to a file of the open folder ``parent``; return whether that was possible.

    A link is not possible across disks, on some file systems, and to a file of another user. A link to a file
    that somebody has meanwhile replaced by something else than a regular file is removed again.
    """
    try:
        os.link(name, target, src_dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    if stat.S_ISREG(target.lstat().st_mode):
        return True
    target.unlink()
    return False
