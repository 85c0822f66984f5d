"""The communicator, by which the workers of a training exchange sums."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from operators.base import Resources
from operators.communicator import Distributed, SingleProcess, Slots
from operators.probe.ray_train import backend

PARTS = torch.randn(8, 50, generator=torch.Generator().manual_seed(0))


class Recorder(SingleProcess):
    """A communicator on a device that holds no values, which notes what it is given."""

    device = torch.device("meta")

    def __init__(self) -> None:
        self.seen: list[str] = []

    def gather(self, mine: Tensor) -> list[Tensor]:
        self.seen.append(mine.device.type)
        return [mine]


def test_only_sums_that_stay_go_by_the_crews_device() -> None:
    communicator = Recorder()
    slots = Slots(communicator, 8)
    assert slots.each(lambda slot: PARTS[slot]).device.type == "cpu"
    assert slots.total_on_device(lambda slot: PARTS[slot]).device.type == "meta"
    assert communicator.seen == ["cpu", "meta"]


def test_a_process_group_without_nccl_exchanges_on_the_cpu() -> None:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        communicator = Distributed()
        total = Slots(communicator, 8).total_on_device(lambda slot: PARTS[slot])
    finally:
        torch.distributed.destroy_process_group()
    assert communicator.device.type == "cpu"
    assert torch.equal(total, Slots(SingleProcess(), 8).total(lambda slot: PARTS[slot]))


@pytest.mark.parametrize(("gpus", "expected"), [(0, "gloo"), (0.5, "gloo"), (1, "cpu:gloo,cuda:nccl")])
def test_nccl_needs_a_gpu_for_each_worker(gpus: float, expected: str) -> None:
    assert backend(Resources(gpus=gpus)) == expected
