"""Shared parts of the benchmarks: alternating timings, required figures, tables, and sections of a README.

It imports only the standard library, so that it runs wherever a kernel does.
"""

from __future__ import annotations

import datetime
import math
import os
import platform
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

Row = Mapping[str, object]


@dataclass(frozen=True)
class Timing:
    """Median, least and most seconds of one callable, and what it returned last."""

    median: float
    low: float
    high: float
    result: Any = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        if self.low == self.high:
            return figure(self.median)
        return f"{figure(self.median)} ({figure(self.low)}-{figure(self.high)})"


@dataclass(frozen=True)
class Spent:
    """Returned by a callable that kept its own clock, such as a peer in another process."""

    seconds: float
    result: Any = None


def cpu() -> float:
    """CPU seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measure(
    runs: Mapping[str, Callable[[], Any]],
    repeats: int | Mapping[str, int] = 5,
    *,
    patience: float | Mapping[str, float] = math.inf,
    clock: Callable[[], float] = cpu,
) -> dict[str, Timing]:
    """Time callables in turns, so that a busy minute of a shared machine falls on all of them.

    Parameters
    ----------
    runs
        Name -> callable without arguments. One that returns `Spent` is taken at its word.
    repeats
        Rounds; a mapping gives fewer to a slow callable (1 for names it leaves out).
    patience
        Seconds after which a callable is not run again, in all or by name.
    clock
        `cpu`, or `time.perf_counter` for wall seconds.
    """
    rounds = {name: repeats if isinstance(repeats, int) else repeats.get(name, 1) for name in runs}
    enough = {
        name: patience.get(name, math.inf) if isinstance(patience, Mapping) else patience for name in runs
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    results: dict[str, Any] = {}
    for turn in range(max(rounds.values(), default=0)):
        for name in (name for name in runs if turn < rounds[name] and sum(seconds[name]) < enough[name]):
            results.pop(name, None)  # a large result is not held while its successor is made
            started = clock()
            found = runs[name]()
            spent = Spent(clock() - started, found)
            spent = found if isinstance(found, Spent) else spent
            seconds[name].append(spent.seconds)
            results[name] = spent.result
    return {
        name: Timing(median(times), min(times), max(times), results[name]) for name, times in seconds.items()
    }


def figure(value: float) -> str:
    """Three significant digits, without an exponent below a million."""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def ratio(value: float) -> str:
    """Two significant digits and an x: 8.8x, 110x."""
    return f"{value:,.0f}x" if value >= 10 else f"{value:.2g}x"


def bar(name: str, wanted: str, measured: str, met: bool) -> Row:
    """A row of the table of bars: what was asked, what was found, and whether it is enough."""
    return {"bar": name, "wanted": wanted, "measured": measured, "met": "yes" if met else "**no**"}


def table(rows: Sequence[Row]) -> str:
    """Markdown table; columns are the rows' keys in order of appearance, "-" where a row has none."""
    if not rows:
        return "Not measured yet."
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [[str(row.get(column, "-")) for column in columns] for row in rows]
    lines = [columns, ["---"] * len(columns), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def machine(
    packages: Sequence[str] = ("numpy", "torch", "scikit-learn"), elsewhere: Mapping[str, str] | None = None
) -> str:
    """Date, processor, memory, load and versions, in one line; ``elsewhere``: versions found elsewhere."""
    found = {name: _version(name) for name in packages} | dict(elsewhere or {})
    versions = ", ".join(f"{name} {number}" for name, number in found.items())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{datetime.date.today()}, {_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"load {os.getloadavg()[0]:.1f}; Python {platform.python_version()}, {versions}"
    )


def write_section(readme: Path, marker: str, text: str) -> None:
    """Replace what stands between ``<!-- begin MARKER -->`` and ``<!-- end MARKER -->``.

    Raises ValueError where the file does not hold both, once and in this order.
    """
    begin, end = f"<!-- begin {marker} -->", f"<!-- end {marker} -->"
    page = readme.read_text()
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed or begin in rest or end in after:
        raise ValueError(
            f"{readme}: needs one line {begin!r} and, below it, one {end!r}: add them where it belongs"
        )
    readme.write_text(f"{before}{begin}\n{text.strip()}\n{end}{after}")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(none)"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor() or platform.machine()
    facts = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    wide = [name for name in ("amx_tile", "avx512f", "avx2") if name in facts.get("flags", "").split()]
    model = facts.get("model name", platform.machine())
    return f"{model} family {facts.get('cpu family')} model {facts.get('model')} {' '.join(wide[:1])}".strip()
