"""What the device can do at most: products of matrices, and copies to it and back."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

SIDE, BYTES, ROUNDS = 8192, 1 << 30, 5
"""Rows of the product's matrices on a GPU, bytes of a copy, and repetitions."""
SIDE_OF_CPU = 2048


def synchronize(device: str) -> None:
    """Wait for what the device has been told."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def seconds(call: Callable[[], object], device: str, rounds: int = ROUNDS) -> float:
    """Return the wall seconds of one call, the best of several, after one that is not counted."""
    call()
    best = float("inf")
    for _ in range(rounds):
        synchronize(device)
        started = time.perf_counter()
        call()
        synchronize(device)
        best = min(best, time.perf_counter() - started)
    return best


def measure_peaks(device: str) -> float:
    """Print the rates of float32 products and of copies; return the device's FLOP a second."""
    found = {}
    for place, side in (("cpu", SIDE_OF_CPU), (device, SIDE if device.startswith("cuda") else SIDE_OF_CPU)):
        a, b = (torch.randn(side, side, device=place) for _ in range(2))
        found[place] = 2 * side**3 / seconds(lambda a=a, b=b: a @ b, place)  # type: ignore[misc]
    text = f"float32 products: CPU {found['cpu'] / 1e12:.2f} TFLOP/s, device {found[device] / 1e12:.1f}"
    if device.startswith("cuda"):
        there = torch.randn(BYTES // 4, device=device)
        pageable = torch.empty(BYTES // 4)
        pinned = torch.empty(BYTES // 4, pin_memory=True)
        rates = [
            BYTES / seconds(call, device) / 1e9
            for call in (
                lambda: pageable.copy_(there),
                lambda: pinned.copy_(there),
                lambda: there.copy_(pageable),
                lambda: there.copy_(pinned),
            )
        ]
        names = ("to pageable memory", "to pinned", "from pageable", "from pinned")
        text += "; copies, GB/s: " + ", ".join(f"{n} {r:.1f}" for n, r in zip(names, rates, strict=True))
    print(text)
    return found[device]
