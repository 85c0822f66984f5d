"""Projects gradients while they are computed, parameter by parameter."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from operators.gradients.factors import Factors, Gradient, entries
from operators.gradients.projection import Projection


def project(gradients: Sequence[Gradient], projection: Projection, out: Tensor) -> None:
    """Fill out (m, dim) with the sum over the selected parameters, in their order, of what each gives."""
    add = _add_sketch if projection.method == "tensor_sketch" else _add_product
    first = gradients[0].errors if isinstance(gradients[0], Factors) else gradients[0]
    total = first.new_zeros(out.shape)
    for number, gradient in enumerate(gradients):
        add(total, number, gradient, projection)
    out.copy_(total)


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
    """(m, size) to (m, dim). On a GPU the entries of a bucket are added in no fixed order."""
    places, signs = projection.buckets(number, which, vectors.shape[1])
    sketch = vectors.new_zeros(len(vectors), projection.dim)
    signed = vectors * torch.from_numpy(signs).to(vectors)
    return sketch.index_add_(1, torch.from_numpy(places).to(vectors.device), signed)


def _size(gradient: Gradient) -> int:
    if isinstance(gradient, Factors):
        return gradient.errors.shape[2] * gradient.activations.shape[2]
    return gradient[0].numel()
