"""Where torch computes, and with how many threads."""

from __future__ import annotations

import torch


def prepare_device(cpus: float, gpus: float) -> torch.device:
    """Give torch ``cpus`` threads (at least 1); return the GPU if asked for and there, else the CPU.

    Called at the start of every actor: libgomp keeps the count of whatever ran in the process before.
    """
    torch.set_num_threads(max(1, int(cpus)))
    return device_for(gpus)


def device_for(gpus: float) -> torch.device:
    """The GPU if asked for and there, else the CPU; asked in the worker, not in the driver."""
    return torch.device("cuda" if gpus > 0 and torch.cuda.is_available() else "cpu")
