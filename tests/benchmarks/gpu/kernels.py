"""Per-sample gradients, DBSCAN and sums over workers; they need torch and scikit-learn alone."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from operators.communicator import Distributed, SingleProcess, Slots
from operators.dbscan import DBSCAN
from operators.gradients.kernel import per_sample_gradients
from operators.gradients.projection import Projection
from tests.benchmarks.dbscan.rows import gradient_rows, radius
from tests.benchmarks.harness import measure

ROUNDS = 5
TOLERANCE = 1e-5
HALF, MIN_SAMPLES = 0.5, 10
CLUSTERED = ((20_000, 64, "tight"), (20_000, 512, "mid"), (100_000, 512, "loose"))
"""Rows, columns and spread of the clustered gradients."""
Model = Callable[[], nn.Module]


def mlp(*widths: int) -> nn.Module:
    """Linear layers of these widths with ReLU between them; 16-50-50-50-2 is the GRASP paper's for COMPAS."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Case(NamedTuple):
    """A model, rows and columns of its features, classes, and the length of sketched gradients."""

    name: str
    model: Model
    n: int
    d: int
    n_classes: int
    dim: int | None = None


CASES = (
    Case("softmax regression", lambda: nn.Linear(2048, 2), 16384, 2048, 2),
    Case("softmax regression, 100 classes", lambda: nn.Linear(512, 100), 8192, 512, 100),
    Case("MLP 16-50-50-50-2", partial(mlp, 16, 50, 50, 50, 2), 16384, 16, 2),
    Case("MLP 512-1024-1024-10, sketched", partial(mlp, 512, 1024, 1024, 10), 8192, 512, 10, 512),
)


def compare(case: Case, n: int, device: str) -> bool:
    """Print one line; return whether both devices agree, and the GPU gives the same bytes again.

    The error is the median of the rows: a unit that is within rounding of 0 may count on one device alone.
    """
    torch.manual_seed(0)
    model = case.model()
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, case.d)).astype(np.float32)
    y = rng.integers(0, case.n_classes, n)
    there = copy.deepcopy(model).to(device)
    projection = None if case.dim is None else Projection(case.dim, method="tensor_sketch")
    gradients = partial(per_sample_gradients, X=X, y=y, projection=projection)
    runs = {"cpu": lambda: gradients(model), "there": lambda: gradients(there)}
    once = measure(runs, 1)["there"].result
    found = measure(runs, {"cpu": 2, "there": ROUNDS}, clock=time.perf_counter)
    cpu, other = found["cpu"], found["there"]
    lengths = np.linalg.norm(cpu.result, axis=1)
    error = float(np.median(np.linalg.norm(other.result - cpu.result, axis=1) / lengths))
    rates = f"{n / cpu.median:>12,.0f} {n / other.median:>12,.0f} {cpu.median / other.median:>7.1f}x"
    again = np.array_equal(once, other.result)
    print(f"{case.name:<34} {rates} {error:>10.1e}{'' if again else '  OTHER BYTES THE SECOND TIME'}")
    return error <= TOLERANCE and again


def check_gradients(device: str, rows: int | None, peak: float) -> bool:
    """Print the gradients' lines; return whether both devices agree."""
    print(f"\n{'per-sample gradients':<34} {'CPU rows/s':>12} {'GPU rows/s':>12} {'ratio':>8} {'error':>10}")
    agree = [compare(case, min(case.n, rows or case.n), device) for case in CASES]
    return all(agree)


def check_clusters(device: str, rows: int | None, peak: float) -> bool:
    """Print DBSCAN's lines; return whether both devices agree."""
    heads = f"{'CPU, s':>12} {'GPU, s':>12} {'ratio':>8} {'labels':>10} {'of peak':>8}"
    print(f"\n{'DBSCAN, one radius':<34} {heads}")
    agree = [
        cluster(f"{n:,} x {d}, {spread}", min(n, rows or n), d, spread, device, peak)
        for n, d, spread in CLUSTERED
    ]
    return all(agree)


def sums_agree(device: str, rows: int | None, peak: float) -> bool:
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


def cluster(name: str, n: int, d: int, spread: str, device: str, peak: float) -> bool:
    """Print one line; return whether the labels are the same.

    The share of the peak is that of all pairs' products, as if none were left out.
    """
    X = gradient_rows(n, d, spread)
    eps = radius(X, HALF)
    runs = {
        "cpu": lambda: DBSCAN(eps, MIN_SAMPLES).fit(X).labels_,
        "there": lambda: DBSCAN(eps, MIN_SAMPLES, device=device).fit(X).labels_,
    }
    measure({"there": runs["there"]}, 1)
    found = measure(runs, {"cpu": 2, "there": ROUNDS}, clock=time.perf_counter)
    cpu, other = found["cpu"], found["there"]
    same = bool(np.array_equal(cpu.result, other.result))
    ratio = f"{cpu.median:>12.3f} {other.median:>12.3f} {cpu.median / other.median:>7.1f}x"
    share = n * n * d / other.median / peak
    print(f"{name:<34} {ratio} {'equal' if same else 'DIFFER':>10} {share:>8.0%}")
    return same
