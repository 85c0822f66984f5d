"""Checks that paths in a local folder lead to files of that folder, with symbolic links followed.

A folder or table that somebody else wrote may hold a link to a file elsewhere, or a pipe for which a reader
would wait for ever. Sources call these checks before they open a file.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from connectors.base import ConnectorError


def check_links(folder: str, *, below: str = "", deep: bool = True, hidden: bool = False) -> None:
    """Raise ConnectorError where a symbolic link in a local folder leads out of it.

    Parameters
    ----------
    below : part of the folder to check, itself included; by default all of it.
    deep : whether to check subfolders.
    hidden : whether to check names that start with ``.`` or ``_`` too, as tables have them, and to refuse
        pipes and devices, for which a library that reads the table would wait for ever. By default both are
        skipped, as they are when files are listed.
    """
    waiting = [os.path.join(folder, below) if below else folder]
    if below:
        check_inside(folder, waiting[0])
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            shown = [entry for entry in entries if hidden or entry.name[0] not in "._"]
        for entry in shown:
            if hidden:
                check_regular(folder, entry.path)
            elif entry.is_symlink():
                check_inside(folder, entry.path)
        if deep:
            waiting += [entry.path for entry in shown if entry.is_dir(follow_symlinks=False)]


def check_inside(folder: str, path: str) -> None:
    """Raise ConnectorError where a local path, with its links followed, does not lie in ``folder``."""
    check_plain(path)
    base, target = os.path.realpath(folder), os.path.realpath(path)
    if os.path.commonpath([base, target]) != base:
        raise ConnectorError(
            f"{path} is a symbolic link to {target}, which lies outside of {folder}. Copy the file into the "
            f"folder, or name its own place in source.path."
        )


def check_plain(path: str) -> None:
    """Raise ConnectorError for a path with the character NUL, which no file has."""
    if "\0" in path:
        raise ConnectorError(f"{path!r} is not a path: it holds the character NUL. Correct what names it.")


def check_regular(folder: str, path: str) -> None:
    """Raise ConnectorError if a local path, with its links followed, is outside of ``folder``, a pipe or a
    device.

    A path that does not exist is accepted.
    """
    check_inside(folder, path)
    check_kind(path)


def check_kind(path: str) -> None:
    """Raise ConnectorError if a local path or ``file:`` URI, links followed, is a pipe or a device."""
    check_plain(path)
    bare = path.removeprefix("file://").removeprefix("file:")
    with suppress(FileNotFoundError, NotADirectoryError):
        mode = os.stat(bare).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise ConnectorError(f"{path} is a pipe or a device, not a file. Remove it.")
