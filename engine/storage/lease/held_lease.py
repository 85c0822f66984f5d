"""Holding a lease while a block runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import IO

from connectors.storage import ObjectPath, Place
from engine.core.alarm import alarm
from engine.core.errors import InputError, LockedError
from engine.core.output_layout import check_real_folders
from engine.storage.lease import folder as folders
from engine.storage.lease import objects
from engine.storage.lease.base import STALE_SECONDS, Lease

HEARTBEATS_PER_TIMEOUT = 6
"""Number of heartbeats within the time after which a lease is stale; some may be late on a busy machine."""


@contextmanager
def hold_lease(folder: Place, who: str, *, stale_seconds: float = STALE_SECONDS) -> Iterator[Lease]:
    """Hold the lease of ``folder`` and renew its heartbeat until the block ends.

    If a heartbeat finds that another run has taken the lease over, the block is interrupted by LockedError
    where it is, provided that it runs in the main thread; elsewhere it ends at its next step that needs the
    lease. A run that was suspended thus does not go on computing for nothing.

    Raises
    ------
    LockedError
        Another run holds the lease (the text says who and since when), or has taken it over meanwhile.
    InputError
        The folder cannot be written, a folder in it is a link, or its object store does not support
        conditional PUTs.

    """
    try:
        check_real_folders(folder)
        lease, handle = _acquire(folder, who, stale_seconds)
    except OSError as error:
        raise InputError(
            f"The output folder {folder} cannot be written: {error.strerror or error}. "
            f"Choose another one with --set output.path=..., or correct its permissions."
        ) from None
    ended, every = Event(), stale_seconds / HEARTBEATS_PER_TIMEOUT
    with handle, alarm(lease.check) as bell:
        heartbeat = Thread(target=_renew, args=(lease, every, ended, bell.ring), daemon=True)
        heartbeat.start()
        try:
            yield lease
        except Exception:
            lease.check()  # an error after a takeover has the lost lease as its reason
            raise
        finally:
            bell.stop()
            ended.set()
            heartbeat.join()
            with suppress(OSError, LockedError):
                lease.release()


def _acquire(folder: Place, who: str, stale_seconds: float) -> tuple[Lease, IO[str]]:
    if isinstance(folder, ObjectPath):
        return objects.acquire(folder, who, stale_seconds)
    return folders.acquire(folder, who, stale_seconds)


def _renew(lease: Lease, every: float, ended: Event, on_loss: Callable[[], None]) -> None:
    """Renew the heartbeat until ``ended``, or until the lease is lost: then call ``on_loss``."""
    while not ended.wait(every):
        try:
            lease.renew()
        except OSError:  # the storage does not answer, or the successor has removed the lease file
            if _is_lost(lease):
                on_loss()
                return


def _is_lost(lease: Lease) -> bool:
    try:
        lease.check()
    except LockedError:
        return True
    except OSError:
        return False
    return False
