"""The lease of a prefix on an object store. There is no rename, so every decisive step is a conditional PUT.

``CURRENT`` fences off old writers. Its first line names the current version, its second line the lease that
may change it, and, while a version is being published, its third line that version. It is only replaced under
the condition that its content is still the one that was read (``If-Match``). A writer that takes the lease
over writes its own number into it. From then on every change by the old holder fails, however late it comes.

A version is published in three steps: its manifest is written to the holder's staging prefix, ``CURRENT``
records that the version is being published, and the manifest is created in its place
(``If-None-Match: *``). A writer that takes over between the last two steps carries out the last one. The
second step therefore decides, and it does not matter who creates the manifest.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
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
    lock,
    lock_file,
    locked_message,
    new_holder,
    newest_token,
    read_holder,
)
from engine.storage.lease.orphans import MARK, check_unmarked, marked, remove_unfinished_versions

POINTER, MANIFEST = "CURRENT", "manifest.json"
MAX_TRIES = 20


@dataclass(frozen=True)
class CurrentPointer:
    """Content of ``CURRENT``: current version, lease that may change it, version being published."""

    version: str = ""
    token: int = 0
    publishing: str = ""

    def to_bytes(self) -> bytes:
        """Return the object's content. The first line is the version, the only line that readers need."""
        last = f"publishing {self.publishing}\n" if self.publishing else ""
        return f"{self.version}\nlease {self.token:08d}\n{last}".encode()

    @classmethod
    def parse(cls, data: bytes) -> CurrentPointer:
        """Parse the result of :meth:`to_bytes`. Any other content counts as a version without a lease."""
        found = re.fullmatch(
            r"([^\n]*)\nlease (\d+)\n(?:publishing ([^\n/]+)\n)?", data.decode("utf-8", "replace")
        )
        if found is None:
            return cls(data.decode("utf-8", "replace").partition("\n")[0])
        return cls(found[1], int(found[2]), found[3] or "")


@dataclass(frozen=True)
class ObjectLease(Lease):
    """Implements :class:`engine.storage.lease.Lease` by conditional PUTs."""

    folder: ObjectPath

    @property
    def file(self) -> ObjectPath:
        """Return the path of the lease file."""
        return self.folder / FOLDER / f"{self.token:08d}.json"

    @property
    def staging(self) -> ObjectPath:
        """Prefix of the manifest that is about to become visible."""
        return self.file.with_suffix(".d")

    def parts_folder(self, version: ObjectPath) -> ObjectPath:  # type: ignore[override]
        """Return the version's own prefix: without a manifest, its parts are not visible as a version."""
        self.check()
        check_unmarked(self, version)
        return version

    def remove_unfinished_versions(self, versions: ObjectPath, keep: str) -> tuple[str, ...]:  # type: ignore[override]
        """Remove unfinished versions except ``keep``; see :mod:`engine.storage.lease.orphans`."""
        return remove_unfinished_versions(self, versions, keep)

    def removing(self, version: ObjectPath) -> AbstractContextManager[None]:  # type: ignore[override]
        """Mark the version while the block removes it; see :mod:`engine.storage.lease.orphans`."""
        return marked(self, version)

    def discard(self, place: ObjectPath) -> None:  # type: ignore[override]
        """Remove an object, and all below a prefix but the mark. Deletes have no condition.

        The caller has marked the version that it removes, so that no successor relies on it.
        """
        place.unlink(missing_ok=True)
        place.remove_below(but=MARK)

    def put_part(self, place: ObjectPath, table: pa.Table) -> Written:  # type: ignore[override]
        """Create the part. Where a killed run has left one, it is replaced unless it has the same bytes.

        The PUT is conditional, since a late worker of an old holder must not change a published part.
        """
        data = parquet_bytes(table)
        try:
            place.create(data)
        except FileExistsError:
            _, tag = place.read_tagged()
            self.check()
            place.replace_if(data, tag)
        return Written(hashlib.sha256(data).hexdigest(), len(data))

    def reuse_part(self, source: ObjectPath, place: ObjectPath) -> None:  # type: ignore[override]
        """Copy a part within the store. Every writer of this part of this version writes the same bytes."""
        self.check()
        if not place.exists():
            link(source, place, root=self.folder)
            return
        content, tag = place.read_tagged()
        data = source.read_bytes()
        if content != data:
            self.check()
            place.replace_if(data, tag)

    def publish(self, version: ObjectPath, manifest: str) -> None:  # type: ignore[override]
        """Publish the version in the three steps of the module's docstring."""
        self.check()
        (self.staging / MANIFEST).write_bytes(manifest.encode())
        self._swap(lambda pointer: replace(pointer, publishing=version.name))
        with suppress(FileExistsError):  # a writer that took over in between has created it
            (version / MANIFEST).create(manifest.encode())

    def point(self, file: ObjectPath, version: str | None) -> None:  # type: ignore[override]
        """Make a published version, or none, the current one by one conditional PUT.

        Raises LockedError where a writer whose lease was taken over may still remove the version, or has.
        """

        def named(pointer: CurrentPointer) -> CurrentPointer:
            if version is not None:
                self._check_stays(self.folder / "versions" / version)
            return CurrentPointer(version or "", pointer.token)

        self._swap(named)

    def _check_stays(self, version: ObjectPath) -> None:
        check_unmarked(self, version)
        if not (version / MANIFEST).exists():
            raise LockedError(f"{version} was removed by another run in the meantime. Run it again.")

    def renew(self) -> None:
        """Write the lease file again, which renews its modification time."""
        content, tag = self.file.read_tagged()
        self.file.replace_if(content, tag)

    def release(self) -> None:
        """Mark the lease file as released, and remove the staging prefix and the lock file."""
        self.check()
        self.staging.remove_below()
        _, tag = self.file.read_tagged()
        holder = read_holder(self.folder, self.token)
        self.file.replace_if(self.released_record().encode(), tag)
        if holder:
            lock_file(self, holder).unlink(missing_ok=True)

    def fence_off_previous_holder(self) -> None:
        """Write this lease's number into ``CURRENT``, after finishing a publication that is in progress."""
        swap(self.folder / POINTER, self._taken_over)

    def _taken_over(self, pointer: CurrentPointer) -> CurrentPointer:
        if pointer.token > self.token:
            raise LockedError(self.lost_message())
        if pointer.publishing:
            staged = ObjectLease(self.folder, pointer.token).staging / MANIFEST
            final = self.folder / "versions" / pointer.publishing / MANIFEST
            with suppress(FileExistsError, FileNotFoundError):
                final.create(staged.read_bytes())
        return CurrentPointer(pointer.version, self.token)

    def _swap(self, change: Callable[[CurrentPointer], CurrentPointer]) -> None:
        def checked(pointer: CurrentPointer) -> CurrentPointer:
            if pointer.token != self.token:
                raise LockedError(self.lost_message())
            return change(pointer)

        swap(self.folder / POINTER, checked)


def swap(pointer: ObjectPath, change: Callable[[CurrentPointer], CurrentPointer]) -> None:
    """Replace the pointer by ``change`` of it, and try again if another writer changed it in between.

    Raises LockedError after ``MAX_TRIES`` attempts.
    """
    for _ in range(MAX_TRIES):
        content, tag = _read(pointer)
        new = change(CurrentPointer.parse(content) if tag else CurrentPointer()).to_bytes()
        with suppress(FileExistsError):
            pointer.create(new) if tag is None else pointer.replace_if(new, tag)
            return
    raise LockedError(
        f"{pointer} keeps changing: several runs write there. Give this run another output.path."
    )


def acquire(folder: ObjectPath, who: str, stale_seconds: float) -> tuple[ObjectLease, IO[str]]:
    """Take the lease. The file that is returned with it stays locked until it is closed.

    Raises LockedError if another writer holds the lease, OSError, and InputError for a store that does not
    support conditional PUTs.
    """
    old = newest_token(folder)
    if old:
        check_free(ObjectLease(folder, old))
    else:
        check_conditional_puts(folder)
    lease, holder = ObjectLease(folder, old + 1), new_holder(who, stale_seconds)
    handle = lock_file(lease, holder).open("w", encoding="utf-8")
    try:
        lock(handle)  # before the lease file exists, so that readers of the holder can rely on the lock
        try:
            lease.file.create(holder.to_json().encode())
        except FileExistsError:
            raise LockedError(locked_message(folder, read_holder(folder))) from None
        lease.check()  # a newcomer suspended before creating the file has created an old number
        lease.fence_off_previous_holder()
        _clear(folder, lease.token)
    except BaseException:
        handle.close()
        lock_file(lease, holder).unlink(missing_ok=True)
        raise
    return lease, handle


def check_conditional_puts(folder: ObjectPath) -> None:
    """Raise InputError unless the store refuses a PUT whose condition does not hold."""
    probe = folder / FOLDER / f"probe-{uuid.uuid4().hex}"
    probe.create(b"1")
    accepted = 0
    _, tag = probe.read_tagged()
    with suppress(FileExistsError):
        probe.create(b"2")
        accepted += 1
    probe.write_bytes(b"3")
    with suppress(FileExistsError):
        probe.replace_if(b"4", tag)
        accepted += 1
    probe.unlink(missing_ok=True)
    if accepted:
        raise InputError(
            f"{folder}: this object store carries out a PUT although its condition (If-None-Match, If-Match) "
            f"does not hold, so two runs could overwrite each other. Choose a store that respects conditions "
            f"(S3, GCS, Azure and current MinIO do), or a folder."
        )


def _read(pointer: ObjectPath) -> tuple[bytes, Tag | None]:
    try:
        return pointer.read_tagged()
    except FileNotFoundError:
        return b"", None


def _clear(folder: ObjectPath, token: int) -> None:
    """Remove the files of earlier holders, in an order that keeps the newest number the highest."""
    for entry in sorted((folder / FOLDER).iterdir(), key=lambda entry: entry.name):
        number = entry.name.partition(".")[0]
        if number.isdigit() and int(number) < token:
            entry.remove_below()
            entry.unlink(missing_ok=True)
