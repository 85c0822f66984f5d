"""Errors that a user can act on, with the exit codes of the command line."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import socket
from contextlib import suppress
from enum import IntEnum
from typing import ClassVar

from engine.core.redaction import redact


class Exit(IntEnum):
    """Exit codes of ``rowsieve``."""

    DONE = 0
    CRASH = 1
    BAD_INPUT = 2
    BUDGET = 3
    INFEASIBLE = 4
    LOCKED = 5


class RowsieveError(Exception):
    """Base class. The message is one paragraph that names the place and the remedy."""

    exit_code: ClassVar[Exit] = Exit.CRASH

    def __init__(self, *args: object) -> None:
        """Keep the message without the users, passwords and keys that it may repeat."""
        super().__init__(*(redact(arg) if isinstance(arg, str) else arg for arg in args))


class InputError(RowsieveError):
    """The recipe or the data cannot be used."""

    exit_code = Exit.BAD_INPUT


class BudgetError(RowsieveError):
    """The quarantined rows exceed ``source.max_error_rate``."""

    exit_code = Exit.BUDGET


class InfeasibleError(RowsieveError):
    """The cluster lacks resources that an operator needs."""

    exit_code = Exit.INFEASIBLE


class LockedError(RowsieveError):
    """Another run is writing to the same output."""

    exit_code = Exit.LOCKED


REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO}
"""Numbers of errors whose reason lies outside the program: rights, space, a store that does not serve."""


OPEN_FILES = (errno.EMFILE, errno.ENFILE)
"""Numbers of errors of a process, or a host, that has as many files open as it may."""


def is_refused(error: BaseException) -> bool:
    """Return whether the operating system or an object store refuses a file or an object."""
    if not isinstance(error, OSError):
        return False
    return error.errno in OPEN_FILES or (error.errno in REFUSED and bool(error.filename))


FULL = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of errors of a disk or a quota without room."""


def system_error(error: OSError, output: str = "") -> RowsieveError:
    """Turn an error of the operating system (a full disk, a missing permission) into one with a remedy.

    That of a full disk names the host, which may be a worker of a cluster, and the room of the folder
    ``output``, since not every error names the file that was written.
    """
    reason = f"{error.strerror}: {error.filename}" if error.strerror and error.filename else str(error)
    if error.errno in FULL or NO_FOLDER in str(error):
        return InputError(
            f"A disk of host {socket.gethostname()} is full: {reason}.{_room(error, output)} Free "
            f"space there, or choose another output.path or, for temporary files, another TMPDIR. Committed "
            f"work is kept; the same command continues from there."
        )
    if error.errno in OPEN_FILES:
        return InfeasibleError(
            f"Too many files are open on host {socket.gethostname()}: {reason}. Raise the limit there "
            f"(`ulimit -n`, now {_file_limit()}). Committed work is kept; the same command continues from "
            "there."
        )
    who = "object store" if "://" in str(error.filename) else "operating system"
    return InputError(
        f"The {who} refuses: {reason}. Free space, correct the permissions, or choose another "
        f"output.path. Committed work is kept; the same command continues from there."
    )


def _file_limit() -> int:
    """Return how many files this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


NO_FOLDER = "No usable temporary directory found"
"""Text of ``tempfile`` where no folder takes a file, as on a host whose disk is full."""


def _room(error: OSError, output: str) -> str:
    """Return a sentence with the free space of the folders where a run writes on this host."""
    folders = [os.path.dirname(os.fsdecode(error.filename))] if error.filename else []
    folders += [output, os.environ.get("TMPDIR", "/tmp"), os.getcwd()]  # noqa: S108
    said = {}
    for folder in folders:
        with suppress(OSError):
            usage = shutil.disk_usage(folder)
            said[folder] = f"{usage.free >> 20:,} of {usage.total >> 20:,} MiB are free in {folder}"
    return f" {', '.join(said.values())}." if said else ""


MEMORY_WORDS = (
    "can't allocate memory",
    "bad_alloc",
    "out of memory",
    "array is too big",
    "Maximum allowed dimension exceeded",
    "can't start new thread",
)
"""Texts of Python, torch, C++ and NumPy where a number asks for more memory than there is.

The stack of a thread takes memory. A limit on the number of threads has the same text, and then the system's
figure has to be raised too: ``out_of_memory`` names both.
"""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error or its cause says that memory ran out, in the words of Python or a library."""
    said = str(error) if isinstance(error, RuntimeError | ValueError) else ""
    if isinstance(error, MemoryError) or any(words in said for words in MEMORY_WORDS):
        return True
    return error.__cause__ is not None and is_out_of_memory(error.__cause__)


def out_of_memory(
    error: BaseException, place: str = "", given: str = "", allowed: int | None = None
) -> InfeasibleError:
    """Turn an error of ``is_out_of_memory`` into one with a remedy.

    Parameters
    ----------
    place : what was done, such as ``operators.probe: ``.
    given : numbers of the recipe that may ask for much memory, such as ``dim: 2,000,000``.
    allowed : bytes that the installation's policy allows an operator.
    """
    keys = f"Lower {given}, or source.shard_bytes" if given else "Lower the recipe's large numbers"
    reason = one_line(error) if isinstance(error, Exception) else type(error).__name__
    more = "run where there is more memory"
    if "new thread" in reason:
        reason += " (its stack takes memory; a limit of threads, ulimit -u, has the same text)"
    if allowed is not None:
        reason += f". An operator may take {allowed >> 20:,} MiB on this installation"
        more = "ask its administrator to raise ROWSIEVE_MAX_OPERATOR_BYTES"
    return InfeasibleError(
        f"{place}memory ran out: {reason}. {keys}, or {more}. Committed work is kept; the same command "
        "continues from there."
    )


def one_line(error: Exception, most: int = 300) -> str:
    """Return the text of an error on one line of at most ``most`` characters, without a full stop at its end.

    Secrets are removed before it is cut. An error without a text is named by its class.
    """
    return redact(" ".join(str(error).split()))[:most].rstrip(". ") or type(error).__name__
