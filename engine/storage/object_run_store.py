"""The run store on an object store: sidecars and records are objects, states are folders that are copied.

Operators write and read a state as a folder of files. Here a fit gets a scratch folder of this host; what it
leaves there is put below ``<fingerprint>/state/``, then listed in ``state.json``: that PUT makes it whole.
Whoever reads a state gets a copy in a folder of its own host, named by what the list says, fetched once.
"""

from __future__ import annotations

import json
import os
import shutil
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
from engine.core.json_files import to_json
from engine.storage.folder_copies import fetch, put, sha256, stamps
from engine.storage.run_store import Commit, RunStore
from operators.base import Context, Executor

LIST = "state.json"


def local_cache() -> Path:
    """This user's folder for copies of states, below the system's temporary folder (TMPDIR)."""
    folder = Path(tempfile.gettempdir()) / f"rowsieve-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise InputError(f"{folder} belongs to somebody else. Set TMPDIR to a folder of your own.")
    return folder


@dataclass(frozen=True)
class ObjectRunStore(RunStore):
    """A :class:`engine.storage.run_store.RunStore`. Picklable; hosts keep copies under the same path."""

    root: ObjectPath
    cache: Path = field(default_factory=local_cache)

    def folder(self, fingerprint: str) -> ObjectPath:
        """Prefix of one operator at one fingerprint."""
        return self.root / fingerprint

    def committed(self, fingerprint: str) -> dict[int, Commit]:
        """Commit records by shard; one whose part is not there in full counts for nothing."""
        there = self.folder(fingerprint).listing()
        names = sorted(name for name in there if name.startswith("part-") and name.endswith(".json"))
        contents = read_many([self.folder(fingerprint) / name for name in names])
        found = {}
        for name, content in zip(names, contents, strict=True):
            commit = _commit(content)
            part = there.get(f"{name[:-5]}.parquet")
            if commit and part and part.st_size == commit.bytes:
                found[commit.shard] = commit
        return found

    def written(self, fingerprint: str, shards: Iterable[int]) -> dict[int, float]:
        """When parts were committed: shard -> seconds since the epoch; 0 where that is not known any more."""
        there = self.folder(fingerprint).listing()
        records = {shard: there.get(f"part-{shard:05d}.json") for shard in shards}
        return {shard: record.st_mtime if record else 0.0 for shard, record in records.items()}

    def fitted(self, fingerprint: str) -> dict[str, Any] | None:
        """Record of a committed fit (its metrics), or None."""
        record, state = read_many([self.folder(fingerprint) / name for name in ("fit.json", LIST)])
        return json.loads(record) if record and state else None

    def state(self, fingerprint: str) -> Path:
        """This host's copy of the operator's fitted state; an empty folder's path where there is none."""
        (content,) = read_many([self.folder(fingerprint) / LIST])
        path = self._copy(fingerprint, content or b"")
        if content is not None:
            self._fetch(fingerprint, content, path)
        return path

    def bring(self, states: Iterable[Path]) -> None:
        """Have these folders, as :meth:`state` named them on another host, on this one too."""
        for path in states:
            if path.parent == self._copies and not path.is_dir():
                found = self.state(path.name.partition("-")[0])
                if found != path:
                    raise InputError(
                        f"{self.root}: the state {path.name} was made anew meanwhile. Run again."
                    )

    @contextmanager
    def fitting(self, fingerprint: str) -> Iterator[Path]:
        """A scratch folder of this host that becomes the state if the block ends without an error."""
        scratch = self._copies / f"scratch-{uuid.uuid4().hex}"
        scratch.mkdir(parents=True)
        try:
            yield scratch
            names = list(stamps(scratch))
            put(scratch, names, self.folder(fingerprint) / "state")
            sums = {name: sha256(scratch / name) for name in names}
            content = to_json({"files": sums}).encode()
            (self.folder(fingerprint) / LIST).write_bytes(content)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.with_name(f"{scratch.name}.json").unlink(missing_ok=True)

    def carrying(self, executor: Executor, fingerprint: str, context: Context) -> Executor:
        """An executor for a fit on hosts that share no disk."""
        from engine.storage.state_sync import Carrying, Mirror, several_hosts

        if executor.kind == "local" or not several_hosts():
            return executor
        meeting = self.folder(fingerprint) / f".{context.state.name}.tmp"
        bring = partial(self.bring, list(context.states.values()))
        return Carrying(executor, Mirror(context.state, meeting), bring)

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
        try:
            fetch(self.folder(fingerprint) / "state", list(json.loads(content)["files"]), scratch)
            with suppress(OSError):  # another process of this host was faster
                scratch.replace(path)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def working_copy(place: Place) -> Iterator[Path]:
    """The folder itself; for a prefix a copy on this host, whose changed files are put back at the end.

    They are put back after an error too, so that what was broken off can go on. The copy stays for readers.
    """
    if isinstance(place, Path):
        yield place
        return
    copy = local_cache() / digest([place.root, place.key])[:16]
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    fetch(place, [name for name in place.tags_below() if not name.startswith(".")], copy)
    before = stamps(copy)
    try:
        yield copy
    finally:
        put(copy, [name for name, stamp in stamps(copy).items() if before.get(name) != stamp], place)


@contextmanager
def carried(executor: Executor, place: Place, copy: Path) -> Iterator[Executor]:
    """An executor whose tasks have ``copy``, this host's copy of a prefix, on whichever host they run."""
    from engine.storage.state_sync import Carrying, Mirror, several_hosts

    if isinstance(place, Path) or executor.kind == "local" or not several_hosts():
        yield executor
        return
    mirror = Mirror(copy, place / ".carried")
    mirror.forget()
    try:
        yield Carrying(executor, mirror)
    finally:
        mirror.forget()
        mirror.meeting.remove_below()


def _commit(content: bytes | None) -> Commit | None:
    try:
        return Commit(**json.loads(content or b""))
    except (ValueError, TypeError):
        return None
