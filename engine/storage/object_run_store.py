"""The run store on an object store: sidecars and records are objects, states are folders that are copied.

Operators read and write a state as a folder of files. A fit writes into a scratch folder of this host. The
store puts its files below ``<fingerprint>/state/`` and then lists them in ``state.json``; the state exists
once this list does. A reader gets a copy on its own host, which is downloaded once and named by the content
of the list.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from connectors.storage import ObjectPath, Place, read_many
from engine.core.digests import digest
from engine.core.errors import InputError
from engine.core.json_files import json_value, to_json
from engine.storage.lease import Lease, newest_token
from engine.storage.run_store import COMMIT, Commit, RunStore, fit_record
from engine.storage.state_sync import (
    SyncedFolder,
    SyncingExecutor,
    download,
    file_sha256,
    several_hosts,
    snapshot,
    upload,
)
from operators.base import Context, Executor

STATE_LIST = "state.json"
EXCHANGED = ".synced-"
"""Beginning of the names of prefixes through which hosts exchange files; numbers of leases follow."""


def local_cache() -> Path:
    """Return this user's folder for copies of states, below the system's temporary folder (TMPDIR)."""
    folder = Path(tempfile.gettempdir()) / f"rowsieve-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()  # not the target of a link that another user may have made
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise InputError(
            f"{folder} is a link, belongs to another user, or is open to others, who could change the states "
            f"in it. Remove it, or set TMPDIR to a folder of your own."
        )
    return folder


@dataclass(frozen=True)
class ObjectRunStore(RunStore):
    """Implements :class:`engine.storage.run_store.RunStore`. Picklable; all hosts use the same paths."""

    root: ObjectPath
    cache: Path = field(default_factory=local_cache)

    def folder(self, fingerprint: str) -> ObjectPath:
        """Return the prefix of one operator at one fingerprint."""
        return self.root / fingerprint

    def committed(self, fingerprint: str) -> dict[int, Commit]:
        """Return the commit records by shard, without those whose part is missing or has another size."""
        listing = self.folder(fingerprint).listing()
        names = sorted(name for name in listing if name.startswith("part-") and name.endswith(".json"))
        contents = read_many([self.folder(fingerprint) / name for name in names])
        found = {}
        for name, content in zip(names, contents, strict=True):
            commit = _commit(content)
            part = listing.get(f"{name[:-5]}.parquet")
            if commit and part and part.st_size == commit.bytes:
                found[commit.shard] = commit
        return found

    def find_commit(self, fingerprint: str, shard: int) -> Commit | None:
        """Return the commit record of one shard, or None if :meth:`committed` would not have it."""
        part = self.part(fingerprint, shard)
        (content,) = read_many([part.with_suffix(".json")])
        commit = _commit(content)
        with suppress(FileNotFoundError):
            return commit if commit and part.stat().st_size == commit.bytes else None
        return None

    def commit_times(self, fingerprint: str, shards: Iterable[int]) -> dict[int, float]:
        """Return the commit time of each shard's part in seconds since 1970; 0 without a record."""
        listing = self.folder(fingerprint).listing()
        records = {shard: listing.get(f"part-{shard:05d}.json") for shard in shards}
        return {shard: record.st_mtime if record else 0.0 for shard, record in records.items()}

    def fitted(self, fingerprint: str) -> dict[str, Any] | None:
        """Return the record of a committed fit (its metrics), or None."""
        record, state = read_many([self.folder(fingerprint) / name for name in ("fit.json", STATE_LIST)])
        place = self.folder(fingerprint) / "fit.json"
        return fit_record(json_value(record, place), place) if record and state else None

    def state(self, fingerprint: str) -> Path:
        """Return this host's copy of the operator's state, or an unused path if there is no state."""
        (content,) = read_many([self.folder(fingerprint) / STATE_LIST])
        path = self._copy(fingerprint, content or b"")
        if content is not None:
            self._fetch(fingerprint, content, path)
        return path

    def ensure_local(self, states: Iterable[Path]) -> None:
        """Download states that :meth:`state` has returned on another host to the same paths here."""
        for path in states:
            if path.parent == self._copies and not path.is_dir():
                found = self.state(path.name.partition("-")[0])
                if found != path:
                    raise InputError(
                        f"{self.root}: the state {path.name} was replaced by another run. Run again."
                    )

    @contextmanager
    def fitting(self, fingerprint: str, lease: Lease | None = None) -> Iterator[Path]:
        """Yield a scratch folder of this host that becomes the state if the block ends without an error."""
        scratch = self._copies / f"scratch-{uuid.uuid4().hex}"
        scratch.mkdir(parents=True)
        try:
            yield scratch
            if lease is not None:
                lease.check()
            names = list(snapshot(scratch))
            upload(scratch, names, self.folder(fingerprint) / "state")
            sums = {name: file_sha256(scratch / name) for name in names}
            content = to_json({"files": sums}).encode()
            (self.folder(fingerprint) / STATE_LIST).write_bytes(content)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.with_name(f"{scratch.name}.json").unlink(missing_ok=True)

    def synced_executor(self, executor: Executor, fingerprint: str, context: Context) -> Executor:
        """Return an executor whose tasks see ``context.state`` on every host."""
        if executor.kind == "local" or not several_hosts():
            return executor
        remote = self.folder(fingerprint) / f".{context.state.name}.tmp"
        prepare = partial(self.ensure_local, list(context.states.values()))
        return SyncingExecutor(executor, SyncedFolder(context.state, remote), prepare)

    @property
    def _copies(self) -> Path:
        return self.cache / digest(str(self.root))[:16]

    def _copy(self, fingerprint: str, content: bytes) -> Path:
        return self._copies / f"{fingerprint}-{digest(content.hex())[:16]}"

    def _fetch(self, fingerprint: str, content: bytes, path: Path) -> None:
        if path.is_dir():
            return
        scratch = path.with_name(f"fetch-{uuid.uuid4().hex}")
        scratch.mkdir(parents=True)
        place, remote = self.folder(fingerprint) / STATE_LIST, self.folder(fingerprint) / "state"
        try:
            sums = _sums(json_value(content, place), place)
            download(remote, list(sums), scratch)
            for name, found in sums.items():
                if file_sha256(scratch / name) != found:
                    raise InputError(
                        f"{remote / name}: its SHA-256 is not the one in {STATE_LIST}: it was changed after "
                        f"the operator was fitted. Remove {self.folder(fingerprint)}, and it is fitted again."
                    )
            with suppress(OSError):  # another process of this host was faster
                scratch.replace(path)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def working_copy(place: Place, lease: Lease) -> Iterator[Path]:
    """Yield a folder on this host: the place itself, or a copy of a prefix, uploaded again at the end.

    Changes are also uploaded after an error, so that interrupted work can continue, but not once another
    writer has taken ``lease`` over. The copy stays for readers.
    """
    if isinstance(place, Path):
        yield place
        return
    copy = local_cache() / digest([place.root, place.key])[:16]
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    download(place, [name for name in place.tags_below() if not name.startswith(".")], copy)
    before = snapshot(copy)
    try:
        yield copy
    finally:
        lease.check()
        upload(copy, [name for name, entry in snapshot(copy).items() if before.get(name) != entry], place)


@contextmanager
def private_copy(place: ObjectPath) -> Iterator[Path]:
    """Yield a copy of a prefix for this process only. It is removed at the end, and nothing is uploaded."""
    copy = local_cache() / f"worker-{uuid.uuid4().hex}"
    copy.mkdir(parents=True)
    try:
        download(place, [name for name in place.tags_below() if not name.startswith(".")], copy)
        yield copy
    finally:
        shutil.rmtree(copy, ignore_errors=True)


@contextmanager
def synced_executor(executor: Executor, place: Place, copy: Path) -> Iterator[Executor]:
    """Yield an executor whose tasks see ``copy``, this host's copy of a prefix, on every host.

    Files are exchanged through a prefix of its own: a run that has lost its lease empties it late, when its
    successor works on the same place.
    """
    if isinstance(place, Path) or executor.kind == "local" or not several_hosts():
        yield executor
        return
    token = newest_token(place)
    _remove_left_behind(place, token)
    folder = SyncedFolder(copy, place / f"{EXCHANGED}{token:08d}-{uuid.uuid4().hex}")
    folder.forget()
    try:
        yield SyncingExecutor(executor, folder)
    finally:
        folder.forget()
        folder.remote.remove_below()


def _remove_left_behind(place: ObjectPath, token: int) -> None:
    """Remove files that runs killed long ago have exchanged: under the leases before the last one."""
    for entry in place.iterdir():
        number = entry.name.removeprefix(EXCHANGED).partition("-")[0]
        if entry.name.startswith(EXCHANGED) and number.isdigit() and int(number) < token - 1:
            entry.remove_below()


def _sums(listed: Any, place: Place) -> dict[str, str]:
    """Return the digests of a state's files by their names. Raises InputError for a list that is none."""
    found = listed.get("files") if isinstance(listed, dict) else None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise InputError(f"{place} is no list of a state's files. Remove its folder, and it is made again.")
    return found


def _commit(content: bytes | None) -> Commit | None:
    try:
        return COMMIT.validate_python(json_value(content or b"", "a commit record"))
    except ValueError:
        return None
