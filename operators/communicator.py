"""Communication of workers that train one model together: any number of them gets the same bytes.

Floating-point sums depend on their order. So the shards are assigned to a fixed number of *slots*, and the
slots to the workers. Sums are formed within each slot in the order of its shards, and then over the slots in
their order; neither order depends on the number of workers.

Importing this module does not import torch: a process that works alone with NumPy does without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from operators.arrays import Float64

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SLOTS = 8
"""The most workers that can share a training. Another number gives other last bits, and other minibatches."""


class Communicator(Protocol):
    """Collective operations of a group of workers; tensors have the same shape on all of them."""

    rank: int
    size: int

    @property
    def device(self) -> torch.device:
        """The device on which sums are exchanged; single values are always on the CPU."""
        ...

    def gather(self, mine: Tensor) -> list[Tensor]:
        """Return the tensors of all workers, in the order of rank."""
        ...

    def broadcast(self, value: Tensor) -> Tensor:
        """Return the tensor of rank 0."""
        ...


class SingleProcess:
    """The communicator of a process that works alone."""

    rank = 0
    size = 1

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._device = device

    @property
    def device(self) -> torch.device:
        """The device of sums."""
        import torch

        return torch.device(self._device)

    def gather(self, mine: Tensor) -> list[Tensor]:
        """Return the process's own tensor as the only one."""
        return [mine]

    def broadcast(self, value: Tensor) -> Tensor:
        """Return the tensor itself."""
        return value


class Distributed:
    """A process group of ``torch.distributed``; its backend must accept CPU tensors (gloo).

    Where the backend has NCCL too, summands go from GPU to GPU. NCCL only transfers each worker's part; the
    sum is formed here, in the order of the slots, so that its bytes stay the same.

    ``groups`` > 1 divides the workers into so many groups of equal size; ``group`` is the number of this
    worker's group.
    """

    def __init__(self, groups: int = 1) -> None:
        import torch

        whole = torch.distributed.get_world_size()
        nccl = "cuda:nccl" in torch.distributed.get_backend_config()
        self.device = torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")
        self.size = whole // groups
        self.group, self.rank = divmod(torch.distributed.get_rank(), self.size)
        firsts = range(0, whole, self.size)
        made = (
            [torch.distributed.new_group([*range(i, i + self.size)]) for i in firsts]
            if groups > 1
            else [None]
        )
        self._process_group = made[self.group]  # torch requires that every worker makes all groups

    def gather(self, mine: Tensor) -> list[Tensor]:
        """Return the tensors of all workers of the group, by an all-gather."""
        import torch

        everyone = [torch.empty_like(mine) for _ in range(self.size)]
        torch.distributed.all_gather(everyone, mine, group=self._process_group)
        return everyone

    def broadcast(self, value: Tensor) -> Tensor:
        """Overwrite ``value`` by that of the group's first worker, and return it."""
        import torch

        torch.distributed.broadcast(value, src=self.group * self.size, group=self._process_group)
        return value


class Slots:
    """The assignment of ``n_shards`` shards to at most ``most`` slots, and of slots to this worker.

    Raises ValueError for more workers than slots.
    """

    def __init__(self, communicator: Communicator, n_shards: int, most: int = SLOTS) -> None:
        self.communicator = communicator
        self.count = min(most, n_shards)
        self._n_shards = n_shards
        if communicator.size > self.count:
            raise ValueError(
                f"{communicator.size} workers for {n_shards} shards: at most {self.count} can share them"
            )

    @property
    def mine(self) -> range:
        """Slots of this worker."""
        return range(self.communicator.rank, self.count, self.communicator.size)

    def shards(self, slot: int) -> range:
        """Return the shards of a slot in the order in which they are summed."""
        return range(slot, self._n_shards, self.count)

    def each(self, compute: Callable[[int], Tensor]) -> Tensor:
        """Return ``compute(slot)``, k numbers on any device, of all workers' slots: (count, k) on the CPU."""
        import torch

        return self._exchange(compute, torch.device("cpu"))

    def each_on_device(self, compute: Callable[[int], Tensor]) -> Tensor:
        """Return :meth:`each` on the communicator's device, where a GPU goes on without waiting."""
        return self._exchange(compute, self.communicator.device)

    def total(self, compute: Callable[[int], Tensor]) -> Tensor:
        """Return the sum of ``compute(slot)`` over all slots in their order: (k,), on the CPU."""
        return self.total_on_device(compute).cpu()

    def total_on_device(self, compute: Callable[[int], Tensor]) -> Tensor:
        """Return :meth:`total` on the communicator's device, where gradients are used."""
        return in_order(list(self._exchange(compute, self.communicator.device)))

    def _exchange(self, compute: Callable[[int], Tensor], device: torch.device) -> Tensor:
        import torch

        vectors = [compute(slot).to(device) for slot in self.mine]
        height = -(-self.count // self.communicator.size)
        padding = [torch.zeros_like(vectors[0])] * (height - len(vectors))
        everyone = self.communicator.gather(torch.stack([*vectors, *padding]))
        return torch.stack(
            [
                everyone[slot % self.communicator.size][slot // self.communicator.size]
                for slot in range(self.count)
            ]
        )

    def total_over_shards(self, compute: Callable[[int], Tensor]) -> Tensor:
        """Return the sum of ``compute(shard)`` over all shards in the fixed order: (k,)."""
        return self.total(lambda slot: in_order([compute(shard) for shard in self.shards(slot)]))

    def each_array(self, compute: Callable[[int], Float64]) -> Float64:
        """Return :meth:`each` of NumPy arrays, without torch where this process works alone: (count, k)."""
        if self.communicator.size == 1:
            return np.stack([compute(slot) for slot in range(self.count)])
        import torch

        return np.asarray(self.each(lambda slot: torch.from_numpy(compute(slot))).numpy(), np.float64)

    def total_array_over_shards(self, compute: Callable[[int], Float64]) -> Float64:
        """Return :meth:`total_over_shards` of NumPy arrays, the same sums: (k,)."""
        by_slot = self.each_array(
            lambda slot: arrays_in_order([compute(shard) for shard in self.shards(slot)])
        )
        return arrays_in_order(list(by_slot))

    def broadcast_array(self, value: Float64) -> Float64:
        """Return the array of rank 0."""
        if self.communicator.size == 1:
            return value
        import torch

        return np.asarray(self.communicator.broadcast(torch.from_numpy(value.copy())).numpy(), np.float64)


def in_order(vectors: Sequence[Tensor]) -> Tensor:
    """Sum the vectors from left to right."""
    total = vectors[0].clone()
    for vector in vectors[1:]:
        total += vector
    return total


def arrays_in_order(vectors: Sequence[Float64]) -> Float64:
    """Sum the arrays from left to right."""
    total = vectors[0].copy()
    for vector in vectors[1:]:
        total += vector
    return total
