"""Per-sample gradients against vmap(grad), Opacus and BackPACK; the two projections.

python -m tests.benchmarks.gradients [--write-readme]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from operators.gradients.kernel import per_sample_gradients
from operators.gradients.projection import Projection, cosine_distortion
from tests.benchmarks.gradients.cases import CASES, Case
from tests.benchmarks.gradients.peers import Make, chunked, peers, whole
from tests.benchmarks.harness import Row, Timing, bar, figure, machine, measure, ratio, table, write_section

README = Path(__file__).parents[1] / "README.md"
PACKAGES = ("numpy", "torch", "opacus", "backpack-for-pytorch")
REPEATS = 9
WANTED = 3.0
TOLERANCE = 1e-5


def seeded(make: Make) -> Make:
    """The same weights at every call."""

    def build() -> nn.Module:
        torch.manual_seed(0)
        return make()

    return build


def compare(case: Case) -> tuple[list[Row], list[Row]]:
    """Rows of the table, and of the table of bars."""
    make = seeded(case.make)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((case.n, case.d)).astype(np.float32)
    y = rng.integers(0, 2, case.n)
    model = make()
    expected = per_sample_gradients(model, X, y)
    runs = {
        "ours": lambda: per_sample_gradients(model, X, y),
        "ours, func": lambda: per_sample_gradients(model, X, y, route="func"),
    }
    for name, step in peers(make).items():
        runs[name] = whole(step, X, y)
        runs[f"{name}, chunked"] = chunked(step, X, y, case.chunk)
    errors = {name: _error(case, name, run, expected) for name, run in runs.items()}
    timed = {name: _dropped(run) for name, run in runs.items() if errors[name] is not None}
    timed["fill alone"] = lambda: np.empty_like(expected).fill(1)
    found = measure(timed, REPEATS if case.has_bar else 3)
    rows = [_row(case, expected.shape[1], name, found, errors.get(name)) for name in found]
    return rows, [_bar(case, found, chunks) for chunks in (False, True)] if case.has_bar else []


def _dropped(run: Callable[[], Any]) -> Callable[[], None]:
    """Without the result: a hundred megabytes each, and memory is what is timed."""

    def call() -> None:
        run()

    return call


def _error(case: Case, name: str, run: Callable[[], Any], expected: Any) -> float | None:
    """Return the distance of a result from ours as a share of the norm; None where there is no result."""
    try:
        error = float(np.linalg.norm(run() - expected) / np.linalg.norm(expected))
    except NotImplementedError as fault:
        print(f"{case.name}: {name} is left out: {str(fault).splitlines()[0]}")
        return None
    if error > TOLERANCE:
        raise ValueError(f"{case.name}: {name} differs from ours by {error:.0e} of the norm")
    return error


def _row(case: Case, p: int, name: str, found: dict[str, Timing], error: float | None) -> Row:
    timing = found[name]
    rates = [case.n / seconds for seconds in (timing.median, timing.high, timing.low)]
    return {
        "model": f"{case.name}, p {p:,}",
        "by": name,
        "rows/s": f"{rates[0]:,.0f} ({rates[1]:,.0f}-{rates[2]:,.0f})",
        "seconds, ours 1": ratio(timing.median / found["ours"].median),
        "off by": "-" if error is None else f"{error:.0e}",
    }


def _bar(case: Case, found: dict[str, Timing], chunks: bool) -> Row:
    others = {name: t for name, t in found.items() if "ours" not in name and name != "fill alone"}
    others = {name: t for name, t in others.items() if name.endswith("chunked") == chunks}
    best = min(others, key=lambda name: others[name].median)
    gain = others[best].median / found["ours"].median
    how = "in chunks, into one matrix" if chunks else "as documented"
    title = f"{case.name}, peers {how}"
    return bar(title, f">= {WANTED:.0f}x the best", f"{ratio(gain)} ({best})", gain >= WANTED)


def projections() -> list[Row]:
    """A head of 100 classes over 512 features, projected to 256 numbers."""
    torch.manual_seed(0)
    model = nn.Linear(512, 100)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((1024, 512)).astype(np.float32), rng.integers(0, 100, 1024)
    near = np.arange(1024) % 4
    flat = per_sample_gradients(model, X, y)
    methods: tuple[Any, ...] = ("gaussian", "tensor_sketch")
    runs = {
        m: lambda m=m: per_sample_gradients(model, X, y, projection=Projection(256, 0, m)) for m in methods
    }
    rows = []
    for method, timing in measure(runs, 3).items():
        error = cosine_distortion(flat, timing.result, near)
        rows.append(
            {
                "projection to 256": method,
                "rows/s": f"{len(X) / timing.median:,.0f}",
                "error of cosine, mean": figure(error.mean),
                "99 %": figure(error.p99),
                "pairs": f"{error.pairs:,}",
            }
        )
    return rows


def main() -> None:
    """Print the tables; with ``--write-readme`` also put them into the README."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write-readme", action="store_true")
    write = parser.parse_args().write_readme
    torch.set_num_threads(1)
    started = machine(PACKAGES)
    found = [compare(case) for case in CASES]
    sections = {
        "gradients-machine": f"- {started}.",
        "gradients-bars": table([row for _, bars in found for row in bars]),
        "gradients": table([row for rows, _ in found for row in rows]),
        "gradients-projection": table(projections()),
    }
    for name, text in sections.items():
        print(f"{text}\n")
        if write:
            write_section(README, name, text)


if __name__ == "__main__":
    main()
