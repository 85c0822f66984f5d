"""Limits the memory that an operator takes in one process, as the policy of the installation says."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STATUS = Path("/proc/self/status")
FIELD = "VmData:"


class _State:
    """State of this process: whether a limit holds now. The first one holds for the blocks within it."""

    limited = False


@contextmanager
def limited_memory(most: int | None) -> Iterator[None]:
    """Let a block take at most ``most`` bytes beyond what the process has; more is a MemoryError.

    Memory counts that the process may write to, used or not, with the stacks of its threads: Linux's
    ``RLIMIT_DATA``. Nothing is limited for None, and elsewhere than on Linux.
    """
    taken = _taken()
    if most is None or taken is None or _State.limited:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    ceilings = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    _State.limited = True
    resource.setrlimit(resource.RLIMIT_DATA, (min([taken + most, *ceilings]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        _State.limited = False


def _taken() -> int | None:
    """Return the bytes that the process may write to; None where the system does not say it."""
    try:
        lines = STATUS.read_text("ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(FIELD)), None)
