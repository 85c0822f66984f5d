"""A whole run of the recipe of `rowsieve init` on one worker of Ray, on two, and in one process.

python -m tests.benchmarks.workers --rows 100000
python -m tests.benchmarks.workers --rows 1000000 --write-readme

The rows are those of `groups` that do not cluster. Every run is a process of its own, with an output of its
own; what they publish is compared byte by byte.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.core.events import Event
from tests.benchmarks.groups import write_rows
from tests.benchmarks.harness import Row, bar, figure, machine, ratio, table, write_section

README = Path(__file__).with_name("README.md")
ONE, TWO, LOCAL = "one worker", "two workers", "this process"
RUNS: dict[str, dict[str, Any]] = {
    ONE: {"executor": "ray", "cpus": 1},
    TWO: {"executor": "ray", "cpus": 2},
    LOCAL: {"executor": "local"},
}
WANTED = 1.8
"""Wall seconds of one worker beside two, as it was set beforehand."""
LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Measured:
    """One run: wall seconds by operator and in all, CPU seconds, peak memory, digest of its data."""

    seconds: dict[str, float]
    wall: float
    cpu: float
    peak: int
    data: str


def run_once(folder: Path, section: dict[str, Any]) -> dict[str, float]:
    """Run the recipe in this process; return the wall seconds of every operator."""
    from engine import Recipe, run

    seconds: dict[str, float] = {}

    def listen(event: Event) -> None:
        if event.kind == "finish":
            seconds[event.operator] = event.seconds

    values: dict[str, Any] = {
        "name": "workers",
        "source": {"path": str(folder.parent / "data"), "label": "label"},
        "output": {"path": str(folder)},
        "run": section,
        "tracking": {"enabled": False},
    }
    run(Recipe.parse(values), listener=listen)
    return seconds


def measured(folder: Path, name: str) -> Measured:
    """Run in a process of its own, and watch it with all that it starts."""
    command = [sys.executable, "-m", "tests.benchmarks.workers", "--child", str(folder), "--run", name]
    started = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    cpu: dict[int, float] = {}
    peak = 0
    while child.poll() is None:
        peak = max(peak, look(child.pid, cpu))
        time.sleep(LOOK_SECONDS)
    wall = time.monotonic() - started
    if child.returncode or child.stdout is None:
        raise SystemExit(f"{name}: the run failed with {child.returncode}")
    seconds = json.loads(child.stdout.read().splitlines()[-1])
    digest = hashlib.sha256()
    for part in sorted((folder / "versions").rglob("*.parquet")):
        digest.update(part.read_bytes())
    return Measured(seconds, wall, sum(cpu.values()), peak, digest.hexdigest())


def look(root: int, cpu: dict[int, float]) -> int:
    """Note the CPU seconds of ``root`` and all below it; return the bytes that they share with nobody."""
    parents, spent, held = dict[int, int](), dict[int, float](), dict[int, int]()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # a process that has ended since
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            _, resident, shared, *_ = (folder / "statm").read_text().split()
            pid = int(folder.name)
            parents[pid] = int(fields[1])
            spent[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            held[pid] = (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    below = {root} & set(parents)
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    cpu.update({pid: spent[pid] for pid in below})
    return sum(held[pid] for pid in below)


def report(n_rows: int, found: dict[str, Measured]) -> str:
    """Return the section of the page."""
    one, two = found[ONE], found[TWO]
    times, same = one.wall / two.wall, len({run.data for run in found.values()}) == 1
    bars = [
        bar(f"{n_rows:,} rows: {ONE} beside {TWO}", f">= {WANTED}x", ratio(times), times >= WANTED),
        bar("the same bytes", "yes", "yes" if same else "no", same),
    ]
    names = list(dict.fromkeys(name for m in found.values() for name in m.seconds))
    rows: list[Row] = []
    for name in names:
        row: Row = {"operator": name}
        row |= {f"{run}, s": figure(m.seconds[name]) for run, m in found.items() if name in m.seconds}
        if name in one.seconds and two.seconds.get(name):
            row["one beside two"] = ratio(one.seconds[name] / two.seconds[name])
        rows.append(row)
    whole = [
        {
            "run": run,
            "wall, s": figure(m.wall),
            "CPU, s": figure(m.cpu),
            "peak of all processes, MiB": figure(m.peak / 2**20),
        }
        for run, m in found.items()
    ]
    parts = [
        machine(("ray", "numpy", "torch", "scikit-learn", "pyarrow")),
        table(bars),
        table(whole),
        table(rows),
    ]
    return "\n\n".join(parts)


def main() -> None:
    """Measure every run and print, or write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--write-readme", action="store_true")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--run", choices=list(RUNS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(run_once(given.child, RUNS[given.run])))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows("unfriendly", folder / "data", given.rows)
        found = {run: measured(folder / run.replace(" ", "-"), run) for run in RUNS}
    text = report(given.rows, found)
    print(text)
    if given.write_readme:
        write_section(README, "workers", text)


if __name__ == "__main__":
    main()
