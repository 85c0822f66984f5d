"""Cost of group inference on rows that do not cluster and on binary columns, with a recipe around it.

python -m tests.benchmarks.groups --rows 100000                    # both tables, of so many rows
python -m tests.benchmarks.groups --large --write-readme           # 1,000,000 x 32 and 162,000 x 38
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from connectors.sink import write_parquet
from tests.benchmarks.harness import Row, bar, figure, machine, table, write_section
from tests.benchmarks.scale import Watch, memory

README = Path(__file__).with_name("README.md")
SHARD_ROWS = 50_000
PEER_ROWS = 10_000
OPERATORS = ("encode", "probe", "gradients", "groups", "weights", "split")
CHAIN: dict[str, dict[str, Any]] = {
    "encode": {},
    "probe": {},
    "gradients": {},
    "groups": {},
    "weights": {"method": "group_balanced"},
    "split": {},
}
Table = dict[str, Any]


def unfriendly(rng: np.random.Generator, n: int, n_columns: int = 32) -> Table:
    """Normal columns, of which 0 is a cue that 7 % of the rows break and 1 is honest; 3 % flipped labels."""
    y = rng.integers(0, 2, n)
    x = rng.normal(size=(n, n_columns)).astype(np.float32)
    x[:, 0] += np.where(rng.random(n) >= 0.07, 2, -2) * (2 * y - 1)
    x[:, 1] += 0.5 * (2 * y - 1)
    label = np.where(rng.random(n) < 0.03, 1 - y, y)
    return {**{f"f{j:02}": x[:, j] for j in range(n_columns)}, "label": label}


def binary(rng: np.random.Generator, n: int, n_columns: int = 38) -> Table:
    """Binary columns: three hidden factors, a class of 15 %, in column 0 a cue that 7 % of the rows break."""
    fixed = np.random.default_rng(0)
    base, lean = fixed.normal(-1.2, 1.1, n_columns), 0.35 * fixed.normal(size=n_columns)
    loadings = 0.9 * fixed.normal(size=(n_columns, 3))
    y = (rng.random(n) < 0.15).astype(np.int64)
    logits = base + rng.normal(size=(n, 3)) @ loadings.T + np.outer(2 * y - 1, lean)
    logits[:, 0] = 5 * np.where(rng.random(n) < 0.93, 2 * y - 1, 1 - 2 * y)
    x = rng.random((n, n_columns)) < 1 / (1 + np.exp(-logits))
    return {**{f"a{j:02}": x[:, j] for j in range(n_columns)}, "label": y}


TABLES: dict[str, tuple[Callable[..., Table], int]] = {
    "unfriendly": (unfriendly, 1_000_000),
    "binary": (binary, 162_000),
}
LIMITS = {"unfriendly": (120, 240), "binary": (30, None)}
"""CPU seconds of groups, and wall seconds of the recipe on two quiet cores, as they were set beforehand."""


def write_rows(kind: str, folder: Path, n_rows: int) -> None:
    """Write a table in shards of 50,000 rows."""
    folder.mkdir(parents=True)
    for part, first in enumerate(range(0, n_rows, SHARD_ROWS)):
        rng = np.random.default_rng([7, part])
        rows = TABLES[kind][0](rng, min(SHARD_ROWS, n_rows - first))
        write_parquet(pa.table(rows), folder / f"rows-{part:05d}.parquet")


def measure(kind: str, n_rows: int, folder: Path, seeds: int) -> dict[str, Any]:
    """Run the recipe in this process on one thread; CPU seconds by operator, memory, groups, peers."""
    import torch

    from engine import Recipe, run
    from engine.plan.planner import make_plan

    torch.set_num_threads(1)
    write_rows(kind, folder / "data", n_rows)
    values: dict[str, Any] = {
        "name": kind,
        "source": {"path": str(folder / "data"), "label": "label"},
        "output": {"path": str(folder / "out")},
        "operators": CHAIN,
        "run": {"executor": "local"},
        "tracking": {"enabled": False},
    }
    watch, started, before = Watch(), time.monotonic(), time.process_time()
    recipe = Recipe.parse(values)
    run(recipe, listener=watch)
    wall, cpu = time.monotonic() - started, time.process_time() - before
    plan = make_plan(recipe)
    state = plan.store.state(plan.fingerprint_of("groups"))
    records = json.loads((state / "selection.json").read_text())["classes"]
    return {
        "table": kind,
        "rows": n_rows,
        "cpu": {name: watch.costs[name][0] for name in watch.costs},
        "wall": wall,
        "all": cpu,
        "peak": memory("VmHWM"),
        "classes": records,
        "peers": peers(plan, folder / "out", seeds),
    }


def peers(plan: Any, out: Path, seeds: int) -> dict[str, Any]:
    """Time scikit-learn on the gradients of the largest class; ours again over seeds of the draw."""
    from sklearn.cluster import DBSCAN, MiniBatchKMeans
    from sklearn.metrics import adjusted_rand_score

    from operators.columns import vectors_to_numpy
    from operators.grasp import GroupInference

    def column(name: str, operator: str) -> Any:
        parts = sorted((out / "store" / plan.fingerprint_of(operator)).glob("part-*.parquet"))
        return pa.concat_tables(pq.read_table(part, columns=[name]) for part in parts).column(name)

    y = column("y", "ingest").to_numpy()
    rows = np.flatnonzero(y == np.bincount(y).argmax())
    X = vectors_to_numpy(column("gradient", "gradients"))[rows]
    found: dict[str, Any] = {"rows of the class": len(X)}
    part = X[np.random.default_rng(0).choice(len(X), min(PEER_ROWS, len(X)), replace=False)]
    centred = part - X.mean(axis=0)
    started = time.process_time()
    DBSCAN(eps=0.5, min_samples=100, metric="cosine").fit(centred)
    found["scikit-learn DBSCAN, one setting, 10,000 rows"] = time.process_time() - started
    started = time.process_time()
    MiniBatchKMeans(2, n_init=3, random_state=0).fit_predict(X)
    found["MiniBatchKMeans, k = 2, all rows"] = time.process_time() - started
    sample = X[np.random.default_rng(1).choice(len(X), min(100_000, len(X)), replace=False)]
    nothing = np.zeros(len(sample))
    labels = [GroupInference(random_state=seed).fit_predict(sample, nothing) for seed in range(seeds)]
    pairs = [(a, b) for a in range(seeds) for b in range(a)]
    found["seeds"] = [float(adjusted_rand_score(labels[a], labels[b])) for a, b in pairs]
    return found


def apart(kind: str, n_rows: int, seeds: int) -> dict[str, Any]:
    """The same in an interpreter of its own."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("ROWSIEVE_SCALE_DIR")) as folder:
        command = [sys.executable, "-m", "tests.benchmarks.groups", "--seeds", str(seeds)]
        command += ["--once", kind, str(n_rows), folder]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        result = subprocess.run(command, capture_output=True, text=True, env=os.environ | threads)
    if result.returncode:
        raise SystemExit(result.stderr)
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


def costs(found: list[dict[str, Any]]) -> list[Row]:
    """A row for each table: CPU seconds by operator, wall seconds, peak."""
    rows: list[Row] = []
    for one in found:
        row: dict[str, object] = {"table": one["table"], "rows": f"{one['rows']:,}"}
        row |= {f"{name}, CPU s": figure(one["cpu"][name]) for name in OPERATORS if name in one["cpu"]}
        row |= {"run, CPU s": figure(one["all"]), "run, wall s": figure(one["wall"])}
        rows.append(row | {"peak, MiB": f"{one['peak'] / 2**20:,.0f}"})
    return rows


def groups(found: list[dict[str, Any]]) -> list[Row]:
    """A row for each class: its groups, their stability."""
    return [
        {
            "table": one["table"],
            "class": entry["name"],
            "rows": f"{entry['drawn_from'] or entry['n_rows']:,}",
            "clustered": f"{entry['n_rows']:,}",
            "eps, min_samples": f"{entry['eps']:g}, {entry['min_samples']}",
            "clusters": len(entry["group_of"]),
            "groups": " + ".join(f"{size:,}" for size in entry["sizes"]),
            "in none": f"{entry['n_noise']:,}",
            "ARI with parts": ", ".join(f"{value:.2f}" for value in entry["stability"]),
        }
        for one in found
        for entry in one["classes"]
    ]


def beside(found: list[dict[str, Any]]) -> list[Row]:
    """A row for each table: peers, and ours over seeds of the draw."""
    rows: list[Row] = []
    for one in found:
        row: dict[str, object] = {"table": one["table"]}
        row |= {f"{k}, CPU s": figure(v) for k, v in one["peers"].items() if isinstance(v, float)}
        seeds = one["peers"]["seeds"]
        if seeds:
            row["ARI between seeds, 100,000 rows"] = f"{np.mean(seeds):.2f} ({min(seeds):.2f})"
        rows.append(row)
    return rows


def bars(found: list[dict[str, Any]]) -> list[Row]:
    """Return the required figures of the full sizes beside the measured ones."""
    rows: list[Row] = []
    for one in found:
        cpu, wall = LIMITS[one["table"]]
        name = f"{one['rows']:,} rows, {one['table']}"
        used = one["cpu"]["groups"]
        rows.append(bar(f"{name}: groups", f"<= {cpu} CPU s", f"{figure(used)} CPU s", used <= cpu))
        if wall:
            met = one["wall"] <= wall
            rows.append(bar(f"{name}: run, local", f"<= {wall} s wall", f"{figure(one['wall'])} s", met))
            peak = one["peak"] / 2**30
            rows.append(bar(f"{name}: peak", "<= 2 GiB", f"{peak:.2f} GiB", peak <= 2))
    return rows


def main() -> None:
    """Measure, print, and write the README's section if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of both tables")
    parser.add_argument("--large", action="store_true", help="1,000,000 and 162,000 rows")
    parser.add_argument("--only", choices=sorted(TABLES), help="one of the two tables")
    parser.add_argument("--seeds", type=int, default=3, help="draws that are compared")
    parser.add_argument("--write-readme", action="store_true")
    parser.add_argument("--once", nargs=3, metavar=("TABLE", "ROWS", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        kind, n_rows, folder = options.once
        print(json.dumps(measure(kind, int(n_rows), Path(folder), options.seeds)))
        return
    wanted = [options.only] if options.only else list(TABLES)
    sizes = {kind: TABLES[kind][1] if options.large else options.rows for kind in wanted}
    found = [apart(kind, n_rows, options.seeds) for kind, n_rows in sizes.items()]
    parts = [table(costs(found)), table(groups(found)), table(beside(found))]
    if options.large:
        parts.insert(0, table(bars(found)))
    text = "\n\n".join([machine(("numpy", "torch", "scikit-learn", "pyarrow")), *parts])
    print(text)
    if options.write_readme:
        write_section(README, "groups", text)


if __name__ == "__main__":
    main()
