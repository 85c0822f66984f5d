"""Threads that play the workers of a training: what torch.distributed does, without processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

R = TypeVar("R")


class Board:
    """Meeting point of threads that stand for workers. One runs at a time: torch's random state is global."""

    def __init__(self, size: int) -> None:
        self.size, self.turn = size, threading.Lock()
        self._cells = [torch.empty(0)] * size
        self._barrier = threading.Barrier(size, timeout=60)

    def exchange(self, rank: int, value: Tensor) -> list[Tensor]:
        self._cells[rank] = value.clone()
        self.turn.release()
        self._barrier.wait()
        everyone = list(self._cells)
        self._barrier.wait()
        self.turn.acquire()
        assert len({cell.shape for cell in everyone}) == 1
        return everyone


class Member:
    """A communicator's member on a board."""

    device = torch.device("cpu")

    def __init__(self, rank: int, board: Board) -> None:
        self.rank, self.size, self._board = rank, board.size, board

    def gather(self, mine: Tensor) -> list[Tensor]:
        return self._board.exchange(self.rank, mine)

    def broadcast(self, value: Tensor) -> Tensor:
        return self._board.exchange(self.rank, value)[0].clone()


def train_together(workers: int, fit: Callable[[Member], R]) -> list[R]:
    board = Board(workers)

    def work(rank: int) -> R:
        with board.turn:
            return fit(Member(rank, board))

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, range(workers)))
