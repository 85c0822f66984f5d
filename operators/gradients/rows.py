"""Rows and labels, handed out where and in the precision the model computes; parameters by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.utils.dlpack import from_dlpack

from operators.gradients.calls import check_rows_apart

Matrix: TypeAlias = NDArray[np.float32] | Tensor
Labels: TypeAlias = ArrayLike | Tensor
LOOK = 256
"""Rows searched for one that differs from the first."""


class Rows:
    """X (n, ...) and y (n,), in chunks."""

    def __init__(self, X: Matrix, y: Labels, like: Tensor) -> None:
        """Take both as they are; ``like`` says in which precision, and on which device, chunks come."""
        labels = _as_labels(y)
        if len(X) != len(labels):
            raise ValueError(f"X has {len(X)} rows and y has {len(labels)}; they must be the same rows")
        # Not from_numpy, which warns of read-only memory, such as a column of Arrow. Contiguous, because
        # from_dlpack ends the process on negative strides.
        self._x = X if isinstance(X, Tensor) else from_dlpack(np.ascontiguousarray(X))
        self._y, self._like, self._copies = labels, like, False

    def __len__(self) -> int:
        return len(self._y)

    def chunk(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Some rows and their labels; a view of X where it is what the model takes."""
        x = self._x[rows].to(self._like)
        return x.clone() if self._copies else x, self._y[rows].to(self._like.device)

    def try_on(self, model: nn.Module) -> Tensor:
        """Two rows to try the model on, (2, ...), different ones if there are, after checks with them.

        Raises ValueError where a label is none of the model's classes, or the model mixes rows.
        """
        head = self._x[:LOOK]
        others = (head != head[0]).flatten(1).any(dim=1).nonzero()
        pair = head[[0, int(others[0]) if len(others) else 0]].to(self._like)
        # A model that begins in place (ReLU(inplace=True)) must not write into the caller's rows.
        touched = pair.clone()
        with torch.no_grad():
            logits = model(touched)
        n_classes = logits.shape[1]
        self._copies = not torch.equal(touched, pair)
        bad = torch.nonzero((self._y < 0) | (self._y >= n_classes))
        if len(bad):
            place = int(bad[0])
            raise ValueError(
                f"y[{place}] = {int(self._y[place])}, but the model has {n_classes} logits: "
                f"labels must lie in 0 .. {n_classes - 1}"
            )
        if len(others):
            check_rows_apart(model, pair, logits)
        return pair


def _as_labels(y: Labels) -> Tensor:
    labels = y.detach().cpu() if isinstance(y, Tensor) else torch.tensor(np.asarray(y))
    if labels.ndim != 1 or labels.is_floating_point():
        raise ValueError(
            f"y is {labels.dtype} of shape {tuple(labels.shape)}; it must be (n,) integers, "
            "one class index per row"
        )
    return labels.to(torch.int64)


def select_parameters(model: nn.Module, pattern: str | None) -> Mapping[str, nn.Parameter]:
    """Named parameters that require a gradient and whose name ``pattern`` finds (all if None)."""
    names = {name: p for name, p in model.named_parameters() if p.requires_grad}
    selected = {name: p for name, p in names.items() if pattern is None or re.search(pattern, name)}
    if not selected:
        known = ", ".join(names) or "none: every parameter is frozen"
        raise ValueError(
            f"parameters={pattern!r} matches no trainable parameter of the model. It has: {known}"
        )
    return selected
