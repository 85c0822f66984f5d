"""Kernels on a GPU against the CPU: the same values, and how fast. Wall seconds.

Needs torch and scikit-learn alone.

python -m tests.benchmarks.gpu
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from operators.communicator import Distributed, SingleProcess, Slots
from operators.dbscan import DBSCAN
from operators.gradients.kernel import per_sample_gradients
from tests.benchmarks.dbscan.rows import gradient_rows, radius
from tests.benchmarks.harness import machine, measure

ROUNDS = 5
TOLERANCE = 1e-5
HALF, MIN_SAMPLES = 0.5, 10
CLUSTERED = ((20_000, 64, "tight"), (20_000, 512, "mid"), (100_000, 512, "loose"))
"""Rows, columns and spread of the clustered gradients."""
Model = Callable[[], nn.Module]


def mlp() -> nn.Module:
    """16-50-50-50-2, as in the GRASP paper's COMPAS experiment."""
    sizes = [16, 50, 50, 50]
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(50, 2))


CASES: tuple[tuple[str, Model, int, int, int], ...] = (
    ("softmax regression", lambda: nn.Linear(2048, 2), 16384, 2048, 2),
    ("softmax regression, 100 classes", lambda: nn.Linear(512, 100), 8192, 512, 100),
    ("MLP 16-50-50-50-2", mlp, 16384, 16, 2),
)


def compare(name: str, make: Model, n: int, d: int, n_classes: int, device: str) -> bool:
    """Print one line; return whether both devices agree."""
    torch.manual_seed(0)
    model = make()
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)).astype(np.float32)
    y = rng.integers(0, n_classes, n)
    there = copy.deepcopy(model).to(device)
    runs = {"cpu": lambda: _gradients(model, X, y), "there": lambda: _gradients(there, X, y)}
    measure(runs, 1)
    found = measure(runs, ROUNDS, clock=time.perf_counter)
    cpu, other = found["cpu"], found["there"]
    error = float(np.linalg.norm(other.result - cpu.result) / np.linalg.norm(cpu.result))
    rates = f"{n / cpu.median:>12,.0f} {n / other.median:>12,.0f} {cpu.median / other.median:>7.1f}x"
    print(f"{name:<34} {rates} {error:>10.1e}")
    return error <= TOLERANCE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all cases; 1 if a value differs, 0 if all agree or there is no GPU."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda", help="cpu tries this program where there is no GPU")
    parser.add_argument("--rows", type=int, help="rows of every case, fewer than its own")
    options = parser.parse_args(arguments)
    on_gpu = options.device.startswith("cuda")
    if on_gpu and not torch.cuda.is_available():
        print("No CUDA device is visible to torch: nothing was checked.")
        return 0
    torch.backends.cuda.matmul.allow_tf32 = False
    where = torch.cuda.get_device_name() if on_gpu else "the CPU in place of a GPU"
    print(f"{where}; {machine(('numpy', 'torch'))}")
    print(f"{'per-sample gradients':<34} {'CPU rows/s':>12} {'GPU rows/s':>12} {'ratio':>8} {'error':>10}")
    agree = [
        compare(name, make, min(n, options.rows or n), d, n_classes, options.device)
        for name, make, n, d, n_classes in CASES
    ]
    print(f"\n{'DBSCAN, one radius':<34} {'CPU, s':>12} {'GPU, s':>12} {'ratio':>8} {'labels':>10}")
    agree += [
        cluster(f"{n:,} x {d}, {spread}", min(n, options.rows or n), d, spread, options.device)
        for n, d, spread in CLUSTERED
    ]
    agree.append(sums_agree(options.device))
    return 0 if all(agree) else 1


def sums_agree(device: str) -> bool:
    """Print one line; return whether a sum over slots by way of the process group has the CPU's bytes."""
    parts = torch.randn(8, 100_000, generator=torch.Generator().manual_seed(0))
    backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group(backend, store=store, rank=0, world_size=1)
    try:
        communicator = Distributed()
        total = Slots(communicator, 8).total_on_device(lambda slot: parts[slot].to(device))
    finally:
        torch.distributed.destroy_process_group()
    same = torch.equal(total.cpu(), Slots(SingleProcess(), 8).total(lambda slot: parts[slot]))
    print(f"\nSum of 8 slots over {backend}, on {total.device}: {'equal' if same else 'DIFFERS'}")
    return same


def cluster(name: str, n: int, d: int, spread: str, device: str) -> bool:
    """Print one line; return whether the labels are the same."""
    X = gradient_rows(n, d, spread)
    eps = radius(X, HALF)
    runs = {
        "cpu": lambda: DBSCAN(eps, MIN_SAMPLES).fit(X).labels_,
        "there": lambda: DBSCAN(eps, MIN_SAMPLES, device=device).fit(X).labels_,
    }
    measure(runs, 1)
    found = measure(runs, ROUNDS, clock=time.perf_counter)
    cpu, other = found["cpu"], found["there"]
    same = bool(np.array_equal(cpu.result, other.result))
    ratio = f"{cpu.median:>12.3f} {other.median:>12.3f} {cpu.median / other.median:>7.1f}x"
    print(f"{name:<34} {ratio} {'equal' if same else 'DIFFER':>10}")
    return same


def _gradients(model: nn.Module, X: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> Any:
    """Transfers to the host included."""
    return per_sample_gradients(model, X, y, chunk_size=2048)


if __name__ == "__main__":
    sys.exit(main())
