"""Several writers at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from connectors.storage import ObjectPath
from engine.core.errors import LockedError
from engine.storage.lease import hold_lease


def winners(output: Path | ObjectPath, n: int) -> int:
    """Return how many of ``n`` simultaneous writers get the lease; each keeps it until all have asked."""
    ready, done = Barrier(n), Barrier(n)

    def attempt(index: int) -> bool:
        ready.wait()
        try:
            with hold_lease(output, str(index)):
                done.wait()
                return True
        except LockedError:
            done.wait()
            return False

    with ThreadPoolExecutor(n) as pool:
        return sum(pool.map(attempt, range(n)))
