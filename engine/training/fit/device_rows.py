"""Train rows as tensors on the device of a training.

Rows that fit into half of a GPU's free memory are put there once for a phase, and an epoch sends the order of
its rows in one piece. Others are sent step by step. Either way the rows of a step are those that the loop on
the CPU takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from engine.training.data.rows import GroupedRows, Shards
from engine.training.fit.sampling import Epoch, pieces
from operators.arrays import Int64
from operators.communicator import Slots

Answers = Callable[[GroupedRows], Tensor]
"""Returns what a model is to answer on rows, (n,) on the CPU: class indices or numbers."""


@dataclass(frozen=True)
class DeviceRows:
    """n rows on one device."""

    X: Tensor
    """(n, d) float32."""
    answer: Tensor
    """(n,) class indices, or the numbers of a regression."""
    weight: Tensor
    """(n,) float64."""
    group: Tensor
    """(n,) int64."""
    row_id: Int64
    """(n,) on the host."""


class StepRows(Protocol):
    """The rows of an epoch's steps."""

    def steps(self, epoch: Epoch, slot: int) -> Iterator[tuple[DeviceRows, int]]:
        """Yield a slot's rows of each step, with the seed of :func:`engine.training.fit.sampling.pieces`."""
        ...


def step_rows(shards: Shards, slots: Slots, answers: Answers, device: torch.device) -> StepRows:
    """Return the rows of this worker's slots, on the device as a whole where there is room."""
    return (Resident if has_room(shards, slots, device) else Streamed)(shards, slots, answers, device)


def has_room(shards: Shards, slots: Slots, device: torch.device) -> bool:
    """Return whether half of the device's free memory holds this worker's rows."""
    if device.type != "cuda":
        return True  # rows are in the memory of the host already
    mine = [shards[shard] for slot in slots.mine for shard in slots.shards(slot)]
    wanted = sum(rows.X.nbytes + 24 * len(rows) for rows in mine)
    return bool(2 * wanted <= torch.cuda.mem_get_info(device)[0])


def _sent(values: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on the device; the host does not wait for the copy."""
    if device.type != "cuda":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def _on_device(rows: GroupedRows, answers: Answers, device: torch.device) -> DeviceRows:
    columns = (
        torch.from_numpy(np.ascontiguousarray(rows.X)),
        answers(rows),
        torch.from_numpy(np.asarray(rows.weight, np.float64)),
        torch.from_numpy(np.asarray(rows.group, np.int64)),
    )
    X, answer, weight, group = (_sent(column, device) for column in columns)
    return DeviceRows(X, answer, weight, group, rows.row_id)


class Streamed:
    """Rows that are sent step by step."""

    def __init__(self, shards: Shards, slots: Slots, answers: Answers, device: torch.device) -> None:
        self._shards, self._slots, self._answers, self._device = shards, slots, answers, device

    def steps(self, epoch: Epoch, slot: int) -> Iterator[tuple[DeviceRows, int]]:
        """Implement the method of :class:`StepRows`."""
        for rows, seed in pieces(self._shards, self._slots, epoch, slot):
            yield _on_device(rows, self._answers, self._device), seed


class Resident:
    """Rows that lie on the device."""

    def __init__(self, shards: Shards, slots: Slots, answers: Answers, device: torch.device) -> None:
        self._slots, self._device = slots, device
        self._places = _Places([0] * len(shards), [np.empty(0, np.int64)] * len(shards))
        parts, start = [], 0
        for shard in (shard for slot in slots.mine for shard in slots.shards(slot)):
            rows = shards[shard]
            parts.append(_on_device(rows, answers, device))
            self._places.starts[shard], self._places.row_ids[shard] = start, rows.row_id
            start += len(rows)
        full = [part for part in parts if len(part.row_id)] or parts[:1]
        self._all = [
            torch.cat([getattr(part, name) for part in full]) for name in ("X", "answer", "weight", "group")
        ]

    def steps(self, epoch: Epoch, slot: int) -> Iterator[tuple[DeviceRows, int]]:
        """Implement the method of :class:`StepRows`."""
        taken = [(rows.X[:, 0], rows.row_id, seed) for rows, seed in self._pieces(epoch, slot)]
        places = np.concatenate([place for place, _, _ in taken]).astype(np.int64)
        order, start = _sent(torch.from_numpy(places), self._device), 0
        for place, row_id, seed in taken:
            mine = order[start : start + len(place)]
            start += len(place)
            X, answer, weight, group = (column.index_select(0, mine) for column in self._all)
            yield DeviceRows(X, answer, weight, group, row_id), seed

    def _pieces(self, epoch: Epoch, slot: int) -> Iterator[tuple[GroupedRows, int]]:
        return pieces(self._places, self._slots, epoch, slot)


@dataclass(frozen=True)
class _Places:
    """Shards whose rows have one feature, their place among the rows on the device."""

    starts: list[int]
    row_ids: list[Int64]

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, shard: int, /) -> GroupedRows:
        row_ids = self.row_ids[shard]
        n, start = len(row_ids), self.starts[shard]
        nothing = np.broadcast_to(np.zeros(1, np.int64), n)
        places: Any = np.arange(start, start + n, dtype=np.int64)[:, None]
        return GroupedRows(places, nothing, nothing.astype(np.float64), nothing, row_ids)
