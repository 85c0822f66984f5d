"""Factored rows as one side of a matrix product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from operators.dbscan.operand import PANEL
from operators.factored.gradients import FactoredGradients, Float64


@dataclass(frozen=True, eq=False)
class FactoredOperand:
    """Prepared rows u (G - m) by their factors.

    <u G - u m, u' G' - u' m> = <u G, u' G'> - s u' - u s' with s = u (<G, m> - |m|^2 / 2).

    Attributes
    ----------
    activations, errors : per layer; a 1 in the bias's place among the activations, errors times u.
    scale, shift : (n, 2): (u, s) and (-s, -u).
    """

    activations: tuple[Tensor, ...]
    errors: tuple[Tensor, ...]
    scale: Tensor
    shift: Tensor

    @classmethod
    def of(cls, gradients: FactoredGradients, u: Float64, s: Float64, dtype: Any) -> FactoredOperand:
        """Operand of all rows, in ``dtype`` (numpy)."""
        pairs = [layer.widened(dtype) for layer in gradients.layers]
        # Multiplied in float64: a rounded u would not be the one that s has in it.
        errors = [(layer.errors * u[:, None]).astype(dtype) for layer in gradients.layers]
        columns = [np.column_stack(pair).astype(dtype) for pair in ((u, s), (-s, -u))]
        return cls(
            tuple(torch.from_numpy(a) for a, _ in pairs),
            tuple(torch.from_numpy(d) for d in errors),
            *(torch.from_numpy(part) for part in columns),
        )

    def take(self, index: Tensor) -> FactoredOperand:
        """The same of some rows."""
        return FactoredOperand(
            tuple(part.index_select(0, index) for part in self.activations),
            tuple(part.index_select(0, index) for part in self.errors),
            self.scale.index_select(0, index),
            self.shift.index_select(0, index),
        )

    def to(self, device: torch.device) -> FactoredOperand:
        """The same, held by a device."""
        return FactoredOperand(
            tuple(part.to(device) for part in self.activations),
            tuple(part.to(device) for part in self.errors),
            self.scale.to(device),
            self.shift.to(device),
        )

    def __len__(self) -> int:
        return len(self.scale)

    def multiply(self, other: FactoredOperand, bias: Tensor, out: Tensor) -> None:
        """Write inner products plus ``bias`` (one per row of ``other``) to ``out`` (n, m)."""
        torch.addmm(bias, self.shift, other.scale.T, out=out)
        by_activation, by_error = torch.empty_like(out), torch.empty_like(out)
        for a, d, b, e in zip(self.activations, self.errors, other.activations, other.errors, strict=True):
            torch.mm(d, e.T, out=by_error)
            torch.mm(a[:, :PANEL], b[:, :PANEL].T, out=by_activation)
            for start in range(PANEL, a.shape[1], PANEL):
                by_activation.addmm_(a[:, start : start + PANEL], b[:, start : start + PANEL].T)
            out.addcmul_(by_activation, by_error)
