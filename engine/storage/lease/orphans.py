"""Removal of the parts of versions on an object store: of unfinished ones, and of published ones.

A delete request has no condition, and may reach the store long after its sender has lost the lease: by then
another writer may have published the version. A run that removes parts therefore first writes a mark beside
them and then checks its lease. A writer first takes the lease and then checks for marks. In every order of
these steps, one of the two notices the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict

from connectors.storage import MAX_REQUESTS, ObjectPath
from engine.core.errors import LockedError
from engine.core.json_files import read_json
from engine.storage.lease.base import Holder, Lease, is_dead, read_holder

MARK = ".sweeping"


def remove_unfinished_versions(lease: Lease, versions: ObjectPath, keep: str) -> tuple[str, ...]:
    """Remove the versions below ``versions`` without a manifest, except ``keep``, and return their names.

    Versions that another run has marked stay. Raises LockedError once the lease is lost.
    """
    entries = [entry for entry in versions.iterdir() if entry.name != keep]
    with ThreadPoolExecutor(MAX_REQUESTS) as pool:
        finished = pool.map(lambda entry: (entry / "manifest.json").exists(), entries)
        orphans = [entry for entry, whole in zip(entries, finished, strict=True) if not whole]
    return tuple(entry.name for entry in orphans if _remove_version(lease, entry))


def check_unmarked(lease: Lease, version: ObjectPath) -> None:
    """Raise LockedError while another run may still remove parts of this version."""
    mark = version / MARK
    try:
        value = read_json(mark)
    except FileNotFoundError:
        return
    token, holder = int(value.pop("token")), Holder(**value)
    if token == lease.token:
        return
    if not is_dead(type(lease)(lease.folder, token), holder):
        raise LockedError(
            f"{version} was being removed by {holder} when that run lost {lease.folder}. If it "
            f"continues, it goes on removing. Once it has certainly ended, remove {mark} and run again."
        )
    mark.unlink(missing_ok=True)


@contextmanager
def marked(lease: Lease, version: ObjectPath) -> Iterator[None]:
    """Keep other writers from a version while the block removes its objects, all but the mark.

    Raises LockedError if the lease is lost, or if another run has marked the version.
    """
    check_unmarked(lease, version)
    mark, holder = version / MARK, read_holder(lease.folder, lease.token)
    if holder is None:
        raise LockedError(lease.lost_message())
    try:
        with suppress(FileExistsError):
            mark.create(json.dumps(asdict(holder) | {"token": lease.token}).encode())
        lease.check()
        yield
    finally:  # after the mark is gone this run removes nothing more
        with suppress(OSError):
            mark.unlink(missing_ok=True)


def _remove_version(lease: Lease, version: ObjectPath) -> bool:
    lease.check()
    try:
        check_unmarked(lease, version)
    except LockedError:
        return False
    with marked(lease, version):
        for place in version.below():
            if place.name != MARK:
                place.unlink(missing_ok=True)
    return True
