"""Synchronisation of folders between hosts that share no disk, through a prefix of an object store.

Operators write a state as files of one folder, from the driver and from their tasks. If the output is an
object store, no folder is visible on all hosts. Each host then has a folder of its own under the same path:
before a task the host gets what others have changed, and after it the host puts what the task has changed.
Tasks of one pass write different files, as they do on a shared disk. Tasks of one host share its folder: one
after the other exchanges files, and what a task is still writing has a name that begins with a dot.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Literal, TypeVar, cast

from connectors.storage import ObjectPath, Tag, write_whole
from engine.core.errors import InputError
from engine.core.json_files import read_json
from operators.base import Executor, Resources

T = TypeVar("T")
R = TypeVar("R")
MAX_TRANSFERS = 16
"""Transfers to or from the object store at the same time."""
Snapshot = dict[str, tuple[int, int]]
"""Size in bytes and modification time in ns of every file of a folder, by its path in the folder."""


def download(source: ObjectPath, names: Sequence[str], folder: Path) -> None:
    """Copy objects into a folder, in parts. A reader of the folder never sees a partially written file.

    Raises InputError for a name that leads out of the folder.
    """
    for name in names:
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts:
            raise InputError(f"{source}: {name!r} leads out of its folder. Remove it.")
        (folder / place).parent.mkdir(parents=True, exist_ok=True)

    def get(name: str) -> None:
        file = tempfile.NamedTemporaryFile(dir=folder.parent, delete=False)  # noqa: SIM115
        try:
            with file:  # a full disk is noticed at its end at the latest
                (source / name).read_into(cast(BinaryIO, file))
            Path(file.name).replace(folder / name)
        except BaseException:
            Path(file.name).unlink()
            raise

    with ThreadPoolExecutor(MAX_TRANSFERS) as pool:
        list(pool.map(get, names))


def upload(folder: Path, names: Sequence[str], target: ObjectPath) -> dict[str, Tag]:
    """Copy files of a folder to an object store, in parts; return the tag of each object's content."""
    with ThreadPoolExecutor(MAX_TRANSFERS) as pool:
        tags = pool.map(lambda name: (target / name).write_file(folder / name), names)
        return dict(zip(names, tags, strict=True))


def snapshot(folder: Path) -> Snapshot:
    """Return the size and the modification time of every file below a folder.

    Hidden files are left out: they are temporary ones, which another process of the host renames or removes.
    """
    found: Snapshot = {}
    for path in sorted(folder.rglob("*")):
        with suppress(FileNotFoundError):
            if path.is_file() and not path.name.startswith("."):
                stat = path.stat()
                found[path.relative_to(folder).as_posix()] = (stat.st_size, stat.st_mtime_ns)
    return found


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class SyncedFolder:
    """A folder of this host and the prefix through which the hosts exchange its files. Picklable."""

    folder: Path
    remote: ObjectPath

    def pull(self) -> Snapshot:
        """Download files that other hosts have changed, delete removed ones, and return the snapshot.

        Folders that this empties are removed as well: an operator may list folders. A file that another task
        of this host has changed and not yet pushed is left as it is.
        """
        _make_private(self.folder)
        with self._locked():
            known, remote_tags = self._known(), self.remote.tags_below()
            changed = [name for name, tag in remote_tags.items() if not tag.same_content(known.get(name))]
            download(self.remote, changed, self.folder)
            for name in known.keys() - remote_tags.keys():
                (self.folder / name).unlink(missing_ok=True)
                self._remove_empty(Path(name).parent)
            self._remember(remote_tags)
            return snapshot(self.folder)

    def _remove_empty(self, name: Path) -> None:
        """Remove a folder below this host's folder, and those above it, as far as they are empty."""
        for place in (name, *name.parents):
            if place == Path():
                return
            try:
                (self.folder / place).rmdir()
            except OSError:
                return

    def push(self, before: Snapshot) -> None:
        """Upload the files that have changed since a snapshot, and remove those that no longer exist."""
        with self._locked():
            after = snapshot(self.folder)
            changed = [name for name, entry in after.items() if before.get(name) != entry]
            self._remember(self._known() | upload(self.folder, changed, self.remote))
            for name in before.keys() - after.keys():
                (self.remote / name).unlink(missing_ok=True)

    def make_folders(self, names: Sequence[str]) -> None:
        """Create folders below this host's folder: only files are exchanged, and a task may expect these."""
        for name in names:
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep the other processes of this host from exchanging files of the folder meanwhile.

        Otherwise one could lose the other's entry in the index, and then download an old file over a new one.
        """
        _make_private(self.folder.parent)
        with self.folder.with_name(f".{self.folder.name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def forget(self) -> None:
        """Remove the index of this host's contents. To be called when the folder was created again."""
        self._index.unlink(missing_ok=True)

    @property
    def _index(self) -> Path:
        """File with the contents that this host has. Losing an entry costs one more download."""
        return self.folder.with_name(f"{self.folder.name}.json")

    def _known(self) -> dict[str, Tag]:
        try:
            return {name: Tag(*tag) for name, tag in read_json(self._index).items()}
        except FileNotFoundError:
            return {}

    def _remember(self, tags: dict[str, Tag]) -> None:
        write_whole(self._index, json.dumps(tags).encode())


class SyncingExecutor:
    """Implements ``operators.base.Executor``: every task sees one synchronised folder on its host.

    Its kind is "local", since workers that operators start by themselves, such as those of Ray Train, would
    need a folder that all hosts see.
    """

    kind: Literal["local", "ray"] = "local"

    def __init__(
        self, executor: Executor, folder: SyncedFolder, prepare: Callable[[], None] | None = None
    ) -> None:
        """``prepare`` copies other files that a task reads to its host. It must be picklable."""
        self._executor, self._folder, self._prepare = executor, folder, prepare
        self._before: Snapshot = {}

    def map(
        self, fn: Callable[[T], R], items: Sequence[T], *, resources: Resources | None = None
    ) -> Iterator[R]:
        """Yield ``fn(item)`` in the order of the items; the driver has a task's files before its result."""
        self._folder.push(self._before)
        here = self._folder.folder
        folders = [path.relative_to(here).as_posix() for path in sorted(here.rglob("*")) if path.is_dir()]
        task = partial(_with_synced_folder, fn, self._prepare, self._folder, folders)
        for result in self._executor.map(task, items, resources=resources or Resources()):
            self._before = self._folder.pull()
            yield result
        self._before = self._folder.pull()


def _make_private(folder: Path) -> None:
    """Create a folder and those above it for this user only: one of them may be the folder of all copies."""
    for path in reversed([folder, *folder.parents]):
        if not path.exists():
            path.mkdir(mode=0o700, exist_ok=True)


def several_hosts() -> bool:
    """Return whether the cluster that this process has joined has several nodes."""
    import ray

    return sum(bool(node["Alive"]) for node in ray.nodes()) > 1


def _with_synced_folder(
    fn: Callable[[T], R],
    prepare: Callable[[], None] | None,
    folder: SyncedFolder,
    folders: Sequence[str],
    item: T,
) -> R:
    if prepare:
        prepare()
    before = folder.pull()
    folder.make_folders(folders)
    result = fn(item)
    folder.push(before)
    return result
