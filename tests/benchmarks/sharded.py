"""DBSCAN in blocks on Ray beside the kernel in one process: seconds, memory of a worker, equal labels.

python -m tests.benchmarks.sharded --rows 200000 --write-readme
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tests.benchmarks.dbscan.rows import gradient_rows, radius
from tests.benchmarks.harness import Row, figure, machine, table, write_section

README = Path(__file__).with_name("README.md")
STORE = 80 * 2**20  # bytes: about the least Ray takes
SHARES = (0.3, 0.5, 0.7)  # of all pairs within eps: three radii
MIN_SAMPLES = (10, 100)
MIB = 2**20


class Filed:
    """Rows of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, start: int, stop: int) -> Any:
        return np.array(np.load(self.path, mmap_mode="r")[start:stop])


class ProgressExecutor:
    """Calls a function in a worker and notes what the process has used of time and memory."""

    def __init__(self, notes: Path, fn: Callable[[Any], Any]) -> None:
        self._notes, self._fn = notes, fn

    def __call__(self, item: Any) -> Any:
        started = time.process_time()
        result = self._fn(item)
        with (self._notes / str(os.getpid())).open("a") as file:
            file.write(json.dumps([time.process_time() - started, own_memory()]) + "\n")
        return result


def own_memory() -> int:
    """Bytes that this process alone holds now: neither Ray's store nor files it has mapped."""
    found: int = psutil.Process().memory_full_info().uss
    return found


def peak_memory() -> int:
    """Most bytes this process has held; ru_maxrss would be inherited from the parent."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    return int(line.split()[1]) * 1024


def in_blocks(folder: Path, shape: tuple[int, int], eps: Sequence[float], workers: int, rows: int) -> Row:
    """One solution on a Ray of its own; labels of every cell go to ``labels-<workers>.npy``."""
    import ray

    from engine.execution.ray_executor import RayExecutor
    from operators.base import Resources
    from operators.dbscan.sharded import BlockLabels, lay_out, solve

    work, notes = folder / f"work-{workers}", folder / f"notes-{workers}"
    work.mkdir()
    notes.mkdir()
    ray.init(
        address="local",
        num_cpus=workers,
        object_store_memory=STORE,
        include_dashboard=False,
        log_to_driver=False,
    )
    before = own_memory()

    def map_(fn: Any, items: Sequence[Any]) -> Iterator[Any]:
        return RayExecutor().map(ProgressExecutor(notes, fn), items, resources=Resources(actors=workers))

    started = time.perf_counter()
    layout, _ = lay_out(
        map_,
        Filed(folder / "rows.npy"),
        work,
        shape=shape,
        metric="euclidean",
        eps=eps,
        least=MIN_SAMPLES,
        block_rows=rows,
    )
    solved = solve(map_, layout)
    seconds = time.perf_counter() - started
    grown = own_memory() - before
    ray.shutdown()
    found = np.empty((len(eps), len(MIN_SAMPLES), shape[0]), np.int32)
    for block, e, m in np.ndindex(len(layout.blocks), len(eps), len(MIN_SAMPLES)):
        found[e, m, layout.rows(block)] = BlockLabels(solved, block).of_threshold(m).at(e)[0]
    np.save(folder / f"labels-{workers}.npy", found)
    lines = [json.loads(line) for file in notes.iterdir() for line in file.read_text().splitlines()]
    return {
        "by": f"blocks of {rows:,}, {workers} worker{'s' if workers > 1 else ''}",
        "CPU s": figure(sum(cpu for cpu, _ in lines)),
        "wall s": figure(seconds),
        "most memory of a worker, MiB": f"{max(size for _, size in lines) / MIB:,.0f}",
        "driver grew by, MiB": f"{grown / MIB:,.0f}",
        "tasks": str(len(lines)),
    }


def alone(folder: Path, eps: Sequence[float]) -> Row:
    """The kernel with all rows in one process of its own."""
    started, cpu = time.perf_counter(), time.process_time()
    from operators.dbscan.kernel import cluster
    from operators.points import Points

    labels, _ = cluster(Points(np.load(folder / "rows.npy"), "euclidean"), eps, MIN_SAMPLES)[:2]
    np.save(folder / "labels-0.npy", labels)
    return {
        "by": "kernel, one process",
        "CPU s": figure(time.process_time() - cpu),
        "wall s": figure(time.perf_counter() - started),
        "most memory of a worker, MiB": f"{peak_memory() / MIB:,.0f}",
    }


def apart(fn: Callable[[], Row]) -> Row:
    """In a process of its own, so that neither memory nor threads are another's."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(fn).result()


def compare(n: int, d: int, spread: str, block_rows: int) -> list[Row]:
    """Rows of the table for one data set."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        X = gradient_rows(n, d, spread)
        eps = [radius(X, share) for share in SHARES]
        np.save(folder / "rows.npy", X)
        shape, size = X.shape, X.nbytes
        del X
        rows = [apart(partial(alone, folder, eps))]
        expected = np.load(folder / "labels-0.npy")
        for workers in (1, 2):
            row = apart(partial(in_blocks, folder, shape, eps, workers, block_rows))
            same = np.array_equal(np.load(folder / f"labels-{workers}.npy"), expected)
            rows.append({**row, "labels": "equal" if same else "**differ**"})
        data = {"data": f"{n:,} x {d} {spread}, {size / MIB:,.0f} MiB"}
        return [{**data, **row} for row in rows]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line of this module."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.sharded", description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--features", type=int, default=511)
    parser.add_argument("--block-rows", type=int, default=8192)
    parser.add_argument("--write-readme", action="store_true")
    options = parser.parse_args(arguments)
    rows = []
    for spread in ("tight", "mid"):
        rows += compare(options.rows, options.features, spread, options.block_rows)
    print(text := table(rows))
    if options.write_readme:
        about = machine(("numpy", "torch", "ray"))
        write_section(README, "sharded", f"{about}. Ray's object store: {STORE // MIB} MiB.\n\n{text}")
    return 0


if __name__ == "__main__":
    from tests.benchmarks import sharded  # under its own name, by which other processes can import it

    sys.exit(sharded.main())
