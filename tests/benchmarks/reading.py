"""Rows that operators read and write: what one reading for neighbouring operators could save at most.

python -m tests.benchmarks.reading --rows 200000 --write-readme

The recipe of `rowsieve init` in this process on one thread, over the rows of `groups` that do not cluster.
Bytes are those of the Arrow columns, seconds those of the CPU. What an operator reads in its fit is apart
from what it reads to make its columns, as only that could come from the operator before it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from engine import Recipe, run
from engine.core.events import Event
from engine.execution.worker import ShardWorker
from engine.storage.reader import StoreReader
from engine.storage.run_store import RunStore
from tests.benchmarks.groups import write_rows
from tests.benchmarks.harness import Row, figure, machine, table, write_section
from tests.benchmarks.scale import Watch

README = Path(__file__).with_name("README.md")
FIT, ROWS, COMMIT = "in its fit", "for its columns", "committed"


@dataclass
class Moved:
    """Bytes and CPU seconds of one operator's reading or writing."""

    size: int = 0
    seconds: float = 0.0


class Count:
    """Counts what passes between files and operators in this process."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], Moved] = defaultdict(Moved)
        self._watch, self._operator, self._applies, self._depth = Watch(), "", False, 0

    @property
    def cpu(self) -> dict[str, float]:
        """CPU seconds of every operator."""
        return {name: seconds for name, (seconds, _) in self._watch.costs.items()}

    def __call__(self, event: Event) -> None:
        """Note which operator is at work."""
        self._watch(event)
        if event.kind == "start":
            self._operator = event.operator

    def applying(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function; what it reads is for the operator's columns."""

        def call(*arguments: Any) -> Any:
            self._applies = True
            try:
                return work(*arguments)
            finally:
                self._applies = False

        return call

    def reading(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, which returns a table; the outermost call is counted."""

        def call(*arguments: Any) -> Any:
            started, self._depth = time.process_time(), self._depth + 1
            try:
                found = work(*arguments)
            finally:
                self._depth -= 1
            if not self._depth:
                self._add(ROWS if self._applies else FIT, found.nbytes, started)
            return found

        return call

    def writing(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, whose fourth argument is a table that it commits."""

        def call(store: RunStore, fingerprint: str, shard: int, columns: Any, **rest: Any) -> Any:
            started = time.process_time()
            found = work(store, fingerprint, shard, columns, **rest)
            self._add(COMMIT, columns.nbytes, started)
            return found

        return call

    def _add(self, what: str, size: int, started: float) -> None:
        moved = self.found[self._operator, what]
        moved.size += size
        moved.seconds += time.process_time() - started


def counted(n_rows: int, folder: Path) -> Count:
    """Run the recipe and count."""
    import torch

    torch.set_num_threads(1)
    write_rows("unfriendly", folder / "data", n_rows)
    recipe = Recipe.parse(
        {
            "name": "reading",
            "source": {"path": str(folder / "data"), "label": "label"},
            "output": {"path": str(folder / "out")},
            "run": {"executor": "local"},
            "tracking": {"enabled": False},
        }
    )
    count = Count()
    with (
        patch.object(StoreReader, "read_all", count.reading(StoreReader.read_all)),
        patch.object(StoreReader, "read_source", count.reading(StoreReader.read_source)),
        patch.object(ShardWorker, "_process", count.applying(ShardWorker._process)),
        patch.object(RunStore, "commit", count.writing(RunStore.commit)),
    ):
        run(recipe, listener=count)
    return count


def report(n_rows: int, count: Count) -> str:
    """Return the section of the page."""
    rows: list[Row] = []
    for name in dict.fromkeys(operator for operator, _ in count.found):
        row: Row = {"operator": name}
        for what, verb in ((FIT, "read "), (ROWS, "read "), (COMMIT, "")):
            row[f"{verb}{what}, bytes a row"] = figure(count.found[name, what].size / n_rows)
        row["reading, s"] = figure(sum(count.found[name, what].seconds for what in (FIT, ROWS)))
        row["committing, s"] = figure(count.found[name, COMMIT].seconds)
        row["all of it, s"] = figure(count.cpu.get(name, 0.0))
        rows.append(row)
    again = sum(moved.seconds for (_, what), moved in count.found.items() if what == ROWS)
    whole = sum(count.cpu.values())
    said = (
        f"{n_rows:,} rows. Reading rows to make columns of them takes {figure(again)} of {figure(whole)} CPU "
        f"seconds ({again / whole:.1%}): no sharing of it could save more."
    )
    return "\n\n".join([machine(("numpy", "pyarrow", "torch", "scikit-learn")), said, table(rows)])


def main() -> None:
    """Count and print, or write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--write-readme", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = report(given.rows, counted(given.rows, Path(folder)))
    print(text)
    if given.write_readme:
        write_section(README, "reading", text)


if __name__ == "__main__":
    main()
