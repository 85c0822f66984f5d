"""Workers that train one model together and get the same bytes, however many they are.

Floating-point sums depend on their order. So the shards are dealt to a fixed number of *slots*, the
slots to the workers; sums are formed within each slot, in the order of its shards, and then over the
slots, in their order. Neither order knows the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

SLOTS = 8
"""The most workers that can share a training. Another number gives other last bits, and other minibatches."""


class Crew(Protocol):
    """What workers need of each other; tensors are of equal shape everywhere."""

    rank: int
    size: int
    device: torch.device
    """Where sums are exchanged; single values always are on the CPU."""

    def gather(self, mine: Tensor) -> list[Tensor]:
        """Everyone's tensor, by rank."""
        ...

    def broadcast(self, value: Tensor) -> Tensor:
        """Rank 0's tensor."""
        ...


class Alone:
    """A crew of one."""

    rank = 0
    size = 1
    device = torch.device("cpu")

    def gather(self, mine: Tensor) -> list[Tensor]:
        """See :class:`Crew`."""
        return [mine]

    def broadcast(self, value: Tensor) -> Tensor:
        """See :class:`Crew`."""
        return value


class Distributed:
    """A process group of ``torch.distributed``; its backend must take CPU tensors (gloo).

    Where it has NCCL too, what is summed goes from GPU to GPU. The sum stays one in the slots' order, with
    the same bytes: NCCL only carries each worker's part, adding up is ours.

    ``groups`` > 1: the workers are dealt into so many crews of one size; ``group`` says which this one is in.
    """

    def __init__(self, groups: int = 1) -> None:
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
        self._process_group = made[self.group]  # every worker has to make all of them

    def gather(self, mine: Tensor) -> list[Tensor]:
        """See :class:`Crew`."""
        everyone = [torch.empty_like(mine) for _ in range(self.size)]
        torch.distributed.all_gather(everyone, mine, group=self._process_group)
        return everyone

    def broadcast(self, value: Tensor) -> Tensor:
        """See :class:`Crew`."""
        torch.distributed.broadcast(value, src=self.group * self.size, group=self._process_group)
        return value


class Slots:
    """The fixed shares of ``n_shards`` shards, ``most`` or fewer, and which of them this worker computes.

    Raises ValueError for more workers than slots.
    """

    def __init__(self, crew: Crew, n_shards: int, most: int = SLOTS) -> None:
        self.crew = crew
        self.count = min(most, n_shards)
        self._n_shards = n_shards
        if crew.size > self.count:
            raise ValueError(
                f"{crew.size} workers for {n_shards} shards: at most {self.count} can share them"
            )

    @property
    def mine(self) -> range:
        """This worker's slots."""
        return range(self.crew.rank, self.count, self.crew.size)

    def shards(self, slot: int) -> range:
        """A slot's shards, in the order of summing."""
        return range(slot, self._n_shards, self.count)

    def each(self, compute: Callable[[int], Tensor]) -> Tensor:
        """``compute(slot)``, k numbers on any device, of every worker's slots: (count, k) on the CPU."""
        return self._exchange(compute, torch.device("cpu"))

    def total(self, compute: Callable[[int], Tensor]) -> Tensor:
        """The sum of ``compute(slot)`` over all slots, in slot order: (k,), on the CPU."""
        return self.total_on_device(compute).cpu()

    def total_on_device(self, compute: Callable[[int], Tensor]) -> Tensor:
        """:meth:`total`, left on the crew's device: for gradients, which are wanted there."""
        return in_order(list(self._exchange(compute, self.crew.device)))

    def _exchange(self, compute: Callable[[int], Tensor], device: torch.device) -> Tensor:
        vectors = [compute(slot).to(device) for slot in self.mine]
        height = -(-self.count // self.crew.size)
        padding = [torch.zeros_like(vectors[0])] * (height - len(vectors))
        everyone = self.crew.gather(torch.stack([*vectors, *padding]))
        return torch.stack(
            [everyone[slot % self.crew.size][slot // self.crew.size] for slot in range(self.count)]
        )

    def total_over_shards(self, compute: Callable[[int], Tensor]) -> Tensor:
        """The sum of ``compute(shard)`` over all shards, in the fixed order: (k,)."""
        return self.total(lambda slot: in_order([compute(shard) for shard in self.shards(slot)]))


def in_order(vectors: Sequence[Tensor]) -> Tensor:
    """Sum from left to right."""
    total = vectors[0].clone()
    for vector in vectors[1:]:
        total += vector
    return total
