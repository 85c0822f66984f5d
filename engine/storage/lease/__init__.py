"""A lease with a fencing token: one writer for each output, also where several hosts share it.

``<output>/.lease/00000007.json`` is lease number 7. It is created exclusively, so only one writer gets a
number, and the highest number is the valid lease. The time of its last write is the heartbeat. A newcomer
compares that time with the time of a file that it has just written there itself, so that one clock, that of
the file server or the object store, decides for all hosts. On one host no newcomer waits for a dead holder:
the holder keeps a file locked, and the operating system releases the lock when the holder dies. The modules
``folder`` and ``objects`` describe how an old writer is kept from doing harm.
"""

from engine.storage.lease.base import (
    FOLDER,
    STALE_SECONDS,
    Holder,
    Lease,
    has_active_writer,
    newest_token,
    read_holder,
    seconds_since_heartbeat,
)
from engine.storage.lease.held_lease import hold_lease

__all__ = [
    "FOLDER",
    "STALE_SECONDS",
    "Holder",
    "Lease",
    "has_active_writer",
    "hold_lease",
    "newest_token",
    "read_holder",
    "seconds_since_heartbeat",
]
