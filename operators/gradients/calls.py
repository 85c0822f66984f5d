"""What goes through a model's modules while it computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Call:
    """One call of a module: its positional and named arguments, and the tensor it returned."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    output: Tensor | None
    """None where it returned no tensor, or several."""

    @property
    def is_per_row(self) -> bool:
        """Whether tensors come by position and go out as one, all as long as the batch."""
        tensors = [arg for arg in self.args if isinstance(arg, Tensor)]
        named = any(isinstance(value, Tensor) for value in self.kwargs.values())
        lengths = {tensor.shape[:1] for tensor in (*tensors, self.output) if tensor is not None}
        return bool(tensors) and not named and self.output is not None and lengths == {tensors[0].shape[:1]}


def sole_tensor(output: Any) -> Tensor | None:
    """The tensor a module returned, also as the only one of a tuple (attention returns None beside it)."""
    parts = output if isinstance(output, tuple | list) else (output,)
    tensors = [part for part in parts if isinstance(part, Tensor)]
    return tensors[0] if len(tensors) == 1 and parts[0] is tensors[0] else None


@contextmanager
def recording(modules: Mapping[str, nn.Module], *, tap: bool = False) -> Iterator[dict[str, list[Call]]]:
    """Note the calls of modules, in the order they end, by name.

    With ``tap``, autograd can differentiate in every noted output: one that has no history starts one, and
    what the model goes on with is a copy, so that no later change in place reaches what was noted.
    """
    found: dict[str, list[Call]] = {}

    def note(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        tensor = sole_tensor(output)
        if tap and tensor is not None and not tensor.requires_grad:
            tensor = tensor.detach().requires_grad_()
        found.setdefault(name, []).append(Call(args, kwargs, tensor))
        if not tap or tensor is None:
            return None
        return (tensor.clone(), *output[1:]) if isinstance(output, tuple | list) else tensor.clone()

    def hook(name: str) -> Any:
        return lambda _module, args, kwargs, output: note(name, args, kwargs, output)

    handles = [module.register_forward_hook(hook(name), with_kwargs=True) for name, module in modules.items()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """No parameter requires a gradient: autograd then starts at the first tapped output."""
    before = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        for parameter, _ in before:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter, required in before:
            parameter.requires_grad_(required)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode; afterwards every module is in the mode it had."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


def check_rows_apart(model: nn.Module, rows: Tensor, logits: Tensor) -> None:
    """Raises ValueError, naming the layer, where a row's logits depend on the rows beside it.

    ``rows`` (2, ...), two that differ, and their ``logits``: the first is run again beside itself.
    """
    with torch.no_grad():
        if _first_row_differs(logits, model(rows[[0, 0]])):
            raise ValueError(
                f"{_first_mixer(model, rows)} mixes the rows of a batch even in eval mode: a row's output "
                "changes with the row beside it, so no row has its own gradient. Give a batch-norm layer "
                "running statistics (track_running_stats=True), or use GroupNorm or LayerNorm instead."
            )


def _first_mixer(model: nn.Module, rows: Tensor) -> str:
    leaves = {name: module for name, module in model.named_modules() if not list(module.children())}
    with recording(leaves) as beside_other:
        model(rows)
    with recording(leaves) as beside_itself:
        model(rows[[0, 0]])
    for name, calls in beside_other.items():
        pairs = zip(calls, beside_itself.get(name, ()), strict=False)
        if any(_first_row_differs(a.output, b.output) for a, b in pairs):
            return f"the layer '{name}' ({type(leaves[name]).__name__})"
    return "a computation outside the model's layers"


def _first_row_differs(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None or a.ndim == 0 or a.shape != b.shape or not a.is_floating_point():
        return False
    scale = float(a[0].abs().max()) if a[0].numel() else 0.0
    return not torch.allclose(a[0], b[0], rtol=1e-4, atol=1e-5 * scale, equal_nan=True)
