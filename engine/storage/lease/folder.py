"""The lease of a folder on a filesystem. Everything visible is renamed from the holder's staging folder.

A writer that takes over a lease first removes the staging folder of the old holder. An old writer that is
suspended between its last check and a rename therefore finds nothing to rename, and no folder to move others'
files into.
"""

from __future__ import annotations

import os
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from connectors.storage import make_folder, remove_tree, write_whole
from connectors.storage.beneath import rename_beneath, unlink_beneath
from engine.core.errors import LockedError
from engine.storage.lease.base import (
    FOLDER,
    Lease,
    check_free,
    lock,
    locked_message,
    new_holder,
    newest_token,
    read_holder,
)

GONE = "gone-"
"""Beginning of the name of a staging folder that is being removed."""
LEFT_BEHIND = re.compile(rf"(?:{GONE})?(?P<token>[0-9]{{8,}})\.(?:json|tmp|d)")
"""Names of lease files, of lease files that are being given back, and of staging folders."""


@dataclass(frozen=True)
class FolderLease(Lease):
    """Implements :class:`engine.storage.lease.Lease` by renames."""

    folder: Path

    @property
    def file(self) -> Path:
        """Return the path of the lease file."""
        return self.folder / FOLDER / f"{self.token:08d}.json"

    @property
    def staging(self) -> Path:
        """The folder from which this writer renames files and folders into their places."""
        return self.file.with_suffix(".d")

    def rename(self, staged: Path, final: Path) -> None:
        """Make a staged file or folder visible. Raises LockedError when the lease is lost, however late."""
        self.check()
        try:
            rename_beneath(self.folder, staged, final)
        except FileNotFoundError:
            raise LockedError(self.lost_message()) from None

    def stage(self, name: str) -> Path:
        """Return a path in the staging folder. Raises LockedError when the lease is lost."""
        self.check()
        return self.staging / name

    def parts_folder(self, version: Path) -> Path:  # type: ignore[override]
        """Return a folder in the staging folder."""
        return self.stage(version.name)

    def _write_staged(self, name: str, text: str) -> Path:
        """Write a file in the staging folder. Raises LockedError when the lease is lost, however late."""
        staged = self.stage(name)
        self.put_file(staged, text.encode())
        return staged

    def put_file(self, place: Path, data: bytes) -> None:  # type: ignore[override]
        """Write a file in the staging folder. Raises LockedError when the lease is lost, however late."""
        try:
            write_whole(place, data, root=self.folder)
        except FileNotFoundError:
            raise LockedError(self.lost_message()) from None

    def replace_folder(self, new: Path, final: Path) -> None:
        """Replace a folder by renames through the staging folder.

        A writer may be suspended at any point and continue after another one has taken over and has put its
        own folder at ``final``. The old folder is therefore moved into the staging folder, not removed in its
        place: without the staging folder every rename fails.
        """
        mark = uuid.uuid4().hex
        staged, old = self.stage(f"new-{mark}"), self.staging / f"old-{mark}"
        self.rename(new, staged)
        with suppress(FileNotFoundError):  # there is no old folder, or no staging folder any more
            rename_beneath(self.folder, final, old)
        self.rename(staged, final)
        remove_tree(old, root=self.folder)

    def discard(self, place: Path) -> None:  # type: ignore[override]
        """Move a file or folder into the staging folder, and remove it there.

        A writer that wakes up after a takeover has no staging folder, so that everything stays in its place.
        """
        old = self.stage(f"old-{uuid.uuid4().hex}")
        with suppress(FileNotFoundError):  # there is nothing, or no staging folder any more
            rename_beneath(self.folder, place, old)
        self.check()
        remove_tree(old, root=self.folder)

    def publish(self, version: Path, manifest: str) -> None:  # type: ignore[override]
        """Rename the parts, then the manifest. Without its manifest a version does not count as published."""
        staged = self._write_staged("manifest.json", manifest)
        make_folder(version.parent, root=self.folder)
        # A folder that is there has no manifest: its writer was killed between the two renames.
        self.replace_folder(self.staging / version.name, version)
        self.rename(staged, version / "manifest.json")

    def point(self, file: Path, version: str | None) -> None:  # type: ignore[override]
        """Rename a new pointer file over the old one, or the old one into the staging folder."""
        if version is None:
            self.rename(file, self.stage(f"old-{uuid.uuid4().hex}"))
            return
        self.rename(self._write_staged(file.name, f"{version}\n"), file)

    def renew(self) -> None:
        """Renew the modification time of the lease file."""
        os.utime(self.file)

    def release(self) -> None:
        """Mark the lease file as released and remove the staging folder."""
        self.check()
        remove_tree(self.staging, root=self.folder)
        temporary = self.file.with_suffix(".tmp")
        write_whole(temporary, self.released_record().encode(), root=self.folder)
        self.rename(temporary, self.file)


def acquire(folder: Path, who: str, stale_seconds: float) -> tuple[FolderLease, IO[str]]:
    """Take the lease. The file that is returned with it stays locked until it is closed.

    Raises LockedError if another writer holds the lease, and OSError.
    """
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    old = newest_token(folder)
    if old:
        check_free(FolderLease(folder, old))
    lease = FolderLease(folder, old + 1)
    try:
        handle = lease.file.open("x", encoding="utf-8")
    except FileExistsError:
        raise LockedError(locked_message(folder, read_holder(folder))) from None
    lock(handle)  # before the holder is written, so that readers of the holder can rely on the lock
    handle.write(new_holder(who, stale_seconds).to_json())
    handle.flush()
    lease.check()  # a newcomer suspended before creating the file has created an old number
    _clear(folder, lease.token)
    lease.staging.mkdir()
    return lease, handle


def _clear(folder: Path, token: int) -> None:
    """Remove the files of earlier holders, in an order that keeps the newest number the highest.

    Only names that a lease has given are removed.
    """
    for entry in sorted((folder / FOLDER).iterdir(), reverse=True):
        found = LEFT_BEHIND.fullmatch(entry.name)
        if found and int(found["token"]) < token:
            _remove(folder, entry)


def _remove(folder: Path, entry: Path) -> None:
    if entry.is_symlink() or not entry.is_dir():
        unlink_beneath(folder, entry)
        return
    doomed = entry
    if not entry.name.startswith(GONE):
        # The rename takes everything away from the old holder in one step.
        doomed = entry.with_name(f"{GONE}{entry.name}")
        with suppress(OSError):
            rename_beneath(folder, entry, doomed)
    remove_tree(doomed, root=folder)
