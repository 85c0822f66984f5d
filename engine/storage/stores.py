"""Opening the run store of an output, on a filesystem or on an object store."""

from __future__ import annotations

from connectors.storage import ObjectPath, Place
from engine.storage.object_run_store import ObjectRunStore
from engine.storage.run_store import RunStore


def store_of(output: Place) -> RunStore:
    """Return the run store of an output."""
    if isinstance(output, ObjectPath):
        return ObjectRunStore(output / "store")
    return RunStore(output / "store")
