"""The run store: sidecars and fitted states, keyed by fingerprint, made visible by a commit record.

``<root>/<fingerprint>/part-00003.parquet`` holds an operator's new columns for shard 3 and
``part-00003.json`` is its commit record: the part counts only once the record exists. A fitted
state is a folder renamed into place, committed by ``fit.json``. Nothing else is state. On an object store
the same lies under the same names: see :mod:`engine.storage.object_run_store`.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from connectors.sink import write_parquet
from connectors.storage import Place, make_folder, remove_tree
from engine.core.errors import system_error
from engine.core.json_files import write_json
from operators.base import Context, Executor

REPLAYS = "replays.json"


@dataclass(frozen=True)
class Commit:
    """What is recorded about one written part."""

    shard: int
    rows: int
    bytes: int
    sha256: str
    seconds: float
    quarantined: int = 0
    skipped: int = 0
    """Rows of a shard that could not be read and was left out."""


@dataclass(frozen=True)
class RunStore:
    """Sidecars of all operators of all runs over one output. Picklable; holds only the root."""

    root: Place

    def folder(self, fingerprint: str) -> Place:
        """Folder of one operator at one fingerprint."""
        return self.root / fingerprint

    def part(self, fingerprint: str, shard: int) -> Place:
        """Parquet file of one shard's new columns."""
        return self.folder(fingerprint) / f"part-{shard:05d}.parquet"

    def quarantine(self, fingerprint: str, shard: int) -> Place:
        """Parquet file of one shard's rejected rows."""
        return self.folder(fingerprint) / f"quarantine-{shard:05d}.parquet"

    def state(self, fingerprint: str) -> Path:
        """Folder of the operator's fitted state."""
        return _local(self.folder(fingerprint)) / "state"

    def carrying(self, executor: Executor, fingerprint: str, context: Context) -> Executor:
        """The executor for a fit into ``context.state``: its tasks see that folder on every host."""
        return executor

    def bring(self, states: Iterable[Path]) -> None:
        """Have these folders, as :meth:`state` named them on another host, on this one too."""

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
        """Write a part, then its record. A crash in between leaves the part uncommitted."""
        path = self.part(fingerprint, shard)
        make_folder(path.parent)
        written = write_parquet(table, path)
        record = Commit(shard, table.num_rows, written.n_bytes, written.sha256, seconds, quarantined, skipped)
        write_json(path.with_suffix(".json"), asdict(record))
        return record

    def committed(self, fingerprint: str) -> dict[int, Commit]:
        """Commit records by shard; one whose part is not there in full counts for nothing."""
        records = sorted(_local(self.folder(fingerprint)).glob("part-*.json"))
        commits = (found for path in records if (found := _read_commit(path)) is not None)
        return {commit.shard: commit for commit in commits}

    def written(self, fingerprint: str, shards: Iterable[int]) -> dict[int, float]:
        """When parts were committed: shard -> seconds since the epoch; 0 where that is not known any more."""
        records = {shard: self.part(fingerprint, shard).with_suffix(".json") for shard in shards}
        return {shard: _mtime(record) for shard, record in records.items()}

    def sweep(self, fingerprint: str) -> None:
        """Remove what killed writers left there; see :func:`sweep`."""
        sweep(self.folder(fingerprint))

    def replays(self) -> dict[str, int]:
        """Fingerprint -> how often it was to be computed again although nothing in it had changed."""
        try:
            found: dict[str, int] = json.loads((self.root / REPLAYS).read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        except OSError as error:  # without it, other work would be taken for done
            raise system_error(error) from None
        return found

    def replay(self, fingerprints: Iterable[str]) -> None:
        """Have these computed again, under other fingerprints. Only for who holds the output's lease."""
        counts = self.replays()
        write_json(self.root / REPLAYS, counts | {name: counts.get(name, 0) + 1 for name in fingerprints})

    def fitted(self, fingerprint: str) -> dict[str, Any] | None:
        """Record of a committed fit (its metrics), or None."""
        path = self.folder(fingerprint) / "fit.json"
        if not path.exists() or not self.state(fingerprint).is_dir():
            return None
        record: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return record

    @contextmanager
    def fitting(self, fingerprint: str) -> Iterator[Path]:
        """A scratch folder that becomes the state if the block ends without an error."""
        folder = _local(self.folder(fingerprint))
        scratch = folder / f".state-{uuid.uuid4().hex}.tmp"
        scratch.mkdir(parents=True)
        try:
            yield scratch
            shutil.rmtree(self.state(fingerprint), ignore_errors=True)
            scratch.replace(self.state(fingerprint))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def commit_fit(self, fingerprint: str, metrics: dict[str, float], seconds: float) -> None:
        """Make a finished fit visible."""
        record = {"metrics": metrics, "seconds": seconds}
        write_json(self.folder(fingerprint) / "fit.json", record)


def sweep(folder: Place) -> None:
    """Remove what killed writers left under temporary names. Only for who holds the output's lease."""
    for path in folder.glob(".*.tmp"):
        if path.is_dir():
            remove_tree(path)
        else:
            path.unlink(missing_ok=True)


def _mtime(path: Place) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _local(folder: Place) -> Path:
    """Of a store on a filesystem, which this class alone has."""
    if not isinstance(folder, Path):
        raise TypeError(f"{folder} is no folder of a filesystem: use store_of")
    return folder


def _read_commit(path: Path) -> Commit | None:
    """A commit record, or None where it or its part is not whole, as after a power cut."""
    try:
        found = Commit(**json.loads(path.read_text("utf-8")))
        whole = path.with_suffix(".parquet").stat().st_size == found.bytes
    except (OSError, ValueError, TypeError):
        return None
    return found if whole else None
