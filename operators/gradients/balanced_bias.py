"""Gradients in which biases count as much as features (``gradients.bias: balanced``).

``W x + b`` equals ``[W, b/s] [x, s]`` for every s, but the gradient in ``b/s`` is s times the error. With s =
1 its norm is 1/sqrt(d) of that of the gradient in W for d standardised features, so the cosine of two
gradients is almost that of the features. With s the length of x, the bias has about half of the squared norm,
and rows of small and of large error are told apart.
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


class AppendConstant(nn.Module):
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
    model : model from rows to logits, which is not changed.
    X : (n, ...) sample of the rows.
    pattern : regular expression of the chosen parameters' names, as in ``per_sample_gradients``.
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
    """Return a copy of the model with each bias as one more weight, and the pattern of the same parameters.

    Parameters
    ----------
    model : model, which is not changed.
    lengths : result of :func:`input_lengths`.
    pattern : regular expression of the names of the chosen parameters.
    """
    chosen = set(select_parameters(model, pattern))
    model = copy.deepcopy(model)
    for path, length in lengths.items():
        parent, _, name = path.rpartition(".")
        layer = model.get_submodule(path)
        setattr(model.get_submodule(parent), name, _with_bias_as_weight(layer, length))  # type: ignore[arg-type]
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


def _with_bias_as_weight(layer: nn.Linear, length: float) -> nn.Module:
    wide = nn.Linear(layer.in_features + 1, layer.out_features, bias=False, dtype=layer.weight.dtype)
    with torch.no_grad():
        wide.weight.copy_(torch.cat([layer.weight, layer.bias[:, None] / length], dim=1))
    wide.to(layer.weight.device)
    return nn.Sequential(OrderedDict(constant=AppendConstant(length), linear=wide))
