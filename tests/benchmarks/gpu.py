"""Kernels on a GPU against the CPU: the same values, and how fast. Needs torch and NumPy alone.

python -m tests.benchmarks.gpu
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn

from operators.gradients.kernel import per_sample_gradients

ROUNDS = 5
TOLERANCE = 1e-5
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


def compare(name: str, make: Model, n: int, d: int, n_classes: int) -> bool:
    """Print one line; return whether both devices agree."""
    torch.manual_seed(0)
    model = make()
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)).astype(np.float32)
    y = rng.integers(0, n_classes, n)
    on_cpu, cpu_seconds = timed(model, X, y)
    on_gpu, gpu_seconds = timed(model.cuda(), X, y)
    error = float(np.linalg.norm(on_gpu - on_cpu) / np.linalg.norm(on_cpu))
    rates = f"{n / cpu_seconds:>12,.0f} {n / gpu_seconds:>12,.0f} {cpu_seconds / gpu_seconds:>7.1f}x"
    print(f"{name:<34} {rates} {error:>10.1e}")
    return error <= TOLERANCE


def timed(model: nn.Module, X: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> tuple[Any, float]:
    """Gradients and the median seconds of a call, transfers to the host included."""
    found = per_sample_gradients(model, X, y, chunk_size=2048)
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        per_sample_gradients(model, X, y, chunk_size=2048)
        seconds.append(time.perf_counter() - started)
    return found, median(seconds)


def main() -> int:
    """Run all cases; 1 if a value differs, 0 if all agree or there is no GPU."""
    if not torch.cuda.is_available():
        print("No CUDA device is visible to torch: nothing was checked.")
        return 0
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {platform.python_version()}")
    print(f"{'per-sample gradients':<34} {'CPU rows/s':>12} {'GPU rows/s':>12} {'ratio':>8} {'error':>10}")
    agree = [compare(*case) for case in CASES]
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main())
