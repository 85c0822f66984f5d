"""Biases that weigh as much in a gradient as the features do (``gradients.bias: balanced``).

``W x + b`` is ``[W, b/s] [x, s]``: the same function for every s, but the gradient in ``b/s`` is s times
the error. With s = 1 it is 1/sqrt(d) of the gradient in W for d standardised features, and the cosine of
two rows' gradients is that of their features. With s the length of x, rows of small and large error lie
apart.
"""

from __future__ import annotations

import copy
import re
from collections import OrderedDict
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from operators.gradients.kernel import select_parameters
from operators.gradients.layers import evaluating


class Lifted(nn.Module):
    """Appends a constant to every vector."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self._size = size

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., d) to (..., d + 1)."""
        return torch.cat([x, x.new_full((*x.shape[:-1], 1), self._size)], dim=-1)


def input_lengths(model: nn.Module, X: Tensor, pattern: str | None = None) -> dict[str, float]:
    """Return the root mean square length of the input of each linear layer whose weight and bias are chosen.

    Parameters
    ----------
    model : from rows to logits; left as it was.
    X : (n, ...) rows that stand for all.
    pattern : of the chosen parameters' names, as in ``per_sample_gradients``.
    """
    found: dict[str, float] = {}
    hooks = []
    for path in _layers(model, pattern):

        def measure(_: nn.Module, args: tuple[Tensor, ...], path: str = path) -> None:
            found[path] = float(args[0].double().square().sum(dim=-1).mean().sqrt())

        hooks.append(model.get_submodule(path).register_forward_pre_hook(measure))
    with evaluating(model), torch.no_grad():
        model(X)
    for hook in hooks:
        hook.remove()
    return {path: length for path, length in found.items() if length > 0}


def balanced(
    model: nn.Module, lengths: Mapping[str, float], pattern: str | None = None
) -> tuple[nn.Module, str | None]:
    """Return the same function with each bias as one more weight, and the pattern that chooses the same
    parameters.

    Parameters
    ----------
    model : left as it was.
    lengths : of :func:`input_lengths`.
    pattern : of the chosen parameters' names.
    """
    chosen = set(select_parameters(model, pattern))
    model = copy.deepcopy(model)
    for path, length in lengths.items():
        parent, _, name = path.rpartition(".")
        layer = model.get_submodule(path)
        setattr(model.get_submodule(parent), name, _lift(layer, length))  # type: ignore[arg-type]
        chosen = (chosen - {f"{path}.weight", f"{path}.bias"}) | {f"{path}.linear.weight"}
    names = "|".join(re.escape(name) for name in sorted(chosen))
    return model, f"^({names})$"


def _layers(model: nn.Module, pattern: str | None) -> list[str]:
    chosen = select_parameters(model, pattern)
    return [
        path
        for path, module in model.named_modules()
        if path and type(module) is nn.Linear and {f"{path}.weight", f"{path}.bias"} <= chosen.keys()
    ]


def _lift(layer: nn.Linear, length: float) -> nn.Module:
    wide = nn.Linear(layer.in_features + 1, layer.out_features, bias=False, dtype=layer.weight.dtype)
    with torch.no_grad():
        wide.weight.copy_(torch.cat([layer.weight, layer.bias[:, None] / length], dim=1))
    wide.to(layer.weight.device)
    return nn.Sequential(OrderedDict(lift=Lifted(length), linear=wide))
