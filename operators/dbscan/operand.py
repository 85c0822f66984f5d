"""Rows as one side of a matrix product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

PANEL = 1024  # features summed by one product: short sums keep the error bound, hence the recheck, small

Self = TypeVar("Self")


class Operand(Protocol):
    """Prepared rows in whatever form gives their inner products fast."""

    def __len__(self) -> int: ...
    def take(self: Self, index: Tensor, /) -> Self:
        """The same of some rows."""
        ...

    def to(self: Self, device: torch.device, /) -> Self:
        """The same, held by a device."""
        ...

    def multiply(self: Self, other: Self, bias: Tensor, out: Tensor) -> None:
        """Write inner products plus ``bias`` (one per row of ``other``) to ``out`` (n, m)."""
        ...


@dataclass(frozen=True, eq=False)
class FlatRows:
    """(n, p) vectors."""

    vectors: Tensor

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, index: Tensor) -> FlatRows:
        """See :class:`Operand`."""
        return FlatRows(self.vectors.index_select(0, index))

    def to(self, device: torch.device) -> FlatRows:
        """See :class:`Operand`."""
        return FlatRows(self.vectors.to(device))

    def multiply(self, other: FlatRows, bias: Tensor, out: Tensor) -> None:
        """See :class:`Operand`."""
        a, b = self.vectors, other.vectors
        torch.addmm(bias, a[:, :PANEL], b[:, :PANEL].T, out=out)
        for start in range(PANEL, a.shape[1], PANEL):
            out.addmm_(a[:, start : start + PANEL], b[:, start : start + PANEL].T)
