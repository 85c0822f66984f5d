"""The lease of a prefix on an object store, which has no rename: every step that counts is a conditional PUT.

``CURRENT`` is the fence. Its first line names the current version; its second says which lease may change it;
a third, while a version is being made visible, names that version. It is only ever replaced under the
condition that it is what was read (``If-Match``), and whoever takes the lease over writes its own number into
it. From then on nothing that the old holder does to it succeeds, however late it wakes up.

A version becomes visible in three steps: its manifest is put in the holder's staging prefix, ``CURRENT`` says
that it is being published, the manifest is created in its place (``If-None-Match: *``). Who takes over
between the last two does the last one. So the second decides; who creates the manifest does not matter.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import IO

import pyarrow as pa

from connectors.sink import Written, parquet_bytes
from connectors.storage import ObjectPath, Tag, link
from engine.core.errors import InputError, LockedError
from engine.storage.lease.base import (
    FOLDER,
    Lease,
    check_free,
    held,
    lock,
    lock_file,
    new_holder,
    newest_token,
    read_holder,
)
from engine.storage.lease.orphans import check_unmarked, sweep_versions

POINTER, MANIFEST = "CURRENT", "manifest.json"
TRIES = 20


@dataclass(frozen=True)
class Fence:
    """What ``CURRENT`` says."""

    version: str = ""
    token: int = 0
    publishing: str = ""

    def to_bytes(self) -> bytes:
        """The object's content; readers that want the version take its first line."""
        last = f"publishing {self.publishing}\n" if self.publishing else ""
        return f"{self.version}\nlease {self.token:08d}\n{last}".encode()

    @classmethod
    def parse(cls, data: bytes) -> Fence:
        """Read :meth:`to_bytes`; what else may stand there counts as written by nobody."""
        found = re.fullmatch(
            r"([^\n]*)\nlease (\d+)\n(?:publishing ([^\n/]+)\n)?", data.decode("utf-8", "replace")
        )
        if found is None:
            return cls(data.decode("utf-8", "replace").partition("\n")[0])
        return cls(found[1], int(found[2]), found[3] or "")


@dataclass(frozen=True)
class ObjectLease(Lease):
    """See :class:`engine.storage.lease.Lease`."""

    folder: ObjectPath

    @property
    def file(self) -> ObjectPath:
        """The lease file."""
        return self.folder / FOLDER / f"{self.token:08d}.json"

    @property
    def staging(self) -> ObjectPath:
        """Prefix of the manifest that is about to become visible."""
        return self.file.with_suffix(".d")

    def parts_of(self, version: ObjectPath) -> ObjectPath:  # type: ignore[override]
        """Where they stay: without a manifest they are no version."""
        self.check()
        check_unmarked(self, version)
        return version

    def sweep_versions(self, versions: ObjectPath, keep: str) -> tuple[str, ...]:  # type: ignore[override]
        """See :mod:`engine.storage.lease.orphans`."""
        return sweep_versions(self, versions, keep)

    def put_part(self, place: ObjectPath, table: pa.Table) -> Written:  # type: ignore[override]
        """Create it. What a killed run left there is kept if it is the same, and else replaced.

        Not overwritten blindly: a worker of an old holder that wakes up late must not touch a published part.
        """
        data = parquet_bytes(table)
        try:
            place.create(data)
        except FileExistsError:
            _, tag = place.read_tagged()
            self.check()
            place.replace_if(data, tag)
        return Written(hashlib.sha256(data).hexdigest(), len(data))

    def take_part(self, source: ObjectPath, place: ObjectPath) -> None:  # type: ignore[override]
        """A copy within the store. Whoever writes this part of this version writes these bytes."""
        self.check()
        if not place.exists():
            link(source, place)
            return
        content, tag = place.read_tagged()
        data = source.read_bytes()
        if content != data:
            self.check()
            place.replace_if(data, tag)

    def publish(self, version: ObjectPath, manifest: str) -> None:  # type: ignore[override]
        """See the module's text."""
        self.check()
        (self.staging / MANIFEST).write_bytes(manifest.encode())
        self._swap(lambda fence: replace(fence, publishing=version.name))
        with suppress(FileExistsError):  # who took over in between has made it
            (version / MANIFEST).create(manifest.encode())

    def point(self, file: ObjectPath, version: str) -> None:  # type: ignore[override]
        """One conditional PUT."""
        self._swap(lambda fence: Fence(version, fence.token))

    def beat(self) -> None:
        """Put the lease file again."""
        content, tag = self.file.read_tagged()
        self.file.replace_if(content, tag)

    def release(self) -> None:
        """Say so in the lease file, and leave nothing else."""
        self.check()
        self.staging.remove_below()
        _, tag = self.file.read_tagged()
        holder = read_holder(self.folder, self.token)
        self.file.replace_if(self.given_back().encode(), tag)
        if holder:
            lock_file(self, holder).unlink(missing_ok=True)

    def take_fence(self) -> None:
        """Shut the last holder out. What it had decided to publish is published."""
        swap(self.folder / POINTER, self._taken)

    def _taken(self, fence: Fence) -> Fence:
        if fence.token > self.token:
            raise LockedError(self.lost())
        if fence.publishing:
            staged = ObjectLease(self.folder, fence.token).staging / MANIFEST
            final = self.folder / "versions" / fence.publishing / MANIFEST
            with suppress(FileExistsError, FileNotFoundError):
                final.create(staged.read_bytes())
        return Fence(fence.version, self.token)

    def _swap(self, change: Callable[[Fence], Fence]) -> None:
        def checked(fence: Fence) -> Fence:
            if fence.token != self.token:
                raise LockedError(self.lost())
            return change(fence)

        swap(self.folder / POINTER, checked)


def swap(pointer: ObjectPath, change: Callable[[Fence], Fence]) -> None:
    """Replace what the fence says by what ``change`` makes of it, and again where somebody came between."""
    for _ in range(TRIES):
        content, tag = _read(pointer)
        new = change(Fence.parse(content) if tag else Fence()).to_bytes()
        with suppress(FileExistsError):
            pointer.create(new) if tag is None else pointer.replace_if(new, tag)
            return
    raise LockedError(
        f"{pointer} keeps changing: several runs write there. Give this run another output.path."
    )


def acquire(folder: ObjectPath, who: str, stale_seconds: float) -> tuple[ObjectLease, IO[str]]:
    """Take the lease; the file that comes with it is locked until it is closed.

    Raises LockedError, OSError, and InputError for a store that does not keep conditions.
    """
    old = newest_token(folder)
    if old:
        check_free(ObjectLease(folder, old))
    else:
        check_conditions(folder)
    lease, holder = ObjectLease(folder, old + 1), new_holder(who, stale_seconds)
    handle = lock_file(lease, holder).open("w", encoding="utf-8")
    try:
        lock(handle)  # before anybody can read on which kernel it is
        try:
            lease.file.create(holder.to_json().encode())
        except FileExistsError:
            raise LockedError(held(folder, read_holder(folder))) from None
        lease.check()  # a newcomer that slept between looking and making would have made an old number
        lease.take_fence()
        _clear(folder, lease.token)
    except BaseException:
        handle.close()
        lock_file(lease, holder).unlink(missing_ok=True)
        raise
    return lease, handle


def check_conditions(folder: ObjectPath) -> None:
    """Raises InputError unless the store refuses a PUT whose condition does not hold."""
    probe = folder / FOLDER / f"probe-{uuid.uuid4().hex}"
    probe.create(b"1")
    kept = 0
    _, tag = probe.read_tagged()
    with suppress(FileExistsError):
        probe.create(b"2")
        kept += 1
    probe.write_bytes(b"3")
    with suppress(FileExistsError):
        probe.replace_if(b"4", tag)
        kept += 1
    probe.unlink(missing_ok=True)
    if kept:
        raise InputError(
            f"{folder}: this object store carries out a PUT although its condition (If-None-Match, If-Match) "
            f"does not hold, so two runs could overwrite each other. Choose a store that keeps them (S3, "
            f"GCS, Azure and current MinIO do), or a folder."
        )


def _read(pointer: ObjectPath) -> tuple[bytes, Tag | None]:
    try:
        return pointer.read_tagged()
    except FileNotFoundError:
        return b"", None


def _clear(folder: ObjectPath, token: int) -> None:
    """Remove what earlier holders left, the newest last: the highest number stays the highest."""
    for entry in sorted((folder / FOLDER).iterdir(), key=lambda entry: entry.name):
        number = entry.name.partition(".")[0]
        if number.isdigit() and int(number) < token:
            entry.remove_below()
            entry.unlink(missing_ok=True)
