"""Per-sample gradients layer by layer, from one forward and one backward pass of the whole batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from operators.gradients.calls import Call, frozen, recording, sole_tensor
from operators.gradients.factors import Factors, Gradient


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
        """See :class:`Route`."""
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
        """Of every row in these parameters, from the error (m, ...) of the module's output."""
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
    """The lowest module that holds every use of a parameter and is called once, rows in and rows out.

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
    """Attention as matrix products: the fused kernels know no vmap, and would run row by row."""
    return sdpa_kernel(SDPBackend.MATH)
