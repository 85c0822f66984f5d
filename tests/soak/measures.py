"""What an output and MLflow's database hold after a night."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.storage.manifest import published_versions

TABLES = ("experiments", "runs", "metrics", "params", "tags", "inputs", "datasets", "model_versions")
"""Tables of MLflow whose rows are counted."""


@dataclass
class Figures:
    """Figures of one night, as one line of the record."""

    night: int
    fault: str
    outcome: str
    """predict, refit, full, or same: nothing was new."""
    new_rows: int
    rows: int
    shards: int
    seconds: float
    """Of the night's run in the driver that carries out all nights."""
    handles: int
    threads: int
    peak_mib: float
    mib: float
    files: dict[str, int] = field(default_factory=dict)
    """Files by the first folder of the output."""
    stored: int = 0
    """Folders of the run store."""
    state_files: int = 0
    """Most files of such a folder beside those of its shards."""
    versions: int = 0
    cpu_seconds: float = 0.0
    trained: bool = False
    promoted: bool = False
    mlflow: dict[str, int] = field(default_factory=dict)
    """Rows of each table of MLflow."""
    temporary: int = 0
    """Files in the folder for temporary files."""
    compared: str = ""
    """With what the version was compared, if it was."""


def files_of(output: Path) -> dict[str, int]:
    """Count the files of an output by the first folders of their paths."""
    found: Counter[str] = Counter()
    for path in output.rglob("*"):
        if path.is_file():
            parts = path.relative_to(output).parts
            found["/".join(parts[:2]) if parts[0] == "runs" and len(parts) > 2 else parts[0]] += 1
    return dict(sorted(found.items()))


def manifest_of(output: Path, version: str = "") -> dict[str, Any]:
    """Return the manifest of a version, by default of the current one."""
    name = version or (output / "CURRENT").read_text().split()[0]
    content: dict[str, Any] = json.loads((output / "versions" / name / "manifest.json").read_text())
    return content


def needed(output: Path) -> set[str]:
    """Return the folders of the run store that the published versions need."""
    return {
        entry["fingerprint"]
        for name in published_versions(output)
        for entry in manifest_of(output, name)["operators"]
    }


def stored(output: Path) -> set[str]:
    """Return the folders of the run store."""
    return {path.name for path in (output / "store").iterdir() if path.is_dir()}


def state_files(output: Path) -> int:
    """Return the most files of a folder of the run store beside those of its shards, less one for each shard.

    Every shard has a part and its record, and a file where rows were set aside. A state may have one file for
    each shard that was learnt from. Raises AssertionError for more or fewer parts.
    """
    most = 0
    for name in published_versions(output):
        manifest = manifest_of(output, name)
        shards = len(manifest["source"]["shards"])
        for entry in manifest["operators"]:
            folder = output / "store" / entry["fingerprint"]
            parts, aside = len(list(folder.glob("part-*"))), len(list(folder.glob("quarantine-*")))
            assert parts == 2 * shards, f"{entry['name']} of {name}: {parts} files of {shards} shards"
            assert aside <= shards
            files = sum(path.is_file() for path in folder.rglob("*"))
            most = max(most, files - parts - aside - shards)
    return most


def mlflow_rows(database: Path) -> dict[str, int]:
    """Count the rows of MLflow's tables."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return {
            table: int(connection.execute(f"select count(*) from {table}").fetchone()[0]) for table in TABLES
        }


def training_of(output: Path) -> dict[str, Any] | None:
    """Return the record of the current version's training, if it has one."""
    name = (output / "CURRENT").read_text().split()[0]
    path = output / "runs" / f"{name}.train.json"
    return json.loads(path.read_text()) if path.exists() else None
