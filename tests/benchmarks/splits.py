"""Constrained kernel k-means against linear programs, min-cost flow and scikit-learn's Nystroem.

make bench ARGS="splits [--only assignment features scale] [--write-readme]"
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from tests.benchmarks.harness import Row, bar, figure, machine, measure, ratio, table, write_section

README = Path(__file__).with_name("README.md")
KEPT = Path(__file__).with_name("splits.json")
ORTOOLS = Path(__file__).parents[2] / ".venv-ortools" / "bin" / "python"
"""OR-tools needs an older protobuf than Rowsieve's and a process without highspy."""
PARTS = ("assignment", "features", "scale")
SIZES = (1_000, 10_000, 100_000)
GROUPS, HOLDOUT = 8, 0.2


def assignment(n: int, python: Path) -> dict[str, Any]:
    """One assignment step of n rows in eight groups, both labelings, by everyone."""
    from operators.splits.selection import DisjointGroups

    random = np.random.default_rng(n)
    gain, groups = random.normal(size=n), random.integers(0, GROUPS, n)
    selector = DisjointGroups(groups, HOLDOUT)
    quotas = selector.quotas.low

    def ours() -> Any:
        return np.stack([selector.select(value) for value in (gain, -gain)])

    def program(solver: str) -> Any:
        return np.stack([linear_program(value, groups, quotas, solver) for value in (gain, -gain)])

    runs: dict[str, Callable[[], Any]] = {"ours": ours}
    runs |= {f"CVXPY, {name}": lambda name=name: program(name) for name in ("HIGHS", "CLARABEL")}
    found = measure(runs, {"ours": 15} | dict.fromkeys(list(runs)[1:], 3), patience=10)
    entry: dict[str, Any] = {"n": n, "seconds": {name: timing.median for name, timing in found.items()}}
    masks = {name: timing.result for name, timing in found.items()}
    if python.exists():
        entry["seconds"]["OR-tools, min-cost flow"], masks["OR-tools, min-cost flow"] = by_flow(
            gain, groups, quotas, python
        )
    entry["differ"] = {name: int((mask != masks["ours"]).sum()) for name, mask in masks.items()}
    return entry


def linear_program(gain: Any, groups: Any, quotas: Any, solver: str) -> Any:
    """The paper's program (eq. 5 to 8) as it stands: two columns of U, every row in one of them."""
    import cvxpy as cp

    U = cp.Variable((len(gain), 2), bounds=[0, 1])
    sums = [cp.sum(U[groups == name, 0]) == wanted for name, wanted in enumerate(quotas.tolist())]
    distances = np.column_stack([gain, np.zeros(len(gain))])
    problem = cp.Problem(cp.Minimize(cp.sum(cp.multiply(distances, U))), [cp.sum(U, axis=1) == 1, *sums])
    problem.solve(solver=solver)
    return U.value[:, 0] > 0.5


def by_flow(gain: Any, groups: Any, quotas: Any, python: Path) -> tuple[float, Any]:
    """Seconds and masks of OR-tools, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/problem.npz"
        np.savez(path, gain=gain, groups=groups, quotas=quotas)
        script = str(Path(__file__).with_name("splits_flow.py"))
        done = subprocess.run([str(python), script, path, "5"], capture_output=True, text=True, check=True)
        return median(json.loads(done.stdout)), np.load(f"{path}.masks.npy")


def features(n: int, d: int, q: int) -> dict[str, Any]:
    """Nystrom features of n rows by q landmarks, beside scikit-learn's of the same rows and landmarks."""
    from sklearn.kernel_approximation import Nystroem

    from operators.splits.features import make_map

    X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    gamma = 0.5 / d
    by = make_map(X[:q], "rbf", gamma, X[:q], standardize=False)
    peer = Nystroem(gamma=gamma, n_components=q, random_state=0).fit(X[:q])
    with threadpool_limits(limits=1):
        found = measure({"ours": lambda: by.features(X), "scikit-learn": lambda: peer.transform(X)}, 5)
    mine, theirs = (found[name].result[:500].astype(np.float64) for name in ("ours", "scikit-learn"))
    return {
        "case": f"{n:,} x {d}, {q} landmarks",
        "seconds": {name: timing.median for name, timing in found.items()},
        "largest difference of a kernel value": float(np.abs(mine @ mine.T - theirs @ theirs.T).max()),
    }


def scale(n: int, d: int, q: int, steps: int) -> dict[str, Any]:
    """A whole fit in a process of its own: its memory is nobody else's."""
    command = [sys.executable, "-m", "tests.benchmarks.splits", "--child", f"{n},{d},{q},{steps}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def child(n: int, d: int, q: int, steps: int) -> None:
    """Run one measurement of :func:`scale` in this process."""
    from operators.splits import ConstrainedKernelKMeans

    random = np.random.default_rng(0)
    X = random.standard_normal((n, d), np.float32)
    groups = random.integers(0, GROUPS, n)
    model = ConstrainedKernelKMeans(HOLDOUT, "rbf", landmarks=q, n_init=1, max_iter=steps, random_state=0)
    started = time.process_time()
    model.fit(X, groups)
    seconds = time.process_time() - started
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    entry = {
        "case": f"{n:,} x {d}, {q} landmarks, at most {steps} steps",
        "steps": len(model.objective_),
        "CPU s": seconds,
        "peak GiB": int(line.split()[1]) / 2**20,
        "of it rows and features, GiB": 4 * n * (d + model.feature_map_.width) / 2**30,
    }
    print(json.dumps(entry))


def tables(kept: dict[str, Any]) -> dict[str, str]:
    """Sections of the README."""
    rows: list[Row] = []
    for entry in kept.get("assignment", []):
        mine = entry["seconds"]["ours"]
        cells = {
            name: f"{figure(seconds)} ({ratio(seconds / mine)}, {entry['differ'][name]} labels differ)"
            for name, seconds in entry["seconds"].items()
            if name != "ours"
        }
        rows.append({"rows": f"{entry['n']:,}", "ours": figure(mine), **cells})
    found = [
        {
            "case": e["case"],
            **{k: figure(v) for k, v in e["seconds"].items()},
            "ratio": ratio(e["seconds"]["scikit-learn"] / e["seconds"]["ours"]),
            "largest difference of a kernel value": f"{e['largest difference of a kernel value']:.1e}",
        }
        for e in kept.get("features", [])
    ]
    whole = [
        {k: figure(v) if isinstance(v, float) else v for k, v in e.items()} for e in kept.get("scale", [])
    ]
    return {
        "splits-machine": f"- {kept.get('machine', 'Not measured yet.')}",
        "splits-bars": table(bars(kept)),
        "splits": "\n\n".join(table(part) for part in (rows, found, whole)),
    }


def bars(kept: dict[str, Any]) -> list[Row]:
    """Return the required figures beside the measured ones."""
    lines: list[Row] = []
    for entry in (e for e in kept.get("assignment", []) if e["n"] == max(SIZES)):
        mine, seconds = entry["seconds"]["ours"], entry["seconds"]
        best = min((v, k) for k, v in seconds.items() if k.startswith("CVXPY"))
        found = best[0] / mine
        lines.append(
            bar(f"assignment, 100,000 rows, against {best[1]}", ">= 200x", ratio(found), found >= 200)
        )
        if flow := seconds.get("OR-tools, min-cost flow"):
            lines.append(
                bar(
                    "the same against OR-tools' min-cost flow",
                    ">= 20x",
                    ratio(flow / mine),
                    flow >= 20 * mine,
                )
            )
        worst = max(entry["differ"].values())
        lines.append(bar("labels that differ from any of these", "0", str(worst), worst == 0))
    for entry in kept.get("features", [])[:1]:
        found = entry["seconds"]["scikit-learn"] / entry["seconds"]["ours"]
        lines.append(
            bar(
                f"Nystrom features, {entry['case']}, against scikit-learn",
                ">= 1.8x",
                ratio(found),
                found >= 1.8,
            )
        )
    for entry in kept.get("scale", []):
        peak = entry["peak GiB"]
        lines.append(bar(f"peak of the process, {entry['case']}", "<= 3 GiB", f"{peak:.2f} GiB", peak <= 3))
    return lines


def main() -> None:
    """Measure what is asked for; keep it, show it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--ortools", type=Path, default=ORTOOLS, help="Python that has OR-tools")
    parser.add_argument("--write-readme", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(*(int(value) for value in asked.child.split(",")))
        return
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if not asked.ortools.exists():
        print(f"{asked.ortools} is not here: OR-tools is left out, see README.md.", file=sys.stderr)
    if "assignment" in asked.only:
        kept["assignment"] = [assignment(n, asked.ortools) for n in SIZES]
    if "features" in asked.only:
        kept["features"] = [features(100_000, 512, 300), features(100_000, 64, 500)]
    if "scale" in asked.only:
        kept["scale"] = [scale(1_000_000, 64, 500, 10)]
    kept["machine"] = machine(("numpy", "scipy", "scikit-learn", "cvxpy", "highspy", "clarabel"))
    sections = tables(kept)
    print("\n\n".join(sections.values()))
    if asked.write_readme:
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
        for marker, text in sections.items():
            write_section(README, marker, text)


if __name__ == "__main__":
    main()
