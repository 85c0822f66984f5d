"""The source of the simulated nights: files that arrive, are changed, damaged, copied and withdrawn.

Everything is drawn from one seed. A file is written under a hidden name and renamed, so that a link to an
older file keeps its bytes; :class:`World` keeps such a link to every content, by its digest.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FAULTS = (
    "killed",
    "killed twice",
    "MLflow away",
    "damaged file",
    "faulty rows",
    "changed file",
    "copied file",
    "withdrawn file",
    "new column",
)
"""Each is drawn equally often; the nights between them are calm."""
CALM_NIGHTS = 2
"""Nights before the first fault."""
FILES = 2
"""New files of a night."""
ROWS = (60, 180)
"""Fewest and most rows of a new file."""
NIGHTS_BETWEEN_JUMPS = 11
"""Every so many nights a column is moved by a standard deviation for one night: operators learn again."""


@dataclass(frozen=True)
class Night:
    """One night of the plan: its number, from 1 on, and its fault; empty: a calm one."""

    number: int
    fault: str = ""


def plan(nights: int, seed: int) -> list[Night]:
    """Draw the faults of the nights: every kind once in each round, and calm nights, in another order."""
    rng = np.random.default_rng([seed, 1])
    waiting: list[str] = []
    found = []
    for number in range(1, nights + 1):
        if not waiting:
            one_round = [*FAULTS, *[""] * (len(FAULTS) // 2)]
            waiting = [str(fault) for fault in rng.permutation(np.array(one_round))]
        found.append(Night(number, waiting.pop() if number > CALM_NIGHTS else ""))
    return found


def rows(seed: int, night: int, file: int, first_id: int) -> pa.Table:
    """Return the rows of one new file.

    A cue agrees with the label in 90 % of the rows at first and in 75 % after fifty nights; ``c`` says
    nothing of the label, and is moved on some nights.
    """
    rng = np.random.default_rng([seed, 2, night, file])
    n = int(rng.integers(*ROWS))
    y = rng.integers(0, 2, n)
    agrees = rng.random(n) < 0.9 - 0.003 * night
    cue = np.where(agrees, y, 1 - y) * 4.0 - 2.0 + rng.normal(0, 0.2, n)
    return pa.table(
        {
            "id": pa.array(np.arange(first_id, first_id + n)),
            "a": cue,
            "b": y - 0.5 + rng.normal(0, 0.2, n),
            "c": rng.normal(0, 1, n) + (night % NIGHTS_BETWEEN_JUMPS == 0),
            "label": pa.array(np.where(y == 1, "yes", "no").tolist()),
            "truth": pa.array(np.where(agrees, "major", "minor").tolist()),
        }
    )


@dataclass
class World:
    """The folder of the source, and a link to every content that was ever in it."""

    folder: Path
    archive: Path
    seed: int
    next_id: int = 0
    damaged: list[tuple[Path, pa.Table]] = field(default_factory=list)
    """Files that lack their end, with the table that is put in their place on the next night."""

    def __post_init__(self) -> None:
        """Make both folders."""
        self.folder.mkdir(parents=True)
        self.archive.mkdir(parents=True)

    def files(self) -> list[Path]:
        """Return the files of the source in their order."""
        return sorted(self.folder.glob("*.parquet"))

    def begin(self, night: Night) -> int:
        """Repair what was damaged, let the files of a night arrive, and return how many rows are new."""
        new = 0
        for path, table in self.damaged:
            self._write(path, table)
            new += table.num_rows
        self.damaged.clear()
        for file in range(FILES):
            table = rows(self.seed, night.number, file, self.next_id)
            self.next_id += table.num_rows
            path = self.folder / f"night-{night.number:03d}-{file}.parquet"
            if night.fault == "faulty rows" and not file:
                table = with_faulty_row(table)
            if night.fault == "damaged file" and not file:
                self._write(path, table, cut=True)
                self.damaged.append((path, table))
                continue
            self._write(path, table)
            new += table.num_rows
        return new + self._strike(night)

    def add_column(self, night: Night) -> list[tuple[Path, pa.Table]]:
        """Give the new files of a night one more column; return them with the tables that they had."""
        before = []
        for path in sorted(self.folder.glob(f"night-{night.number:03d}-*.parquet")):
            table = pq.read_table(path)
            before.append((path, table))
            self._write(path, table.append_column("later", pa.array(np.arange(float(table.num_rows)))))
        return before

    def put_back(self, files: list[tuple[Path, pa.Table]]) -> None:
        """Write files again as they were."""
        for path, table in files:
            self._write(path, table)

    def _strike(self, night: Night) -> int:
        """Change, copy or withdraw an older file; return how many rows are new by it."""
        if night.fault not in ("changed file", "copied file", "withdrawn file"):
            return 0
        rng = np.random.default_rng([self.seed, 3, night.number])
        older = self.files()[: -2 * FILES]
        path = older[int(rng.integers(len(older)))]
        table = pq.read_table(path)
        if night.fault == "withdrawn file":
            path.unlink()
            return 0
        if night.fault == "copied file":
            self._write(path.with_name(f"{path.stem}-copy-{night.number}.parquet"), table)
            return table.num_rows
        changed = pa.array(np.asarray(table["b"]) + 0.01)
        self._write(path, table.set_column(table.schema.get_field_index("b"), "b", changed))
        return table.num_rows

    def _write(self, path: Path, table: pa.Table, *, cut: bool = False) -> None:
        hidden = path.with_name(f".{path.name}")
        pq.write_table(table, hidden)
        if cut:
            hidden.write_bytes(hidden.read_bytes()[: hidden.stat().st_size // 2])
        content = self.archive / hashlib.sha256(hidden.read_bytes()).hexdigest()
        if not content.exists():
            os.link(hidden, content)
        hidden.replace(path)


def with_faulty_row(table: pa.Table) -> pa.Table:
    """Return a table whose first row has no label."""
    labels = [None, *table["label"].to_pylist()[1:]]
    return table.set_column(table.schema.get_field_index("label"), "label", pa.array(labels))
