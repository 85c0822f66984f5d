"""Cost of each operator per million rows, at 10^4, 10^5 and 10^6 rows, extrapolated to 10^9.

python -m tests.benchmarks.scale --large --write-readme
python -m tests.benchmarks.scale --standard --write-readme    # the chain of a recipe without operators
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from connectors.sink import write_parquet
from engine.recipe.recipe import STANDARD_CHAIN
from tests.benchmarks.harness import Row, figure, machine, table, write_section

README = Path(__file__).with_name("README.md")
FEATURES, SHARD_ROWS = 64, 50_000
CHAIN: dict[str, dict[str, Any]] = {
    "probe": {},
    "gradients": {},
    "groups": {"fit_rows": 20_000},
    "eos": {"model": "gaussian"},
    "outliers": {},
    "dckm": {"n_clusters": 10, "lambda3": 300},
    "decorrelation": {},
    "weights": {"method": "group_balanced"},
    "split": {"method": "cluster", "validation": 0.2, "test": 0.2},
}
TARGET, NODES, CORES, GIB = 10**9, 32, 32, 128
"""The cluster that 10^9 rows are projected to."""
PARTS = {
    "weights: folds": ("weights", "operators.weights.cross_fit.FoldJob.__call__"),
    "report: counting": ("report", "engine.report.page.survey"),
}
"""Work that is measured apart from the rest of an operator, as it has workers of its own."""
REST = {"weights": "weights: rows", "report": "report: drawing"}
WIDTHS = {"probe": 8, "weights: folds": 5 * 8, "report: drawing": 1}
"""Most workers at once where that is not all cores: Ray Train's, those of each of five folds, the driver."""
BOUNDED = {"report: drawing"}
"""Work on a sample of fixed size: it may grow less than linearly."""


@dataclass(frozen=True)
class Cost:
    """One operator over ``rows`` rows: CPU seconds, peak bytes above the start's, bytes written."""

    operator: str
    rows: int
    cpu: float
    peak: int
    written: int


class Watch:
    """Listens to a run in this process and notes what each operator cost."""

    def __init__(self) -> None:
        self.costs: dict[str, tuple[float, int]] = {}
        self.parts = dict.fromkeys(PARTS, 0.0)
        self._cpu, self._base = 0.0, 0

    def timed(self, part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same function; its CPU seconds are noted as those of a part."""

        def call(*arguments: Any) -> Any:
            started = time.process_time()
            try:
                return work(*arguments)
            finally:
                self.parts[part] += time.process_time() - started

        return call

    def split(self) -> dict[str, tuple[float, int]]:
        """Costs by operator, those with parts in two; a part has the peak of the whole."""
        found: dict[str, tuple[float, int]] = {}
        for name, (cpu, peak) in self.costs.items():
            inner = {part: self.parts[part] for part, (whole, _) in PARTS.items() if whole == name}
            found |= {part: (seconds, peak) for part, seconds in inner.items()}
            found[REST.get(name, name)] = (cpu - sum(inner.values()), peak)
        return found

    def __call__(self, event: Any) -> None:
        """Start of an operator: reset the peak; its end: note it."""
        if event.kind == "start":
            self._cpu, self._base = time.process_time(), reset_peak()
        elif event.kind == "finish":
            used = time.process_time() - self._cpu
            self.costs[event.operator] = (used, max(0, memory("VmHWM") - self._base))


def memory(key: str) -> int:
    """Bytes of this process by their name in /proc."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


def reset_peak() -> int:
    """Forget the peak so far; returns the bytes held now."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def write_rows(folder: Path, n_rows: int) -> None:
    """Two classes in 64 features; a cue agrees with the class in 92 % of the rows; 2 % flipped labels."""
    folder.mkdir(parents=True)
    axes = np.random.default_rng(1).normal(size=(2, FEATURES))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    for part, first in enumerate(range(0, n_rows, SHARD_ROWS)):
        rng = np.random.default_rng([7, part])
        n = min(SHARD_ROWS, n_rows - first)
        y = rng.integers(0, 2, n)
        cue = np.where(rng.random(n) < 0.92, y, 1 - y)
        x = rng.normal(size=(n, FEATURES)) * 0.5
        x += np.outer(2 * y - 1, axes[0]) + np.outer(4 * cue - 2, axes[1])
        label = np.where(rng.random(n) < 0.02, 1 - y, y)
        values = pa.FixedSizeListArray.from_arrays(pa.array(x.astype(np.float32).ravel()), FEATURES)
        write_parquet(pa.table({"x": values, "label": label}), folder / f"rows-{part:05d}.parquet")


def run_once(n_rows: int, folder: Path, chain: dict[str, dict[str, Any]]) -> list[Cost]:
    """Every operator of a chain over so many rows, in this process and on one thread."""
    import torch

    from engine import Recipe, run
    from engine.plan.planner import make_plan

    torch.set_num_threads(1)
    write_rows(folder / "data", n_rows)
    recipe = Recipe.parse(
        {
            "name": "scale",
            "source": {"path": str(folder / "data"), "label": "label", "features": ["x"]},
            "output": {"path": str(folder / "out")},
            "operators": chain,
            "run": {"executor": "local"},
            "tracking": {"enabled": False},
        }
    )
    watch = Watch()
    with ExitStack() as stack:
        for part, (_, place) in PARTS.items():
            stack.enter_context(patch(place, watch.timed(part, resolve_name(place))))
        run(recipe, listener=watch)
    store = make_plan(recipe)
    written = {
        planned.name: sum(part.bytes for part in store.store.committed(planned.fingerprint).values())
        for planned in store.operators
    }
    written["publish"] = sum(path.stat().st_size for path in (folder / "out" / "versions").rglob("*.parquet"))
    written |= {REST[name]: written.pop(name) for name in REST if name in written}
    found = watch.split()
    order = [name for name in found if name not in ("plan", "local")]
    return [Cost(name, n_rows, *found[name], written.get(name, 0)) for name in order]


def apart(n_rows: int, *, standard: bool = False) -> list[Cost]:
    """The same in an interpreter of its own, so that no size inherits the memory of another."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("ROWSIEVE_SCALE_DIR")) as folder:
        command = [sys.executable, "-m", "tests.benchmarks.scale", "--once", str(n_rows), folder]
        command += ["--standard"] * standard
        result = subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
    if result.returncode:
        raise SystemExit(result.stderr)
    return [Cost(**fields) for fields in json.loads(result.stdout.splitlines()[-1])]


def measured(costs: Sequence[Cost]) -> list[Row]:
    """A row for each operator: per million rows at every size."""
    sizes = sorted({cost.rows for cost in costs})
    by = {(cost.operator, cost.rows): cost for cost in costs}
    rows: list[Row] = []
    for name in dict.fromkeys(cost.operator for cost in costs):
        row: dict[str, object] = {"operator": name}
        for size in sizes:
            row[f"CPU s per 10^6, at {size:,}"] = figure(by[name, size].cpu * 1e6 / size)
        row["exponent"] = f"{exponent([by[name, size] for size in sizes]):.2f}"
        for size in sizes:
            row[f"peak MiB, at {size:,}"] = f"{by[name, size].peak / 2**20:,.0f}"
        row["written, bytes a row"] = figure(by[name, sizes[-1]].written / sizes[-1])
        rows.append(row)
    return rows


def exponent(costs: Sequence[Cost]) -> float:
    """Return the exponent with which CPU seconds grow between the two largest sizes: 1 is linear."""
    small, large = costs[-2:]
    return math.log(max(large.cpu, 1e-9) / max(small.cpu, 1e-9)) / math.log(large.rows / small.rows)


def projection(costs: Sequence[Cost]) -> list[Row]:
    """CPU seconds at 10^9 rows by each one's growth, at least linear unless bounded, over its workers."""
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(cost.operator for cost in costs):
        own = sorted((cost for cost in costs if cost.operator == name), key=lambda cost: cost.rows)
        growth = max(0.0 if name in BOUNDED else 1.0, exponent(own))
        hours = own[-1].cpu * (TARGET / own[-1].rows) ** growth / 3600
        width = WIDTHS.get(name, NODES * CORES)
        rows.append(
            {
                "operator": name,
                "growth": f"{growth:.2f}",
                "core hours": figure(hours),
                "workers": width,
                "hours": hours / width,
                "written, GB": figure(own[-1].written * TARGET / own[-1].rows / 1e9),
            }
        )
    rows.sort(key=lambda row: -float(row["hours"]))
    return [{**row, "hours": figure(row["hours"])} for row in rows]


def verdict(rows: Sequence[Row]) -> str:
    """Return a sentence that names the slowest operators; ``rows`` as from :func:`projection`."""
    first, second = rows[:2]
    return (
        f"First bottleneck: {first['operator']}, {first['hours']} h on {first['workers']} of {NODES * CORES} "
        f"cores; then {second['operator']}, {second['hours']} h on {second['workers']}."
    )


def main() -> None:
    """Measure, print, and write the README's section if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="1,000,000 rows too; the better part of an hour")
    parser.add_argument("--standard", action="store_true", help="the chain of a recipe without operators")
    parser.add_argument("--write-readme", action="store_true")
    parser.add_argument("--once", nargs=2, metavar=("ROWS", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        chain = STANDARD_CHAIN if options.standard else CHAIN
        costs = run_once(int(options.once[0]), Path(options.once[1]), chain)
        print(json.dumps([asdict(cost) for cost in costs]))
        return
    sizes = [10_000, 100_000] + [1_000_000] * options.large
    costs = [cost for size in sizes for cost in apart(size, standard=options.standard)]
    if options.standard:
        text = f"{machine(('numpy', 'torch', 'pyarrow', 'scikit-learn'))}\n\n{table(measured(costs))}"
        print(text)
        if options.write_readme:
            write_section(README, "scale-standard", text)
        return
    text = "\n\n".join(
        [
            machine(("numpy", "torch", "pyarrow", "scikit-learn")),
            table(measured(costs)),
            f"Projected to 10^9 rows on {NODES} nodes of {CORES} cores and {GIB} GiB, work spread evenly:",
            table(projection(costs)),
            verdict(projection(costs)),
        ]
    )
    print(text)
    if options.write_readme:
        write_section(README, "scale", text)


if __name__ == "__main__":
    main()
