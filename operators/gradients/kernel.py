"""Per-sample gradients: what every row of a dataset wants a classifier to become."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from operators.gradients.projection import Projection
from operators.gradients.routes import Route, choose_route

CHUNK_BYTES = 16 * 2**20
MAX_CHUNK = 4096

Matrix = NDArray[np.float32] | Tensor
Labels = ArrayLike | Tensor


def per_sample_gradients(
    model: nn.Module,
    X: Matrix,
    y: Labels,
    *,
    parameters: str | None = None,
    chunk_size: int | None = None,
    projection: Projection | None = None,
) -> NDArray[np.float32]:
    """Gradient of each row's softmax cross-entropy in the model's parameters.

    The rows are what GRASP clusters (Zeng, Greenewald, Lee, Solomon & Yurochkin 2022, "Outlier-robust
    group inference via gradient space clustering", section 3). Where the selected parameters are those
    of one final ``nn.Linear``, the closed form (p - onehot(y)) [a, 1] is used, else ``torch.func``;
    both agree to 1e-5. The model computes where its parameters lie, in eval mode for the call, and
    is left as it was.

    Parameters
    ----------
    model : module from (m, d) to (m, C) logits, C >= 2.
    X : (n, d) float32 array or tensor.
    y : (n,) class indices in 0 .. C - 1.
    parameters : regular expression; a parameter counts if ``re.search`` finds it in its name.
        Default: all that require a gradient. Those that do not are never counted.
    chunk_size : rows per forward pass. Default: 16 MiB of gradients, at most 4096 rows. Matrix products
        of another height round differently, so results agree between chunk sizes only to about
        1e-6 of a row's norm: split the same rows the same way where bytes must agree.
    projection : project every gradient while it is computed. A chunk's gradients are then held for one
        parameter after the other and never laid side by side.

    Returns
    -------
    (n, p) float32, columns in the order of ``model.named_parameters()``, each parameter flattened
    row-major; or (n, projection.dim).

    Raises
    ------
    ValueError
        No parameter matches, X and y disagree, a label is no class of the model, or a batch-norm layer
        has no running statistics (its output mixes rows: there is no per-sample gradient).
    """
    selected = select_parameters(model, parameters)
    labels = _as_labels(y)
    if len(X) != len(labels):
        raise ValueError(f"X has {len(X)} rows and y has {len(labels)}; they must be the same rows")
    sizes = [parameter.numel() for parameter in selected.values()]
    width = sum(sizes) if projection is None else projection.dim
    result = np.empty((len(labels), width), dtype=np.float32)
    rows = max(1, min(MAX_CHUNK, CHUNK_BYTES // (4 * sum(sizes)))) if chunk_size is None else chunk_size
    if rows < 1:
        raise ValueError(f"chunk_size={chunk_size}: must be at least 1")
    if not len(labels):
        return result
    with _evaluating(model):
        inputs = _Inputs(X, labels, next(iter(selected.values())))
        route = choose_route(model, selected, inputs.trial(model))
        for start in range(0, len(labels), rows):
            x, target = inputs.chunk(slice(start, start + rows))
            out = torch.from_numpy(result[start : start + rows])
            if projection is None:
                _write(route, x, target, out, [parameter.shape for parameter in selected.values()])
            else:
                _project(route(x, target), projection, out)
    return result


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


def _write(route: Route, x: Tensor, y: Tensor, out: Tensor, shapes: Sequence[torch.Size]) -> None:
    """Fill out (m, p), one block of columns per parameter; on the CPU without an intermediate copy."""
    columns = torch.split(out, [shape.numel() for shape in shapes], dim=1)
    targets = [block.view(len(x), *shape) for block, shape in zip(columns, shapes, strict=True)]
    if x.device.type == "cpu" and x.dtype == out.dtype:
        route(x, y, out=targets)
        return
    for target, gradient in zip(targets, route(x, y), strict=True):
        target.copy_(gradient)


def _project(gradients: Sequence[Tensor], projection: Projection, out: Tensor) -> None:
    """Fill out (m, dim) with the sum over parameters of gradient (m, size) @ matrix (size, dim)."""
    total = torch.zeros(out.shape, dtype=gradients[0].dtype, device=gradients[0].device)
    for number, gradient in enumerate(gradients):
        flat = gradient.reshape(len(gradient), -1)
        for entries, piece in projection.pieces(number, flat.shape[1]):
            total.addmm_(flat[:, entries], torch.from_numpy(piece).to(total))
    out.copy_(total)


class _Inputs:
    """Rows and labels, handed out chunk by chunk where and in the precision the model computes."""

    def __init__(self, X: Matrix, labels: Tensor, like: Tensor) -> None:
        self._X, self._labels, self._like = X, labels, like

    def chunk(self, rows: slice) -> tuple[Tensor, Tensor]:
        part = self._X[rows]
        # torch.tensor copies: a column read from Arrow is read-only, which torch cannot express.
        x = part if isinstance(part, Tensor) else torch.tensor(part)
        return x.to(self._like), self._labels[rows].to(self._like.device)

    def trial(self, model: nn.Module) -> Tensor:
        """The first row, after checking with it that every label is one of the model's classes."""
        row, _ = self.chunk(slice(0, 1))
        with torch.no_grad():
            n_classes = model(row).shape[1]
        bad = torch.nonzero((self._labels < 0) | (self._labels >= n_classes))
        if len(bad):
            place = int(bad[0])
            raise ValueError(
                f"y[{place}] = {int(self._labels[place])}, but the model has {n_classes} logits: "
                f"labels must lie in 0 .. {n_classes - 1}"
            )
        return row


def _as_labels(y: Labels) -> Tensor:
    labels = y.detach().cpu() if isinstance(y, Tensor) else torch.tensor(np.asarray(y))
    if labels.ndim != 1 or labels.is_floating_point():
        raise ValueError(
            f"y is {labels.dtype} of shape {tuple(labels.shape)}; it must be (n,) integers, "
            "one class index per row"
        )
    return labels.to(torch.int64)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.running_mean is None:
            raise ValueError(
                f"the batch-norm layer '{name}' keeps no running statistics, so each output depends on the "
                "other rows of its batch and has no gradient of its own. "
                "Train it with track_running_stats=True."
            )
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training
