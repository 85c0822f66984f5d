"""Torch datasets of a published version's rows: one in memory, one that streams."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import IterableDataset, TensorDataset, get_worker_info

from engine.core.errors import InputError

from .training_rows import SplitReader, TrainingRows

Batch = tuple[torch.Tensor, ...]


def tensors_of(rows: TrainingRows) -> Batch:
    """Return features (n, d), labels (n,) and weights (n,), float32, int64 and float32."""
    return (
        torch.from_numpy(np.ascontiguousarray(rows.X)),
        torch.from_numpy(rows.y),
        torch.from_numpy(rows.sample_weight.astype(np.float32)),
    )


def in_memory(reader: SplitReader) -> TensorDataset:
    """Return all rows of a split; an item is ``(x, y, weight)``."""
    return TensorDataset(*tensors_of(reader.read_all()))


class StreamedRows(IterableDataset[Batch]):
    """Batches ``(x, y, weight)`` of a split, of which one part at a time is in memory.

    Every pass has the parts, and the rows within each, in another order, which follows from the seed. The
    last batch of a part may be smaller. With several workers of a ``DataLoader`` each reads some of the
    parts. Give it to one with ``batch_size=None``. Raises InputError for a batch size below 1.
    """

    def __init__(self, reader: SplitReader, batch_size: int, seed: int) -> None:
        if batch_size < 1:
            raise InputError(f"to_torch(streaming=True): batch_size is {batch_size}. Give 1 or more.")
        super().__init__()
        self._reader, self._batch_size, self._seed = reader, batch_size, seed
        self._passes = 0

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        first, step, this_pass = 0, 1, self._passes
        if worker:  # Torch draws the seed when it starts the workers: for a pass, or once for persistent ones
            first, step = worker.id, worker.num_workers
            this_pass += worker.seed - worker.id
        self._passes += 1
        return self._batches(this_pass, first, step)

    def _batches(self, this_pass: int, first: int, step: int) -> Iterator[Batch]:
        """Yield the batches of every ``step``-th part of a pass, from the part ``first`` on."""
        parts = np.random.default_rng([self._seed, this_pass]).permutation(len(self._reader))
        for part in parts[first::step].tolist():
            x, y, weight = tensors_of(self._reader.read(part))
            order = np.random.default_rng([self._seed, this_pass, part]).permutation(len(y))
            for start in range(0, len(order), self._batch_size):
                places = torch.from_numpy(order[start : start + self._batch_size])
                yield x[places], y[places], weight[places]
