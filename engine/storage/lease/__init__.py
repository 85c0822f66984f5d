"""One writer for each output, also where several hosts share it: a lease with a fencing token.

``<output>/.lease/00000007.json`` is lease number 7; it is made exclusively, so only one writer gets a number,
and the highest number holds. The time of its last write is the heartbeat. A newcomer compares that with the
time of a file that it has just written there itself: one clock, the file server's or the object store's,
decides for all hosts. On one host nobody waits: the holder keeps a file locked, and the operating system
gives the lock back when the holder dies, however it dies. ``folder`` and ``objects`` tell what makes an old
writer harmless.
"""

from engine.storage.lease.base import (
    FOLDER,
    STALE_SECONDS,
    Holder,
    Lease,
    alive,
    newest_token,
    read_holder,
    silence,
)
from engine.storage.lease.holding import writing

__all__ = [
    "FOLDER",
    "STALE_SECONDS",
    "Holder",
    "Lease",
    "alive",
    "newest_token",
    "read_holder",
    "silence",
    "writing",
]
