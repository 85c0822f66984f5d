"""Per-sample gradients of a classifier's cross-entropy, the input of GRASP (Zeng et al. 2022, equation 1).

:func:`per_sample_gradients` validates rows and labels (:class:`Rows`), chooses a route (:class:`Route`:
layer by layer, or ``torch.func`` for any module) and computes the gradients in chunks, projected if asked
(:class:`operators.gradients.projection.Projection`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils.dlpack import from_dlpack

from operators.gradients.layers import (
    Factors,
    Gradient,
    Layers,
    check_rows_apart,
    entries,
    evaluating,
    plain_attention,
    write,
)
from operators.gradients.projection import Projection

Features: TypeAlias = NDArray[np.float32] | Tensor
Classes: TypeAlias = ArrayLike | Tensor
LOOK = 256
"""Rows searched for one that differs from the first."""


class Rows:
    """Rows X (n, ...) and labels y (n,), which are read in chunks."""

    def __init__(self, X: Features, y: Classes, like: Tensor) -> None:
        """Check the labels; chunks have the precision and lie on the device of ``like``."""
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
        """Return some rows and their labels; a view of X if the model takes X as it is."""
        x = self._x[rows].to(self._like)
        return x.clone() if self._copies else x, self._y[rows].to(self._like.device)

    def try_on(self, model: nn.Module) -> Tensor:
        """Check the model on two rows, different ones if there are any, and return these rows (2, ...).

        Raises ValueError where a label is not one of the model's classes, or the model mixes rows.
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


def _as_labels(y: Classes) -> Tensor:
    labels = y.detach().cpu() if isinstance(y, Tensor) else torch.tensor(np.asarray(y))
    if labels.ndim != 1 or labels.is_floating_point():
        raise ValueError(
            f"y is {labels.dtype} of shape {tuple(labels.shape)}; it must be (n,) integers, "
            "one class index per row"
        )
    return labels.to(torch.int64)


def select_parameters(model: nn.Module, pattern: str | None) -> Mapping[str, nn.Parameter]:
    """Return the named parameters that require a gradient and in whose name ``pattern`` is found (all if
    None).
    """
    names = {name: p for name, p in model.named_parameters() if p.requires_grad}
    selected = {name: p for name, p in names.items() if pattern is None or re.search(pattern, name)}
    if not selected:
        known = ", ".join(names) or "none: every parameter is frozen"
        raise ValueError(
            f"parameters={pattern!r} matches no trainable parameter of the model. It has: {known}"
        )
    return selected


RouteName: TypeAlias = Literal["auto", "layers", "func"]
TOLERANCE = 1e-4
"""Tolerance relative to a row's norm. Rounding of float32 products of other sizes is far smaller."""


class Route(Protocol):
    """Gradients of each row's softmax cross-entropy in the selected parameters."""

    def __call__(self, x: Tensor, y: Tensor) -> Sequence[Gradient]:
        """Compute the gradients of the m rows of x (m, ...) with labels y (m,): one array for each selected
        parameter.
        """
        ...


class AnyModule:
    """``vmap(grad(loss))`` over the rows: any module that torch.func can transform."""

    def __init__(self, model: nn.Module, selected: Mapping[str, Tensor]) -> None:
        self._selected = {name: parameter.detach() for name, parameter in selected.items()}

        def loss(parameters: Mapping[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
            logits = functional_call(model, dict(parameters), (row.unsqueeze(0),))
            return nn.functional.cross_entropy(logits, label.unsqueeze(0))

        self._gradients = vmap(grad(loss), in_dims=(None, 0, 0))

    def __call__(self, x: Tensor, y: Tensor) -> Sequence[Gradient]:
        """Return one gradient per selected parameter, by ``vmap`` over the rows."""
        # The outer no_grad keeps the parameters that were not selected out of an autograd graph;
        # torch.func.grad differentiates all the same.
        with torch.no_grad(), plain_attention():
            return list(self._gradients(self._selected, x, y).values())


def choose_route(
    model: nn.Module, selected: Mapping[str, nn.Parameter], rows: Tensor, wanted: RouteName = "auto"
) -> Route:
    """Choose ``layers`` if it gives the gradients of two trial rows (2, ...), else ``func``.

    Raises ValueError where ``layers`` is wanted and does not.
    """
    if wanted == "func":
        return AnyModule(model, selected)
    route, fault = by_layers(model, selected, rows)
    if route is not None:
        return route
    if wanted == "layers":
        raise ValueError(f"route='layers' does not suit this model: {fault}. Use route='auto' or 'func'.")
    return AnyModule(model, selected)


def by_layers(
    model: nn.Module, selected: Mapping[str, nn.Parameter], rows: Tensor
) -> tuple[Layers | None, str]:
    """Return the route ``layers`` if it gives the gradients of two trial rows (2, ...), else the fault."""
    try:
        route = Layers(model, selected, rows)
        fault = _fault(route, model, selected, rows)
    except (RuntimeError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        fault = f"it fails with {type(error).__name__}: {error}"
    return (None, fault) if fault else (route, "")


def _fault(route: Route, model: nn.Module, selected: Mapping[str, nn.Parameter], rows: Tensor) -> str:
    """Compare a route with one backward pass for each row; return what is wrong, or an empty text."""
    with torch.no_grad():
        # The least likely class: the gradient of a row that is surely right would be rounding errors.
        labels = model(rows).argmin(dim=1)
    gradients = route(rows, labels)
    for number in range(len(rows)):
        part = slice(number, number + 1)
        with torch.enable_grad():
            loss = nn.functional.cross_entropy(model(rows[part]), labels[part])
            expected = torch.autograd.grad(loss, list(selected.values()), materialize_grads=True)
        scale = sum(float(wanted.square().sum()) for wanted in expected) ** 0.5
        for (name, parameter), gradient, right in zip(selected.items(), gradients, expected, strict=True):
            got = entries(gradient, slice(0, parameter.numel()))[number]
            if not float((got - right.flatten()).norm()) <= TOLERANCE * scale:
                return f"its gradient in '{name}' is not that of a backward pass of one row"
    return ""


def project(gradients: Sequence[Gradient], projection: Projection, out: Tensor) -> None:
    """Fill out (m, dim) with the sum over the selected parameters, in their order, of what each gives."""
    add = _add_sketch if projection.method == "tensor_sketch" else _add_product
    first = gradients[0].errors if isinstance(gradients[0], Factors) else gradients[0]
    total = first.new_zeros(out.shape)
    for number, gradient in enumerate(gradients):
        add(total, number, gradient, projection)
    copy_to_host(total, out)


def copy_to_host(values: Tensor, out: Tensor) -> None:
    """Copy values to ``out``, which is on the CPU.

    From a GPU by way of pinned memory: a copy to memory that is new takes 5 times as long as all else.
    """
    if values.is_cuda:
        values = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values)
    out.copy_(values)


def _add_product(total: Tensor, number: int, gradient: Gradient, projection: Projection) -> None:
    for part, piece in projection.pieces(number, _size(gradient)):
        total.addmm_(entries(gradient, part), torch.from_numpy(piece).to(total))


def _add_sketch(total: Tensor, number: int, gradient: Gradient, projection: Projection) -> None:
    if not isinstance(gradient, Factors):
        total += _count_sketch(gradient.reshape(len(gradient), -1), number, 0, projection)
        return
    spectra = [
        torch.fft.rfft(_count_sketch(factor.flatten(0, 1), number, which, projection))
        for which, factor in enumerate((gradient.errors, gradient.activations))
    ]
    product = (spectra[0] * spectra[1]).view(*gradient.errors.shape[:2], -1).sum(dim=1)
    total += torch.fft.irfft(product, n=projection.dim)


def _count_sketch(vectors: Tensor, number: int, which: int, projection: Projection) -> Tensor:
    """Map (m, size) to (m, dim)."""
    places, signs = projection.buckets(number, which, vectors.shape[1])
    sketch = vectors.new_zeros(len(vectors), projection.dim)
    signed = vectors * torch.from_numpy(signs).to(vectors)
    add_in_order(sketch, torch.from_numpy(places).to(vectors.device), signed)
    return sketch


def add_in_order(total: Tensor, places: Tensor, values: Tensor) -> None:
    """Add values (m, k) to the columns ``places`` (k,) of total (m, dim), in the same order every time."""
    if values.is_cuda:
        # ``index_add_`` has no fixed order there. This sorts the places first; it is what torch itself calls
        # under its switch for deterministic algorithms, which would hold for the other threads as well.
        torch.ops.aten.index_put_(total, [None, places], values, True)
    else:
        total.index_add_(1, places, values)


def _size(gradient: Gradient) -> int:
    if isinstance(gradient, Factors):
        return gradient.errors.shape[2] * gradient.activations.shape[2]
    return gradient[0].numel()


CHUNK_BYTES, GPU_CHUNK_BYTES = 32 * 2**20, 512 * 2**20
MAX_CHUNK, GPU_MAX_CHUNK = 4096, 16_384
"""Gradients and rows that are computed at once. A GPU waits for the host between two chunks."""


def per_sample_gradients(
    model: nn.Module,
    X: Features,
    y: Classes,
    *,
    parameters: str | None = None,
    chunk_size: int | None = None,
    projection: Projection | None = None,
    route: RouteName = "auto",
) -> NDArray[np.float32]:
    """Compute the gradient of each row's softmax cross-entropy in the model's parameters.

    The rows are what GRASP clusters (Zeng, Greenewald, Lee, Solomon & Yurochkin 2022, "Outlier-robust
    group inference via gradient space clustering", section 3). The model computes where its parameters
    lie, in eval mode for the call, and is left as it was. On a GPU it computes as exactly as torch is set to:
    by torch's default convolutions are TF32, of three digits. ``operators.models.device_for(1)`` sets full
    float32 for the whole process, as every run does.

    Parameters
    ----------
    model : module from (m, ...) to (m, C) logits, C >= 2.
    X : (n, ...) array or tensor.
    y : (n,) class indices in 0 .. C - 1.
    parameters : regular expression; a parameter counts if ``re.search`` finds it in its name.
        Default: all that require a gradient. Those that do not are never counted.
    chunk_size : rows per forward pass, halved while a GPU runs out of memory. Default: 32 MiB of gradients,
        at most 4,096 rows; on a GPU 512 MiB and 16,384 rows. Products of another height round differently,
        by some 1e-6 of a row's norm: split the same rows the same way where bytes must agree.
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
        No parameter matches, X and y disagree, a label is not a class of the model, the model mixes the rows
        of a batch (there is then no per-sample gradient), or the route does not suit the model.
    """
    selected = select_parameters(model, parameters)
    chosen = list(selected.values())
    rows = Rows(X, y, chosen[0])
    size = sum(parameter.numel() for parameter in chosen)
    chunk = rows_at_once(chunk_size, size, chosen[0].device)
    result = np.empty((len(rows), size if projection is None else projection.dim), dtype=np.float32)
    if len(rows):
        with evaluating(model):
            compute = choose_route(model, selected, rows.try_on(model), route)

            def fill(part: slice) -> None:
                _fill(torch.from_numpy(result[part]), compute(*rows.chunk(part)), chosen, projection)

            in_chunks(fill, len(rows), chunk)
    return result


def rows_at_once(chunk_size: int | None, size: int, device: torch.device) -> int:
    """Return the rows per forward pass; None: as many as suit a device, where a row gives ``size`` numbers.

    Raises ValueError for less than 1.
    """
    if chunk_size is None:
        on_gpu = device.type == "cuda"
        most, n_bytes = (GPU_MAX_CHUNK, GPU_CHUNK_BYTES) if on_gpu else (MAX_CHUNK, CHUNK_BYTES)
        return max(1, min(most, n_bytes // (4 * size)))
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
        copy_to_host(table, out)
