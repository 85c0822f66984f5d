"""One writer for each folder, also where several hosts share it: a lease with a fencing token.

``<folder>/.lease/00000007.json`` is lease number 7; it is made exclusively, so only one writer gets a number,
and the highest number holds. Its modification time is the heartbeat. A newcomer compares that with the time
of a file that it has just written there itself: one clock, the file server's, decides for all hosts. On one
host nobody waits: the holder keeps its lease file locked, and the operating system gives the lock back when
the holder dies, however it dies.

Whoever takes over a lease first removes the old holder's staging folder. All that a writer makes visible is
staged there and renamed from there, so an old writer that sleeps between its last check and its rename finds
nothing left to rename.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any

from engine.errors import InputError, LockedError

FOLDER = ".lease"
STALE_SECONDS = 60.0
"""A lease whose heart has not beaten for so long is taken over."""
BEATS = 6
"""Heartbeats in that time: one or two may be late on a busy machine."""


@dataclass(frozen=True)
class Holder:
    """Who writes, as the lease file says. ``kernel`` is the boot id: equal only within one running system."""

    who: str
    host: str
    pid: int
    since: str
    kernel: str
    stale_seconds: float = STALE_SECONDS
    released: bool = False

    def __str__(self) -> str:
        return f"{self.who} (process {self.pid} on {self.host}, since {self.since})"


@dataclass(frozen=True)
class Lease:
    """The right to write into ``folder`` as its writer number ``token``. Picklable; workers check it too."""

    folder: Path
    token: int

    @property
    def file(self) -> Path:
        """The lease file."""
        return self.folder / FOLDER / f"{self.token:08d}.json"

    @property
    def staging(self) -> Path:
        """Folder from which this writer renames what it makes visible; gone once another has taken over."""
        return self.file.with_suffix(".d")

    def check(self) -> None:
        """Raises LockedError when another writer has taken this lease over."""
        newest = newest_token(self.folder)
        if newest != self.token:
            raise LockedError(self._lost())

    def rename(self, staged: Path, final: Path) -> None:
        """Make a staged file or folder visible. Raises LockedError when the lease is lost, however late."""
        self.check()
        try:
            staged.replace(final)
        except FileNotFoundError:
            raise LockedError(self._lost()) from None

    def stage(self, name: str) -> Path:
        """A path in the staging folder. Raises LockedError when the lease is lost."""
        self.check()
        return self.staging / name

    def _lost(self) -> str:
        found = read_holder(self.folder)
        who = str(found) if found else "another run"
        return (
            f"{self.folder} has been taken over by {who}, as this run had given no sign of life for too long "
            f"(was it suspended?). What it had committed is kept; nothing of it is published. Run it again."
        )


def newest_token(folder: Path) -> int:
    """Number of the newest lease; 0 where there was none."""
    with suppress(FileNotFoundError):
        names = (entry.name for entry in (folder / FOLDER).iterdir() if entry.suffix == ".json")
        return max((int(name[:-5]) for name in names if name[:-5].isdigit()), default=0)
    return 0


def read_holder(folder: Path, token: int = 0) -> Holder | None:
    """Who holds the newest lease, or the one with that token; None where nobody does or it is unreadable."""
    file = Lease(folder, token or newest_token(folder)).file
    try:
        return Holder(**json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def silence(folder: Path) -> float | None:
    """Seconds since the newest lease's last heartbeat by this host's clock; None where there is no lease."""
    with suppress(OSError):
        return max(0.0, time.time() - Lease(folder, newest_token(folder)).file.stat().st_mtime)
    return None


def alive(folder: Path) -> bool:
    """Whether somebody writes here now, as far as the heartbeat tells; takes nothing."""
    holder, quiet = read_holder(folder), silence(folder)
    if holder is None or holder.released or quiet is None:
        return False
    return quiet <= holder.stale_seconds and not _is_dead(folder, holder)


@contextmanager
def writing(folder: Path, who: str, *, stale_seconds: float = STALE_SECONDS) -> Iterator[Lease]:
    """Hold ``folder`` for writing; the heart beats until the block ends.

    Raises
    ------
    LockedError
        Another run holds it (the text says who and since when), or has taken it over meanwhile.
    InputError
        The folder cannot be written.

    """
    try:
        lease, handle = _acquire(folder, who, stale_seconds)
    except OSError as error:
        raise InputError(
            f"The output folder {folder} cannot be written: {error.strerror or error}. "
            f"Choose another one with --set output.path=..., or mend its permissions."
        ) from None
    ended = Event()
    heart = Thread(target=_beat, args=(lease.file, stale_seconds / BEATS, ended), daemon=True)
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
                _release(lease)


def _acquire(folder: Path, who: str, stale_seconds: float) -> tuple[Lease, IO[str]]:
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    old = newest_token(folder)
    if old:
        _check_free(folder, old)
    lease = Lease(folder, old + 1)
    try:
        handle = lease.file.open("x", encoding="utf-8")
    except FileExistsError:
        raise LockedError(_held(folder, read_holder(folder))) from None
    # Locked before it says on which kernel it is: who can read that can trust the lock.
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    since = datetime.now(UTC).isoformat(timespec="seconds")
    holder = Holder(who, socket.gethostname(), os.getpid(), since, _kernel(), stale_seconds)
    handle.write(json.dumps(asdict(holder)))
    handle.flush()
    lease.check()  # a newcomer that slept between looking and making would have made an old number
    _clear(folder, lease.token)
    lease.staging.mkdir()
    return lease, handle


def _check_free(folder: Path, token: int) -> None:
    """Raises LockedError unless lease ``token`` was given back, its holder is dead or its heart is still."""
    holder = read_holder(folder, token)
    if holder and (holder.released or _is_dead(folder, holder, token)):
        return
    now = _now(folder)
    with suppress(FileNotFoundError):
        quiet = now - Lease(folder, token).file.stat().st_mtime
        if quiet <= (holder.stale_seconds if holder else STALE_SECONDS):
            raise LockedError(_held(folder, holder))


def _is_dead(folder: Path, holder: Holder, token: int = 0) -> bool:
    """Whether the holder ran on this kernel and the operating system has taken its lock back."""
    if holder.kernel != _kernel():
        return False
    with suppress(OSError), Lease(folder, token or newest_token(folder)).file.open("rb") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    return False


def _held(folder: Path, holder: Holder | None) -> str:
    who = str(holder) if holder else "another run"
    return f"{folder} is being written by {who}. Wait for it, or give this run another output.path."


def _now(folder: Path) -> float:
    """The file server's clock."""
    probe = folder / FOLDER / f"probe-{uuid.uuid4().hex}"
    probe.touch()
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)


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


def _beat(file: Path, every: float, ended: Event) -> None:
    while not ended.wait(every):
        with suppress(OSError):
            os.utime(file)


def _release(lease: Lease) -> None:
    lease.check()
    holder = read_holder(lease.folder, lease.token)
    shutil.rmtree(lease.staging, ignore_errors=True)
    given_back: dict[str, Any] = (asdict(holder) if holder else {}) | {"released": True}
    temporary = lease.file.with_suffix(".tmp")
    temporary.write_text(json.dumps(given_back), "utf-8")
    lease.rename(temporary, lease.file)


def _kernel() -> str:
    """The running system's boot id; a value of its own where there is none, so that nothing is assumed."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    except OSError:
        return f"unknown-{os.getpid()}-{time.time_ns()}"
