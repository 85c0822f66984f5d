"""The process of a run: whether it still runs, judged by the note that it left in the output.

Host name and process number tell nothing in containers, where each run may have the same ones. A process
keeps its note locked instead, which all containers of one system see. Of a run on another system, or where
the note cannot be locked, only its age tells.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from connectors.storage import Place
from engine.storage.lease.base import boot_id

LONGEST_RUN = timedelta(days=30)
"""Time after which a run whose process cannot be seen counts as ended."""

JUST_STARTED = timedelta(seconds=2)
"""Time within which a process may not hold its note yet."""


def process_record() -> dict[str, str | int]:
    """Return what identifies the system that this process runs on, and the process for people."""
    return {"host": os.uname().nodename, "pid": os.getpid(), "kernel": boot_id()}


def hold(note: Place) -> int | None:
    """Lock a note while the returned file is open, at most as long as this process runs; None if not one."""
    handle = _opened(note)
    if handle is not None:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return handle


def has_ended(note: Place, process: Mapping[str, Any], started: str) -> bool:
    """Return whether the process of a note has ended.

    Parameters
    ----------
    note
        The file that the process holds.
    process
        Its :func:`process_record`.
    started
        Its start, an ISO time stamp.

    """
    then = datetime.fromisoformat(started)
    age = datetime.now(UTC) - (then if then.tzinfo else then.replace(tzinfo=UTC))
    if "kernel" not in process:  # a note of an earlier release, which nobody holds
        return age > LONGEST_RUN or _is_gone(process)
    if process["kernel"] == boot_id() and age >= JUST_STARTED and _is_free(note):
        return True
    return age > LONGEST_RUN


def _is_gone(process: Mapping[str, Any]) -> bool:
    """Return whether a process of this host does not run any more."""
    if process.get("host") != os.uname().nodename:
        return False
    try:
        os.kill(int(process["pid"]), 0)
    except ProcessLookupError:
        return True
    except (OSError, KeyError, TypeError, ValueError, OverflowError):
        pass  # it belongs to somebody else, or the note holds no number
    return False


def _is_free(note: Place) -> bool:
    """Return whether nobody holds a note; False where it cannot be locked."""
    handle = _opened(note)
    if handle is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def _opened(note: Place) -> int | None:
    """Open a note, but neither a link nor a pipe that somebody put into its place."""
    if not isinstance(note, Path):
        return None
    with suppress(OSError):
        return os.open(note, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    return None
