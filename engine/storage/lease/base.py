"""The holder of a lease, and the operations that a lease permits."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import socket
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import pyarrow as pa
from pydantic import TypeAdapter

from connectors.sink import Written, write_parquet
from connectors.storage import Place, link, write_whole
from engine.core.errors import LockedError
from engine.core.json_files import read_json

FOLDER = ".lease"
LEASE = re.compile(r"([0-9]{8,})\.json")
"""Names of lease files."""
STALE_SECONDS = 60.0
"""A lease without a heartbeat for longer than this may be taken over."""


@dataclass(frozen=True)
class Holder:
    """The writer that a lease file names. ``kernel`` is the boot id of its host, new at each restart."""

    who: str
    host: str
    pid: int
    since: str
    kernel: str
    stale_seconds: float = STALE_SECONDS
    released: bool = False
    nonce: str = ""
    """Random text that distinguishes two holders created at the same moment."""

    def __str__(self) -> str:
        return f"{self.who} (process {self.pid} on {self.host}, since {self.since})"

    def to_json(self) -> str:
        """Return the content of the lease file."""
        return json.dumps(asdict(self))


_HOLDER = TypeAdapter(Holder)


@dataclass(frozen=True)
class Lease:
    """The right to write into ``folder`` as its writer number ``token``. Picklable; workers check it too.

    Every method but :meth:`renew` raises LockedError once another writer has taken the lease over.
    """

    folder: Place
    token: int

    @property
    def file(self) -> Place:
        """Return the path of the lease file."""
        return self.folder / FOLDER / f"{self.token:08d}.json"

    @property
    def staging(self) -> Place:
        """Place of the files that this writer is about to publish. A writer that takes over removes it."""
        return self.file.with_suffix(".d")

    def check(self) -> None:
        """Raise LockedError if another writer has taken this lease over."""
        if newest_token(self.folder) != self.token:
            raise LockedError(self.lost_message())

    def parts_folder(self, version: Place) -> Place:
        """Return the folder into which the parts of a version are written before it is published."""
        raise NotImplementedError

    def put_part(self, place: Place, table: pa.Table) -> Written:
        """Write ``table`` as the part ``place`` and return its size and digest."""
        return write_parquet(table, place, root=self.folder)

    def put_file(self, place: Place, data: bytes) -> None:
        """Write a small file into the folder of the parts. Every writer writes the same bytes."""
        write_whole(place, data, root=self.folder)

    def reuse_part(self, source: Place, place: Place) -> None:
        """Link or copy a published part of another version to ``place``, byte for byte."""
        link(source, place, root=self.folder)

    def remove_unfinished_versions(self, versions: Place, keep: str) -> tuple[str, ...]:
        """Remove unfinished versions except ``keep`` and return their names.

        On a filesystem there are none, since their parts lie in the staging folder of their writer.
        """
        return ()

    def replace_folder(self, new: Path, final: Path) -> None:
        """Replace a folder of the filesystem by a finished one.

        Once another writer has taken the lease over, nothing at ``final`` changes any more.
        """
        raise NotImplementedError

    @contextmanager
    def removing(self, version: Place) -> Iterator[None]:
        """Keep other writers from a published version that the block removes with :meth:`discard`."""
        self.check()
        yield

    def discard(self, place: Place) -> None:
        """Remove a file or folder of the output; silent where there is none.

        Once another writer has taken the lease over, no version that it publishes or makes current loses
        anything.
        """
        raise NotImplementedError

    def publish(self, version: Place, manifest: str) -> None:
        """Make the parts visible as a version, its manifest last."""
        raise NotImplementedError

    def point(self, file: Place, version: str | None) -> None:
        """Make a published version the current one; None: no version is current any more."""
        raise NotImplementedError

    def renew(self) -> None:
        """Renew the heartbeat of the lease."""
        raise NotImplementedError

    def release(self) -> None:
        """Give the lease back."""
        raise NotImplementedError

    def lost_message(self) -> str:
        """Return the error text for a writer that has lost its lease."""
        found = read_holder(self.folder)
        who = str(found) if found else "another run"
        return (
            f"{self.folder} has been taken over by {who}, as this run had given no sign of life for too long "
            f"(was it suspended?). What it had committed is kept; nothing of it is published. Run it again."
        )

    def released_record(self) -> str:
        """Return the content of the lease file after its release."""
        holder = read_holder(self.folder, self.token)
        return json.dumps((asdict(holder) if holder else {}) | {"released": True})


def newest_token(folder: Place) -> int:
    """Return the number of the newest lease; 0 if there was none."""
    with suppress(FileNotFoundError):
        names = (LEASE.fullmatch(entry.name) for entry in (folder / FOLDER).iterdir())
        return max((int(name[1]) for name in names if name), default=0)
    return 0


def read_holder(folder: Place, token: int = 0) -> Holder | None:
    """Return the holder of the newest lease, or of the one with that token; None if absent or unreadable."""
    file = Lease(folder, token or newest_token(folder)).file
    try:
        found = _HOLDER.validate_python(read_json(file))
        datetime.fromisoformat(found.since)
    except (OSError, ValueError):
        return None
    return found


def seconds_since_heartbeat(folder: Place) -> float | None:
    """Return the seconds since the last heartbeat by this host's clock; None if there is no lease."""
    with suppress(OSError):
        return max(0.0, time.time() - Lease(folder, newest_token(folder)).file.stat().st_mtime)
    return None


def has_active_writer(folder: Place) -> bool:
    """Return whether a writer is active, judged by its heartbeat. The call takes no lease.

    A heartbeat that is old by this host's clock is compared with the storage's: this clock may be fast.
    """
    holder, silent_seconds = read_holder(folder), seconds_since_heartbeat(folder)
    if holder is None or holder.released or silent_seconds is None:
        return False
    lease = Lease(folder, newest_token(folder))
    if silent_seconds > holder.stale_seconds:
        with suppress(OSError):  # of a reader that may not write there
            silent_seconds = _storage_time(folder) - lease.file.stat().st_mtime
    return silent_seconds <= holder.stale_seconds and not is_dead(lease, holder)


def check_free(lease: Lease) -> None:
    """Raise LockedError unless the lease was released, its holder is dead or its heartbeat is stale."""
    holder = read_holder(lease.folder, lease.token)
    if holder and (holder.released or is_dead(lease, holder)):
        return
    now = _storage_time(lease.folder)
    with suppress(FileNotFoundError):
        silent_seconds = now - lease.file.stat().st_mtime
        if silent_seconds <= (holder.stale_seconds if holder else STALE_SECONDS):
            raise LockedError(locked_message(lease.folder, holder))


def is_dead(lease: Lease, holder: Holder) -> bool:
    """Return whether the holder ran here since the last restart, and the system has released its lock."""
    if holder.kernel != boot_id():
        return False
    with suppress(OSError), lock_file(lease, holder).open("rb") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    return False


def lock(handle: IO[str]) -> None:
    """Lock a file as long as it is open. Without support for locks, only the heartbeat decides."""
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_file(lease: Lease, holder: Holder) -> Path:
    """Return the file that the holder keeps locked: the lease file, or a temporary one for object stores."""
    if isinstance(lease.file, Path):
        return lease.file
    name = hashlib.sha256(f"{lease.file} {holder.nonce}".encode()).hexdigest()[:24]
    return Path(tempfile.gettempdir()) / f"rowsieve-lease-{name}.lock"


def new_holder(who: str, stale_seconds: float) -> Holder:
    """Return a record of this process as holder, starting now."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    host, nonce = socket.gethostname(), uuid.uuid4().hex
    return Holder(who, host, os.getpid(), since, boot_id(), stale_seconds, nonce=nonce)


def locked_message(folder: Place, holder: Holder | None) -> str:
    """Return the error text for a run that finds the lease held."""
    who = str(holder) if holder else "another run"
    return f"{folder} is being written by {who}. Wait for it, or give this run another output.path."


def boot_id() -> str:
    """Return the boot id of the running system; a unique text where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    except OSError:
        return f"unknown-{os.getpid()}-{time.time_ns()}"


def _storage_time(folder: Place) -> float:
    """Return the time by the clock of the file server or the object store."""
    probe = folder / FOLDER / f"probe-{uuid.uuid4().hex}"
    write_whole(probe, b"")
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)
