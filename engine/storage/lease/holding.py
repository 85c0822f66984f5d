"""Holding a lease while a block runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import IO

from connectors.storage import ObjectPath, Place
from engine.core.errors import InputError, LockedError
from engine.storage.lease import folder as folders
from engine.storage.lease import objects
from engine.storage.lease.base import STALE_SECONDS, Lease

BEATS = 6
"""Heartbeats in the time after which a lease is stale: one or two may be late on a busy machine."""


@contextmanager
def writing(folder: Place, who: str, *, stale_seconds: float = STALE_SECONDS) -> Iterator[Lease]:
    """Hold ``folder`` for writing; the heart beats until the block ends.

    Raises
    ------
    LockedError
        Another run holds it (the text says who and since when), or has taken it over meanwhile.
    InputError
        The folder cannot be written, or its object store cannot put under a condition.

    """
    try:
        lease, handle = _acquire(folder, who, stale_seconds)
    except OSError as error:
        raise InputError(
            f"The output folder {folder} cannot be written: {error.strerror or error}. "
            f"Choose another one with --set output.path=..., or mend its permissions."
        ) from None
    ended = Event()
    heart = Thread(target=_beat, args=(lease, stale_seconds / BEATS, ended), daemon=True)
    with handle:
        heart.start()
        try:
            yield lease
        except Exception:
            lease.check()  # whatever failed after another took over, that is the reason
            raise
        finally:
            ended.set()
            heart.join()
            with suppress(OSError, LockedError):
                lease.release()


def _acquire(folder: Place, who: str, stale_seconds: float) -> tuple[Lease, IO[str]]:
    if isinstance(folder, ObjectPath):
        return objects.acquire(folder, who, stale_seconds)
    return folders.acquire(folder, who, stale_seconds)


def _beat(lease: Lease, every: float, ended: Event) -> None:
    while not ended.wait(every):
        with suppress(OSError):
            lease.beat()
