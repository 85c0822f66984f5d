"""Entry points of the installed packages, as ``importlib.metadata`` finds them, remembered by a process.

The connectors, operators, methods and parts of a training are looked up at every run, and each look reads the
entry points of every installed package: 6 ms with 300 packages.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from importlib.metadata import EntryPoint
from importlib.metadata import entry_points as read_entry_points

Stamp = tuple[int, int, int] | None
"""Device, inode and time of change of a folder, which changes with every package that is installed in it."""


def entry_points(*, group: str, name: str | None = None) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, or those of one name in it.

    A package that is installed or removed while the process runs counts from the next call on.
    """
    found = _of_group(group, tuple((path, _stamp(path or ".")) for path in sys.path))
    return found if name is None else tuple(point for point in found if point.name == name)


@lru_cache(maxsize=32)
def _of_group(group: str, folders: tuple[tuple[str, Stamp], ...]) -> tuple[EntryPoint, ...]:
    """Return a group's entry points; ``folders`` of ``sys.path`` tell one state of them from another."""
    return tuple(read_entry_points(group=group))


def _stamp(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
