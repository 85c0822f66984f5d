"""The lease of a folder on a filesystem: what becomes visible is renamed from the holder's staging folder.

Whoever takes over a lease first removes the old holder's staging folder, so an old writer that sleeps between
its last check and its rename finds nothing left to rename.
"""

from __future__ import annotations

import os
import shutil
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from connectors.storage import write_whole
from engine.core.errors import LockedError
from engine.storage.lease.base import (
    FOLDER,
    Lease,
    check_free,
    held,
    lock,
    new_holder,
    newest_token,
    read_holder,
)


@dataclass(frozen=True)
class FolderLease(Lease):
    """See :class:`engine.storage.lease.Lease`."""

    folder: Path

    @property
    def file(self) -> Path:
        """The lease file."""
        return self.folder / FOLDER / f"{self.token:08d}.json"

    @property
    def staging(self) -> Path:
        """Folder from which this writer renames what it makes visible."""
        return self.file.with_suffix(".d")

    def rename(self, staged: Path, final: Path) -> None:
        """Make a staged file or folder visible. Raises LockedError when the lease is lost, however late."""
        self.check()
        try:
            staged.replace(final)
        except FileNotFoundError:
            raise LockedError(self.lost()) from None

    def stage(self, name: str) -> Path:
        """A path in the staging folder. Raises LockedError when the lease is lost."""
        self.check()
        return self.staging / name

    def parts_of(self, version: Path) -> Path:  # type: ignore[override]
        """A folder in the staging folder."""
        return self.stage(version.name)

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
            final.replace(old)
        self.rename(staged, final)
        shutil.rmtree(old, ignore_errors=True)

    def publish(self, version: Path, manifest: str) -> None:  # type: ignore[override]
        """Two renames; a version without its manifest is none."""
        staged = self.stage("manifest.json")
        write_whole(staged, manifest.encode())
        version.parent.mkdir(parents=True, exist_ok=True)
        # A folder that is there has no manifest: its writer was killed between the two renames.
        self.replace_folder(self.staging / version.name, version)
        self.rename(staged, version / "manifest.json")

    def point(self, file: Path, version: str) -> None:  # type: ignore[override]
        """One rename."""
        staged = self.stage(file.name)
        write_whole(staged, f"{version}\n".encode())
        self.rename(staged, file)

    def beat(self) -> None:
        """Touch the lease file."""
        os.utime(self.file)

    def release(self) -> None:
        """Say so in the lease file, and leave nothing else."""
        self.check()
        shutil.rmtree(self.staging, ignore_errors=True)
        temporary = self.file.with_suffix(".tmp")
        temporary.write_text(self.given_back(), "utf-8")
        self.rename(temporary, self.file)


def acquire(folder: Path, who: str, stale_seconds: float) -> tuple[FolderLease, IO[str]]:
    """Take the lease; the file beside it is locked until it is closed. Raises LockedError, OSError."""
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    old = newest_token(folder)
    if old:
        check_free(FolderLease(folder, old))
    lease = FolderLease(folder, old + 1)
    try:
        handle = lease.file.open("x", encoding="utf-8")
    except FileExistsError:
        raise LockedError(held(folder, read_holder(folder))) from None
    lock(handle)  # before it says on which kernel it is: who can read that can trust the lock
    handle.write(new_holder(who, stale_seconds).to_json())
    handle.flush()
    lease.check()  # a newcomer that slept between looking and making would have made an old number
    _clear(folder, lease.token)
    lease.staging.mkdir()
    return lease, handle


def _clear(folder: Path, token: int) -> None:
    """Remove earlier holders' staging folders, then their files: the newest number stays the highest."""
    for entry in sorted((folder / FOLDER).iterdir(), reverse=True):
        number = entry.name.partition(".")[0]
        if number.isdigit() and int(number) < token:
            _remove(entry)


def _remove(entry: Path) -> None:
    if entry.is_dir():
        # Renamed first, in one step: from then on the old holder finds nothing of it.
        gone = entry.with_name(f"gone-{entry.name}")
        with suppress(OSError):
            entry.replace(gone)
        shutil.rmtree(gone, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)
