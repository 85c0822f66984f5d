"""Per-sample gradients by other libraries: the whole batch at once, or in chunks into one matrix."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

Step = Callable[[Tensor, Tensor], Iterable[Tensor]]
Make = Callable[[], nn.Module]


def by_vmap(make: Make) -> Step:
    model = make().eval()
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(own: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(model, own, (row[None],)), label[None])

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))

    def step(x: Tensor, y: Tensor) -> Iterable[Tensor]:
        with sdpa_kernel(SDPBackend.MATH):  # the fused one knows no vmap
            found: dict[str, Tensor] = gradients(parameters, x, y)
        return found.values()

    return step


def by_opacus(make: Make) -> Step:
    from opacus import GradSampleModule

    # It records nothing in eval mode; the models here compute the same in both.
    model = GradSampleModule(make().train(), loss_reduction="sum")

    def step(x: Tensor, y: Tensor) -> Iterable[Tensor]:
        model.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(x), y, reduction="sum").backward()
        return [p.grad_sample for p in model.parameters()]

    return step


def by_backpack(make: Make) -> Step:
    from backpack import backpack, extend
    from backpack.extensions import BatchGrad

    model, criterion = extend(make().eval()), extend(nn.CrossEntropyLoss(reduction="sum"))

    def step(x: Tensor, y: Tensor) -> Iterable[Tensor]:
        model.zero_grad(set_to_none=True)
        with backpack(BatchGrad()):
            criterion(model(x), y).backward()
        if not all(hasattr(p, "grad_batch") for p in model.parameters()):
            raise NotImplementedError("it does not know all of the model's layers")
        return [p.grad_batch for p in model.parameters()]

    return step


PEERS: dict[str, tuple[Callable[[Make], Step], str]] = {
    "vmap(grad)": (by_vmap, ""),
    "Opacus": (by_opacus, "opacus"),
    "BackPACK": (by_backpack, "backpack-for-pytorch"),
}


def peers(make: Make) -> dict[str, Step]:
    """Those that are installed; a line for each that is not."""
    found = {}
    warnings.filterwarnings("ignore", message="Full backward hook|Extension saving")
    for name, (build, package) in PEERS.items():
        try:
            found[name] = build(make)
        except ImportError:
            print(f"{name} is left out: pip install --no-deps {package}; see tests/benchmarks/README.md")
    return found


def whole(step: Step, X: Any, y: Any) -> Callable[[], Any]:
    """As their documentation has it: one batch, its gradients laid side by side afterwards."""
    x, labels = torch.from_numpy(X), torch.from_numpy(y)
    return lambda: torch.cat([g.detach().flatten(1) for g in step(x, labels)], dim=1).numpy()


def chunked(step: Step, X: Any, y: Any, rows: int) -> Callable[[], Any]:
    """As fast as we could make them: chunks that stay in cache, copied into one matrix."""
    x, labels = torch.from_numpy(X), torch.from_numpy(y)

    def run() -> Any:
        result = None
        for start in range(0, len(x), rows):
            part = slice(start, start + rows)
            blocks = [g.detach().flatten(1) for g in step(x[part], labels[part])]
            if result is None:
                result = torch.from_numpy(np.empty((len(x), sum(b.shape[1] for b in blocks)), np.float32))
            for block, out in zip(blocks, result[part].split([b.shape[1] for b in blocks], 1), strict=True):
                out.copy_(block)
        return result.numpy() if result is not None else None

    return run
