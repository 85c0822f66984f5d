"""Per-sample gradients layer by layer, from one forward and one backward pass of the whole batch.

The gradient in the weight of a linear layer is the outer product of the backpropagated error and the
activation (:class:`Factors`; Goodfellow 2015, "Efficient per-example gradient computations"). What enters
and leaves the modules is recorded by forward hooks (:func:`recording`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel


@dataclass(frozen=True)
class Factors:
    """Gradients of m rows in a weight (o, i): for each row, the sum over its T tokens of error x activation.

    ``errors`` (m, T, o) are the gradients of the loss in what left the layer, ``activations`` (m, T, i)
    what entered it; T = 1 where a row is one vector. Goodfellow 2015, "Efficient per-example gradient
    computations".
    """

    errors: Tensor
    activations: Tensor

    def write(self, out: Tensor) -> None:
        """Fill out (m, o, i), which may be strided, without a copy in between."""
        if self.errors.shape[1] == 1:
            # Four times faster than bmm, whose products of one column each are not worth their set-up.
            torch.mul(self.errors.mT, self.activations, out=out)
        else:
            torch.bmm(self.errors.mT, self.activations, out=out)

    def form(self) -> Tensor:
        """Form the gradients (m, o, i)."""
        return torch.bmm(self.errors.mT, self.activations)

    def entries(self, part: slice) -> Tensor:
        """Form the columns ``part`` of the gradients flattened row-major, (m, part), without the others."""
        width = self.activations.shape[2]
        first, last = part.start // width, -(-part.stop // width)
        block = Factors(self.errors[:, :, first:last], self.activations).form().flatten(1)
        return block[:, part.start - first * width : part.stop - first * width]


Gradient: TypeAlias = Tensor | Factors
"""Gradients of m rows in one parameter: (m, *parameter shape), or their factors."""


def write(gradient: Gradient, out: Tensor) -> None:
    """Fill out (m, *parameter shape)."""
    if isinstance(gradient, Factors) and out.dtype == gradient.errors.dtype:
        gradient.write(out)
    else:
        out.copy_(gradient.form() if isinstance(gradient, Factors) else gradient)


def entries(gradient: Gradient, part: slice) -> Tensor:
    """Return the columns ``part`` of the flattened gradients: (m, part)."""
    if isinstance(gradient, Factors):
        return gradient.entries(part)
    return gradient.reshape(len(gradient), -1)[:, part]


@dataclass(frozen=True)
class Call:
    """One call of a module: its positional and named arguments, and the tensor it returned."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    output: Tensor | None
    """The output of the layer; None where it returned no tensor, or several."""

    @property
    def is_per_row(self) -> bool:
        """Return whether tensors come by position and go out as one, all as long as the batch."""
        tensors = [arg for arg in self.args if isinstance(arg, Tensor)]
        named = any(isinstance(value, Tensor) for value in self.kwargs.values())
        lengths = {tensor.shape[:1] for tensor in (*tensors, self.output) if tensor is not None}
        return bool(tensors) and not named and self.output is not None and lengths == {tensors[0].shape[:1]}


def sole_tensor(output: Any) -> Tensor | None:
    """Return the tensor that a module returned, also as the only one of a tuple (attention adds None)."""
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
    """Let no parameter require a gradient, so that autograd starts at the first tapped output."""
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
    """Set eval mode inside the block; afterwards every module is in the mode that it had."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


def check_rows_apart(model: nn.Module, rows: Tensor, logits: Tensor) -> None:
    """Raise ValueError, naming the layer, if a row's logits depend on the rows beside it.

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


class Layers:
    """Each module's gradients from what entered it and the error that came back to what left it.

    One forward pass and one backward pass of the summed loss serve all rows, as no row's loss depends on
    another row. The backward pass stops below the lowest chosen module and forms no parameter's gradient.
    A linear layer's are then error x activation (Goodfellow 2015), for a final one with
    error = softmax - onehot; any other module's come from ``vmap(vjp)`` of that module alone.
    """

    def __init__(self, model: nn.Module, selected: Mapping[str, nn.Parameter], rows: Tensor) -> None:
        """Find, with a trial pass of ``rows`` (2, ...), the module that stands for each parameter."""
        self._model, self._names = model, list(selected)
        modules = dict(model.named_modules(remove_duplicate=False))
        with torch.no_grad(), recording(dict(model.named_modules())) as calls:
            model(rows)
        self._holders: dict[str, _Holder] = {}
        for name, parameter in selected.items():
            path = _path_of_holder(modules, parameter, calls)
            holder = self._holders.setdefault(path, _Holder(modules[path], {}))
            holder.names[name.removeprefix(f"{path}." if path else "")] = name

    def __call__(self, x: Tensor, y: Tensor) -> Sequence[Gradient]:
        """Return one gradient per selected parameter, from one backward pass over all rows."""
        modules = {path: holder.module for path, holder in self._holders.items()}
        with frozen(self._model), torch.enable_grad():
            with recording(modules, tap=True) as calls:
                loss = nn.functional.cross_entropy(self._model(x), y, reduction="sum")
            outputs = [calls[path][0].output for path in modules]
            errors = torch.autograd.grad(loss, outputs, materialize_grads=True)  # type: ignore[arg-type]
        found: dict[str, Gradient] = {}
        with torch.no_grad():
            for (path, holder), error in zip(self._holders.items(), errors, strict=True):
                found |= holder.gradients(calls[path][0], error)
        return [found[name] for name in self._names]


@dataclass(frozen=True)
class _Holder:
    """A module, and those of the selected parameters that are its: own name -> name in the model."""

    module: nn.Module
    names: dict[str, str]

    def gradients(self, call: Call, error: Tensor) -> dict[str, Gradient]:
        """Return the gradients of every row in these parameters, from the error (m, ...) of the output."""
        module = self.module
        plain = type(module) is nn.Linear and not module._forward_hooks and not module._forward_pre_hooks
        if not plain:
            return self._by_vmap(call, error)
        errors = error.reshape(len(error), -1, error.shape[-1])
        activation: Tensor = call.args[0].detach()
        factors = Factors(errors, activation.reshape(len(error), -1, activation.shape[-1]))
        return {name: factors if own == "weight" else errors.sum(dim=1) for own, name in self.names.items()}

    def _by_vmap(self, call: Call, error: Tensor) -> dict[str, Gradient]:
        parameters = {own: self.module.get_parameter(own).detach() for own in self.names}
        places = [place for place, arg in enumerate(call.args) if isinstance(arg, Tensor)]

        def pull(tensors: list[Tensor], row_error: Tensor) -> Any:
            def forward(own: dict[str, Tensor]) -> Tensor:
                args = list(call.args)
                for place, tensor in zip(places, tensors, strict=True):
                    args[place] = tensor.unsqueeze(0)
                output = sole_tensor(functional_call(self.module, own, tuple(args), dict(call.kwargs)))
                if output is None:
                    raise TypeError(f"{type(self.module).__name__} does not return one tensor each time")
                return output.squeeze(0)

            return vjp(forward, parameters)[1](row_error)[0]

        with plain_attention():
            found = vmap(pull)([call.args[place].detach() for place in places], error)
        return {name: found[own] for own, name in self.names.items()}


def _path_of_holder(
    modules: Mapping[str, nn.Module], parameter: Tensor, calls: Mapping[str, Sequence[Call]]
) -> str:
    """Find the lowest module that holds every use of a parameter and is called once, rows in and rows out.

    A weight shared by two layers belongs to what is above both; attention reads the weight of its output
    layer without calling that layer. The model itself is above all.
    """
    holders = [
        path.split(".") if path else []
        for path, module in modules.items()
        if any(own is parameter for own in module._parameters.values())
    ]
    parts = [names[0] for names in takewhile(lambda names: len(set(names)) == 1, zip(*holders, strict=False))]
    while parts:
        found = calls.get(".".join(parts), ())
        if len(found) == 1 and found[0].is_per_row:
            break
        parts = parts[:-1]
    return ".".join(parts)


def plain_attention() -> AbstractContextManager[None]:
    """Compute attention as matrix products inside the block: the fused kernels have no vmap and would run row
    by row.
    """
    return sdpa_kernel(SDPBackend.MATH)
