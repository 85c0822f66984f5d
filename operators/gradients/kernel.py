"""Per-sample gradients: what every row of a dataset wants a classifier to become."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from operators.gradients.calls import evaluating
from operators.gradients.factors import Gradient, write
from operators.gradients.projecting import project
from operators.gradients.projection import Projection
from operators.gradients.routes import RouteName, choose_route
from operators.gradients.rows import Labels, Matrix, Rows, select_parameters

CHUNK_BYTES = 32 * 2**20
MAX_CHUNK = 4096


def per_sample_gradients(
    model: nn.Module,
    X: Matrix,
    y: Labels,
    *,
    parameters: str | None = None,
    chunk_size: int | None = None,
    projection: Projection | None = None,
    route: RouteName = "auto",
) -> NDArray[np.float32]:
    """Gradient of each row's softmax cross-entropy in the model's parameters.

    The rows are what GRASP clusters (Zeng, Greenewald, Lee, Solomon & Yurochkin 2022, "Outlier-robust
    group inference via gradient space clustering", section 3). The model computes where its parameters
    lie, in eval mode for the call, and is left as it was.

    Parameters
    ----------
    model : module from (m, ...) to (m, C) logits, C >= 2.
    X : (n, ...) array or tensor.
    y : (n,) class indices in 0 .. C - 1.
    parameters : regular expression; a parameter counts if ``re.search`` finds it in its name.
        Default: all that require a gradient. Those that do not are never counted.
    chunk_size : rows per forward pass, halved while a GPU runs out of memory. Default: 32 MiB of gradients,
        at most 4096 rows. Products of another height round differently, by some 1e-6 of a row's norm:
        split the same rows the same way where bytes must agree.
    projection : project every gradient while it is computed; they are never laid side by side.
    route : ``layers`` forms activation x error of each layer (:class:`operators.gradients.layers.Layers`),
        ``func`` is ``vmap(grad)`` of the whole model; ``auto`` takes ``layers`` where it gives the
        gradients of two trial rows. All agree to 1e-5 of a row's norm.

    Returns
    -------
    (n, p) float32, columns in the order of ``model.named_parameters()``, each parameter flattened
    row-major; or (n, projection.dim).

    Raises
    ------
    ValueError
        No parameter matches, X and y disagree, a label is no class of the model, the model mixes the rows
        of a batch (there is then no per-sample gradient), or the route does not suit the model.
    """
    selected = select_parameters(model, parameters)
    chosen = list(selected.values())
    rows = Rows(X, y, chosen[0])
    size = sum(parameter.numel() for parameter in chosen)
    chunk = _rows_at_once(chunk_size, size)
    result = np.empty((len(rows), size if projection is None else projection.dim), dtype=np.float32)
    if len(rows):
        with evaluating(model):
            compute = choose_route(model, selected, rows.try_on(model), route)

            def fill(part: slice) -> None:
                _fill(torch.from_numpy(result[part]), compute(*rows.chunk(part)), chosen, projection)

            in_chunks(fill, len(rows), chunk)
    return result


def _rows_at_once(chunk_size: int | None, size: int) -> int:
    if chunk_size is None:
        return max(1, min(MAX_CHUNK, CHUNK_BYTES // (4 * size)))
    if chunk_size < 1:
        raise ValueError(f"chunk_size={chunk_size}: must be at least 1")
    return chunk_size


def in_chunks(fill: Callable[[slice], None], n: int, rows: int) -> None:
    """Call ``fill`` for one slice of ``rows`` after the other, with half of them where memory runs out.

    Raises torch.OutOfMemoryError where a single row does not fit.
    """
    start = 0
    while start < n:
        try:
            fill(slice(start, min(start + rows, n)))
            start += rows
            continue
        except torch.OutOfMemoryError as error:
            if rows == 1:
                error.add_note("One row alone does not fit: choose fewer parameters, or a projection.")
                raise
        # Outside the handler, whose traceback would keep the tensors of the failed attempt alive.
        rows = (rows + 1) // 2
        torch.cuda.empty_cache()


def _fill(
    out: Tensor, gradients: Sequence[Gradient], chosen: Sequence[Tensor], projection: Projection | None
) -> None:
    """Fill out (m, p), one block of columns per parameter, or (m, dim).

    Where the model computes on the CPU in float32, gradients are formed in ``out`` itself.
    """
    if projection is not None:
        project(gradients, projection, out)
        return
    direct = chosen[0].device == out.device and chosen[0].dtype == out.dtype
    table = out if direct else chosen[0].new_empty(out.shape)
    blocks = torch.split(table, [parameter.numel() for parameter in chosen], dim=1)
    for gradient, block, parameter in zip(gradients, blocks, chosen, strict=True):
        write(gradient, block.view(len(out), *parameter.shape))
    if not direct:
        out.copy_(table)
