"""The run store: sidecars and fitted states by fingerprint. They become visible by a commit record.

``<root>/<fingerprint>/part-00003.parquet`` holds an operator's new columns for shard 3, and
``part-00003.json`` is its commit record; the part counts only once the record exists. A fitted state is a
folder that is renamed into its place and committed by ``fit.json``. An object store has the same layout: see
:mod:`engine.storage.object_run_store`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Required

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from connectors.sink import write_parquet
from connectors.storage import Place, make_folder, remove_file, remove_tree
from connectors.storage.beneath import rename_beneath
from engine.core.errors import system_error
from engine.core.json_files import DamagedFileError, read_json, write_json
from engine.storage.lease import Lease
from operators.base import Context, Executor
from operators.bounded_json import BadJsonError

REPLAYS = "replays.json"
MAX_REMEMBERED = 2**14
"""Commit records that a process remembers."""


@dataclass(frozen=True)
class Commit:
    """The record of one written part."""

    shard: int
    rows: int
    bytes: int
    sha256: str
    seconds: float
    quarantined: int = 0
    skipped: int = 0
    """Rows of a shard that cannot be read and is skipped."""


COMMIT = TypeAdapter(Commit)
_REPLAYS = TypeAdapter(dict[str, int])


class _Fit(TypedDict, total=False):
    metrics: Required[dict[str, float]]
    seconds: float


_FIT = TypeAdapter(_Fit)


@dataclass(frozen=True)
class RunStore:
    """The sidecars and states of all runs over one output. Picklable; it holds only the root."""

    root: Place

    @property
    def output(self) -> Place:
        """The output that the store is in; beneath it, no link is followed."""
        return self.root.parent

    def folder(self, fingerprint: str) -> Place:
        """Return the folder of one operator at one fingerprint."""
        return self.root / fingerprint

    def part(self, fingerprint: str, shard: int) -> Place:
        """Return the path of the Parquet file with one shard's new columns."""
        return self.folder(fingerprint) / f"part-{shard:05d}.parquet"

    def quarantine(self, fingerprint: str, shard: int) -> Place:
        """Return the path of the Parquet file with one shard's quarantined rows."""
        return self.folder(fingerprint) / f"quarantine-{shard:05d}.parquet"

    def state(self, fingerprint: str) -> Path:
        """Return the folder of the operator's fitted state."""
        return _local(self.folder(fingerprint)) / "state"

    def synced_executor(self, executor: Executor, fingerprint: str, context: Context) -> Executor:
        """Return an executor whose tasks see ``context.state`` on every host."""
        return executor

    def ensure_local(self, states: Iterable[Path]) -> None:
        """Make states available on this host whose paths :meth:`state` has returned on another one."""

    def commit(
        self,
        fingerprint: str,
        shard: int,
        table: pa.Table,
        *,
        seconds: float,
        quarantined: int = 0,
        skipped: int = 0,
    ) -> Commit:
        """Write a part, then its record. After a crash in between, the part is not committed."""
        path = self.part(fingerprint, shard)
        make_folder(path.parent, root=self.output)
        written = write_parquet(table, path, root=self.output)
        record = Commit(
            shard=shard,
            rows=table.num_rows,
            bytes=written.n_bytes,
            sha256=written.sha256,
            seconds=seconds,
            quarantined=quarantined,
            skipped=skipped,
        )
        write_json(path.with_suffix(".json"), asdict(record), root=self.output)
        return record

    def committed(self, fingerprint: str) -> dict[int, Commit]:
        """Return the commit records by shard, without those whose part is missing or has another size."""
        records = sorted(_local(self.folder(fingerprint)).glob("part-*.json"))
        commits = (found for path in records if (found := _read_commit(path)) is not None)
        return {commit.shard: commit for commit in commits}

    def find_commit(self, fingerprint: str, shard: int) -> Commit | None:
        """Return the commit record of one shard, or None if :meth:`committed` would not have it."""
        return _read_commit(_local(self.folder(fingerprint)) / f"part-{shard:05d}.json")

    def commit_times(self, fingerprint: str, shards: Iterable[int]) -> dict[int, float]:
        """Return the commit time of each shard's part in seconds since 1970; 0 without a record."""
        records = {shard: self.part(fingerprint, shard).with_suffix(".json") for shard in shards}
        return {shard: _mtime(record) for shard, record in records.items()}

    def sweep(self, fingerprint: str) -> None:
        """Remove temporary files that killed writers left; see :func:`sweep`."""
        sweep(self.folder(fingerprint), root=self.output)

    def replays(self) -> dict[str, int]:
        """Return how often each fingerprint was replayed, that is, computed again with the same inputs."""
        try:
            return _REPLAYS.validate_python(read_json(self.root / REPLAYS), strict=True)
        except (FileNotFoundError, ValueError):
            return {}
        except OSError as error:  # without the counts, work that has to be repeated would count as done
            raise system_error(error) from None

    def replay(self, fingerprints: Iterable[str]) -> None:
        """Count one more replay of each fingerprint, so that its operator gets another one.

        The caller holds the output's lease.
        """
        counts = self.replays()
        counts |= {name: counts.get(name, 0) + 1 for name in fingerprints}
        write_json(self.root / REPLAYS, counts, root=self.output)

    def fitted(self, fingerprint: str) -> dict[str, Any] | None:
        """Return the record of a committed fit (its metrics), or None."""
        path = self.folder(fingerprint) / "fit.json"
        if not path.exists() or not self.state(fingerprint).is_dir():
            return None
        return fit_record(read_json(path), path)

    @contextmanager
    def fitting(self, fingerprint: str, lease: Lease | None = None) -> Iterator[Path]:
        """Yield a scratch folder that becomes the state if the block ends without an error.

        Parameters
        ----------
        lease
            The output's lease. A writer that has lost it changes nothing, however late it
            continues. None only if nobody else writes.

        Raises
        ------
        LockedError
            Another writer has taken the lease over.

        """
        folder = _local(self.folder(fingerprint))
        scratch = folder / f".state-{uuid.uuid4().hex}.tmp"
        make_folder(scratch, root=self.output)
        try:
            yield scratch
            if lease is None:
                remove_tree(self.state(fingerprint), root=self.output)
                rename_beneath(_local(self.output), scratch, self.state(fingerprint))
            else:
                lease.replace_folder(scratch, self.state(fingerprint))
        finally:
            remove_tree(scratch, root=self.output)

    def commit_fit(self, fingerprint: str, metrics: dict[str, float], seconds: float) -> None:
        """Commit a finished fit."""
        record = {"metrics": metrics, "seconds": seconds}
        write_json(self.folder(fingerprint) / "fit.json", record, root=self.output)


def fit_record(value: Any, place: Place) -> dict[str, Any]:
    """Return the value of a ``fit.json``. Raises DamagedFileError unless it has the form of one."""
    try:
        _FIT.validate_python(value, strict=True)
    except ValidationError:
        why = "it is not a record of a fit, with metrics and seconds"
        raise DamagedFileError(str(BadJsonError(place, why))) from None
    return dict(value)


def sweep(folder: Place, *, root: Place) -> None:
    """Remove files with temporary names that killed writers left. The caller holds the output's lease.

    No link beneath ``root``, the output, is followed.
    """
    for path in folder.glob(".*.tmp"):
        if path.is_dir():
            remove_tree(path, root=root)
        else:
            remove_file(path, root=root)


def _mtime(path: Place) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _local(folder: Place) -> Path:
    """Return the folder as a path of a filesystem, the only kind that this class works on."""
    if not isinstance(folder, Path):
        raise TypeError(f"{folder} is not a folder of a filesystem: open its run store with store_of")
    return folder


def _read_commit(path: Path) -> Commit | None:
    """Read a commit record; None if it or its part is incomplete, as after a power cut."""
    try:
        stat = path.lstat()
        found = _parsed_commit(path, stat.st_size, stat.st_mtime_ns, stat.st_ino)
        whole = path.with_suffix(".parquet").stat().st_size == found.bytes
    except (OSError, ValueError):
        return None
    return found if whole else None


@lru_cache(MAX_REMEMBERED)
def _parsed_commit(path: Path, size: int, mtime: int, inode: int) -> Commit:
    """Read a commit record once in a process, as every step of a run asks for those of all shards.

    The figures of the file tell it from a later one of the same name.
    """
    return COMMIT.validate_python(read_json(path))
