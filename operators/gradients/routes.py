"""Two ways to per-sample gradients: activation x error of every layer, and torch.func for any module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from operators.gradients.factors import Gradient, entries
from operators.gradients.layers import Layers, plain_attention

RouteName: TypeAlias = Literal["auto", "layers", "func"]
TOLERANCE = 1e-4
"""Of a row's norm: float32 products of another height round differently, by far less than this."""


class Route(Protocol):
    """Gradients of each row's softmax cross-entropy in the selected parameters."""

    def __call__(self, x: Tensor, y: Tensor) -> Sequence[Gradient]:
        """One gradient per selected parameter, of the m rows of x (m, ...) and labels y (m,)."""
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
        """See :class:`Route`."""
        # The outer no_grad keeps the parameters that were not selected out of an autograd graph;
        # torch.func.grad differentiates all the same.
        with torch.no_grad(), plain_attention():
            return list(self._gradients(self._selected, x, y).values())


def choose_route(
    model: nn.Module, selected: Mapping[str, nn.Parameter], rows: Tensor, wanted: RouteName = "auto"
) -> Route:
    """``layers`` where it gives the gradients of two trial rows (2, ...), else ``func``.

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
    """The route ``layers`` if it gives the gradients of two trial rows (2, ...); else what is wrong."""
    try:
        route = Layers(model, selected, rows)
        fault = _fault(route, model, selected, rows)
    except (RuntimeError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        fault = f"it fails with {type(error).__name__}: {error}"
    return (None, fault) if fault else (route, "")


def _fault(route: Route, model: nn.Module, selected: Mapping[str, nn.Parameter], rows: Tensor) -> str:
    """What is wrong with a route, found by one backward pass a row; empty where it is right."""
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
