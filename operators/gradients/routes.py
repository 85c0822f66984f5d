"""Two ways to per-sample gradients: closed form for a final linear layer, torch.func for the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap


class Route(Protocol):
    """Gradients of each row's softmax cross-entropy in the selected parameters."""

    def __call__(self, x: Tensor, y: Tensor, out: Sequence[Tensor] | None = None) -> Sequence[Tensor]:
        """One (m, *parameter shape) tensor per selected parameter, for x (m, d) and y (m,).

        Written into ``out`` where given.
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

    def __call__(self, x: Tensor, y: Tensor, out: Sequence[Tensor] | None = None) -> Sequence[Tensor]:
        """See :class:`Route`."""
        # The outer no_grad keeps the parameters that were not selected out of an autograd graph;
        # torch.func.grad differentiates all the same.
        with torch.no_grad():
            gradients = list(self._gradients(self._selected, x, y).values())
        for target, gradient in zip(out or (), gradients, strict=out is not None):
            target.copy_(gradient)
        return out or gradients


class LinearHead:
    """Closed form for ``logits = W a + b``: dL/dW = (p - onehot(y)) a^T, dL/db = p - onehot(y).

    ``a`` are the activations that enter ``head``; softmax cross-entropy, one forward pass, no backward.
    """

    def __init__(self, model: nn.Module, head: nn.Linear, names: Sequence[str]) -> None:
        self._model, self._head, self._names = model, head, names

    def __call__(self, x: Tensor, y: Tensor, out: Sequence[Tensor] | None = None) -> Sequence[Tensor]:
        """See :class:`Route`."""
        with torch.no_grad():
            call = _record_call(self._model, self._head, x)
            error = torch.softmax(call.model_output, dim=1)
            error[torch.arange(len(y), device=y.device), y] -= 1
            targets: Sequence[Tensor | None] = out or [None] * len(self._names)
            return [
                _outer(error, call.inputs[0], target) if name == "weight" else _into(error, target)
                for name, target in zip(self._names, targets, strict=True)
            ]


def _outer(error: Tensor, activations: Tensor, out: Tensor | None) -> Tensor:
    return torch.mul(error[:, :, None], activations[:, None, :], out=out)


def _into(values: Tensor, out: Tensor | None) -> Tensor:
    return values if out is None else out.copy_(values)


@dataclass
class _Call:
    """What went through a linear layer during one forward pass of the model around it."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    versions: list[int]
    model_output: Tensor


def _record_call(model: nn.Module, head: nn.Linear, x: Tensor) -> _Call:
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    versions: list[int] = []

    def remember(_module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        inputs.extend(args[:1])
        outputs.append(output)
        versions.append(output._version)

    handle = head.register_forward_hook(remember)
    try:
        result = model(x)
    finally:
        handle.remove()
    return _Call(inputs, outputs, versions, result)


def choose_route(model: nn.Module, selected: Mapping[str, nn.Parameter], row: Tensor) -> Route:
    """The closed form if it is certain to apply, else torch.func. ``row`` (1, d) is used for a trial."""
    found = _owner(model, selected)
    if found is None:
        return AnyModule(model, selected)
    head, names = found
    return LinearHead(model, head, names) if _is_final(model, head, row) else AnyModule(model, selected)


def _owner(model: nn.Module, selected: Mapping[str, nn.Parameter]) -> tuple[nn.Linear, list[str]] | None:
    """The one plain linear layer that holds every selected parameter, with their names in it.

    None where there is no such layer, or another module holds one of them too (tied weights).
    """
    wanted = {id(parameter) for parameter in selected.values()}
    holders = [m for m in model.modules() if any(id(p) in wanted for p in m._parameters.values())]
    if len(holders) != 1 or type(holders[0]) is not nn.Linear:
        return None
    head = holders[0]
    names = [name for name, parameter in head.named_parameters(recurse=False) if id(parameter) in wanted]
    return (head, names) if len(names) == len(selected) else None


def _is_final(model: nn.Module, head: nn.Linear, row: Tensor) -> bool:
    """Whether the model returns the head's output untouched, and fed it nothing its weights had shaped.

    A trial forward pass in which only the head's parameters require a gradient answers the second
    question exactly: its input then requires one only if they were used before it.
    """
    with _only_requires_grad(model, head), torch.enable_grad():
        call = _record_call(model, head, row)
    return (
        not head._forward_hooks
        and len(call.inputs) == 1
        and call.inputs[0].ndim == 2
        and not call.inputs[0].requires_grad
        and call.model_output is call.outputs[0]
        and call.model_output._version == call.versions[0]
    )


@contextmanager
def _only_requires_grad(model: nn.Module, part: nn.Module) -> Iterator[None]:
    before = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    inside = {id(parameter) for parameter in part.parameters()}
    try:
        for parameter, _ in before:
            parameter.requires_grad_(id(parameter) in inside)
        yield
    finally:
        for parameter, required in before:
            parameter.requires_grad_(required)
