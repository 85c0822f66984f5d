"""Per-sample gradients of linear layers as their two factors.

The gradient of a row's loss in the weight of a linear layer is the outer product of the backpropagated error
d and the activation a; in its bias it is d. For two rows, therefore,

    <G, G'> = sum over layers of (<a, a'> + 1) <d, d'>

without the 1 if the bias was not chosen, and with only the 1 if the weight was not. For a head of C classes
over k features these are k + C numbers per row instead of C (k + 1).

Source: Goodfellow: Efficient per-example gradient computations, 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from operators.arrays import Float64, Matrix

BLOCK = 4096
"""Rows that are converted to float64 at once."""
LOST = 1e-13
"""A squared norm below this share of its terms is a rounding error."""


@dataclass(frozen=True, eq=False)
class Layer:
    """Factors of the gradients in one linear layer.

    Attributes
    ----------
    activations : (n, k) inputs of the layer.
    errors : (n, c) gradient of the loss in the outputs of the layer.
    weight, bias : whether the gradients are those in the layer's weight and in its bias.
    """

    activations: Matrix
    errors: Matrix
    weight: bool = True
    bias: bool = True

    @property
    def width(self) -> int:
        """Entries of a flat gradient in this layer's chosen parameters."""
        per_error = (self.activations.shape[1] if self.weight else 0) + int(self.bias)
        return int(self.errors.shape[1] * per_error)

    def take(self, rows: Any) -> Layer:
        """Return the layer of the rows ``rows``."""
        return Layer(self.activations[rows], self.errors[rows], self.weight, self.bias)

    def widened(self, dtype: Any = np.float64) -> tuple[Matrix, Matrix]:
        """Return copies of the activations, with a 1 in the bias's place, and of the errors."""
        columns: list[Matrix] = [self.activations.astype(dtype)] if self.weight else []
        columns += [np.ones((len(self.errors), 1), dtype)] if self.bias else []
        return np.concatenate(columns, axis=1), self.errors.astype(dtype)

    @property
    def depth(self) -> int:
        """Terms in the sums behind one inner product."""
        return int((self.activations.shape[1] if self.weight else 0) + int(self.bias) + self.errors.shape[1])


class FactoredGradients:
    """Gradients of n rows in the parameters of some linear layers, as factors.

    Parameters
    ----------
    layers : factors of each layer, the same rows in all.

    Attributes
    ----------
    layers : as given.
    shape : (n, entries of a flat gradient).

    Raises
    ------
    ValueError : no layer, layers of different lengths, or one with neither weight nor bias.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = tuple(layers)
        lengths = {len(part) for layer in self.layers for part in (layer.activations, layer.errors)}
        if len(lengths) != 1:
            raise ValueError(
                f"layers have {sorted(lengths)} rows; give at least one layer, all of the same rows"
            )
        for number, layer in enumerate(self.layers):
            if not (layer.weight or layer.bias):
                raise ValueError(f"layer {number} has neither weight nor bias chosen; leave it out")
        self.shape = lengths.pop(), sum(layer.width for layer in self.layers)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> FactoredGradients:
        """Return the gradients of some rows; ``rows`` is a slice, an index array or a mask."""
        return FactoredGradients([layer.take(rows) for layer in self.layers])

    @property
    def nbytes(self) -> int:
        """Bytes of all factors."""
        return sum(layer.activations.nbytes + layer.errors.nbytes for layer in self.layers)

    def products(self, other: FactoredGradients) -> Float64:
        """Return the inner products (n, m), float64, with the rows of ``other``."""
        total = np.zeros((len(self), len(other)))
        for mine, theirs in zip(self.layers, other.layers, strict=True):
            (a, d), (b, e) = mine.widened(), theirs.widened()
            part = a @ b.T
            part *= d @ e.T
            total += part
        return total

    def pair_products(self, other: FactoredGradients) -> Float64:
        """Return the inner product (n,), float64, of each row with the same row of ``other``."""
        total = np.zeros(len(self))
        for mine, theirs in zip(self.layers, other.layers, strict=True):
            (a, d), (b, e) = mine.widened(), theirs.widened()
            total += np.einsum("ij,ij->i", a, b) * np.einsum("ij,ij->i", d, e)
        return total

    def squared_norms(self) -> Float64:
        """Return the squared norm of each row, (n,) float64."""
        return np.concatenate([self[some].pair_products(self[some]) for some in _slices(len(self))])

    def mean(self) -> MeanGradient:
        """Return the mean of all gradients."""
        sums = [
            sum(d.T @ a for a, d in (layer.take(some).widened() for some in _slices(len(self))))
            for layer in self.layers
        ]
        return MeanGradient([np.asarray(part) / len(self) for part in sums])

    def flat(self) -> Matrix:
        """Return the gradients (n, p) laid out as :func:`operators.gradients.per_sample_gradients` does."""
        parts: list[Matrix] = []
        for layer in self.layers:
            a, d = layer.activations, layer.errors
            parts += [(d[:, :, None] * a[:, None, :]).reshape(len(self), -1)] if layer.weight else []
            parts += [d] if layer.bias else []
        return np.concatenate(parts, axis=1)

    def all_equal(self) -> bool:
        """Return whether all gradients equal the first one up to 3e-7 of their norms, the rounding of
        float64.
        """
        first = self[:1]
        own, squares = float(first.squared_norms()[0]), self.squared_norms()
        apart = squares + own - 2 * self.products(first)[:, 0]
        return bool((apart <= LOST * (squares + own)).all())

    def check_finite(self, name: str = "gradients") -> None:
        """Raise ValueError with the row and layer of the first value that is not finite."""
        for number, layer in enumerate(self.layers):
            for part in (layer.activations, layer.errors):
                bad = np.flatnonzero(~np.isfinite(part).all(axis=1))
                if len(bad):
                    raise ValueError(f"{name}: row {bad[0]} of layer {number} is not finite")


@dataclass(frozen=True, eq=False)
class MeanGradient:
    """The mean of factored gradients, which is not an outer product itself.

    Attributes
    ----------
    parts : one array (c, k + 1) float64 per layer, with the columns of :meth:`Layer.widened`.
    """

    parts: Sequence[Float64]

    def products(self, gradients: FactoredGradients) -> Float64:
        """Return the inner products (n,), float64, with the rows of ``gradients``."""
        return np.concatenate([self._products(gradients[some]) for some in _slices(len(gradients))])

    def _products(self, gradients: FactoredGradients) -> Float64:
        total = np.zeros(len(gradients))
        for part, layer in zip(self.parts, gradients.layers, strict=True):
            a, d = layer.widened()
            total += np.einsum("ij,ij->i", d @ part, a)
        return total

    def squared_norm(self) -> float:
        """Return the squared length of the gradient."""
        return float(sum(np.vdot(part, part) for part in self.parts))


def _slices(n: int) -> list[slice]:
    return [slice(start, start + BLOCK) for start in range(0, max(n, 1), BLOCK)]
