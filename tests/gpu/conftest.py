"""The GPU, or a reason to skip; ``ROWSIEVE_TEST_DEVICE=cpu`` tries these tests without one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

DEVICE = os.environ.get("ROWSIEVE_TEST_DEVICE", "cuda")


@pytest.fixture(scope="session")
def device() -> str:
    """The device under test."""
    if DEVICE.startswith("cuda") and not torch.cuda.is_available():
        pytest.skip("torch sees no NVIDIA GPU; set ROWSIEVE_TEST_DEVICE=cpu to try the test on the CPU")
    return DEVICE


@pytest.fixture(scope="session")
def ray_with_gpu(device: str) -> Iterator[None]:
    """Ray on this machine, which has one GPU, or says so where the device is the CPU."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    options = {"include_dashboard": False, "object_store_memory": 300 * 2**20, "log_to_driver": False}
    ray.init(address="local", num_cpus=4, num_gpus=1, logging_level="ERROR", **options)
    yield
    ray.shutdown()
