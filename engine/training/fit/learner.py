"""One worker's copy of the model and its optimiser; all copies take the same steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engine.recipe.trainers import TrainParams
from engine.training.data.rows import GroupedRows
from engine.training.objectives import RowLosses
from operators.base import OperatorError
from operators.models import Standardize

HEAD = 2
"""Numbers before the gradient in a slot's share: objective and sum of the rows' losses."""
State = dict[str, Tensor]


@dataclass(frozen=True)
class Forward:
    """Result of a forward pass over a slot's rows of one step; losses keep their autograd graph."""

    loss: Tensor
    """(b,) losses in the objective's step unit."""
    changes: list[Tensor]
    """Change of each buffer (running statistics) times b."""


class Learner:
    """Forward and backward passes over a slot's rows, and the step over the sum of all slots.

    Raises OperatorError for a model without trainable parameters.
    """

    def __init__(self, model: nn.Module, params: TrainParams, row_losses: RowLosses) -> None:
        self.model = model.train()
        self.row_losses = row_losses
        self._params = params
        self.lr = params.lr
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._buffer_places = [
            (module, name)
            for module in model.modules()
            for name, buffer in module.named_buffers(recurse=False)
            if buffer is not None and not isinstance(module, Standardize)
        ]
        self._common = [buffer.clone() for buffer in self._buffers()]
        if not self._parameters:
            raise OperatorError(
                f"train.model '{params.model}' has no trainable parameter: every one is frozen. Leave "
                "requires_grad on for those that are to be trained."
            )
        self.device = self._parameters[0].device
        self._sizes = [p.numel() for p in (*self._parameters, *self._common)]
        self._optimiser = self._new_optimiser()

    def _new_optimiser(self) -> torch.optim.Optimizer:
        params = self._params
        matrices = [p for p in self._parameters if p.ndim > 1]
        others = [p for p in self._parameters if p.ndim <= 1]
        groups = [
            {"params": found, "weight_decay": decay}
            for found, decay in ((matrices, params.weight_decay), (others, 0.0))
            if found
        ]
        if params.optimizer == "adam":  # "auto" is SGD here: L-BFGS takes no steps
            return torch.optim.Adam(groups, lr=params.lr)
        if params.optimizer == "adamw":
            return torch.optim.AdamW(groups, lr=params.lr)
        return torch.optim.SGD(groups, lr=params.lr, momentum=params.momentum)

    def forward(self, rows: GroupedRows, seed: int) -> Forward:
        """Compute the losses of a slot's rows; see :meth:`forward_on_device`."""
        X, answers = torch.from_numpy(rows.X), self.row_losses.answers(rows)
        return self.forward_on_device(X.to(self.device), answers.to(self.device), seed)

    def forward_on_device(self, X: Tensor, answers: Tensor, seed: int) -> Forward:
        """Compute the losses of a slot's rows X (b, d), which are on the model's device, as are the answers.

        Buffers start from the same values for every slot, and ``seed`` decides the randomness inside the
        model (dropout): neither knows what this worker computed before.
        """
        if not len(X):
            return Forward(torch.zeros(0), [torch.zeros_like(buffer) for buffer in self._common])
        self._set_buffers()
        # Not torch.manual_seed: without a GPU it formats a stack trace each time, a third of a small step.
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        loss = self.row_losses.of_step(self._outputs(X), answers)
        pairs = zip(self._buffers(), self._common, strict=True)
        return Forward(loss, [len(X) * (new - old) for new, old in pairs])

    def _outputs(self, X: Tensor) -> Tensor:
        if not self._params.amp:
            found: Tensor = self.model(X)
            return found
        with torch.autocast(self.device.type, torch.bfloat16):
            mixed: Tensor = self.model(X)
        return mixed.float()

    def share(self, forward: Forward, counts: Tensor) -> Tensor:
        """Return a slot's part of the step as one vector: objective, loss sum, gradient, buffer changes.

        counts : (b,) how much each row counts.
        """
        if not len(forward.loss):
            return torch.zeros(HEAD + sum(self._sizes))
        objective = forward.loss @ counts.to(forward.loss)
        gradients = torch.autograd.grad(
            objective, self._parameters, allow_unused=True, materialize_grads=True
        )
        head = torch.stack([objective.detach(), forward.loss.detach().sum()])
        return torch.cat([head, *(g.flatten() for g in (*gradients, *forward.changes))]).float()

    def set_epoch(self, epoch: int, epochs: int) -> None:
        """Set the step size of an epoch (0-based) of a phase of ``epochs``, as schedule and warm-up say."""
        self.lr = self._params.lr * step_size_factor(self._params, epoch, epochs)
        for group in self._optimiser.param_groups:
            group["lr"] = self.lr

    def step(self, total: Tensor, n_rows: int) -> None:
        """Update parameters by the summed gradient, and buffers by their mean change over the step's rows."""
        parts = torch.split(total[HEAD:].to(self.device), self._sizes)
        gradients = parts[: len(self._parameters)]
        if self._params.clip is not None:
            norm = torch.cat(gradients).double().norm()
            scale = (self._params.clip / norm.clamp(min=1e-30)).clamp(max=1.0)
            gradients = tuple(gradient * scale for gradient in gradients)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient.view_as(parameter)
        self._optimiser.step()
        for common, change in zip(self._common, parts[len(self._parameters) :], strict=True):
            moved = common + change.view_as(common) / n_rows
            common.copy_(moved if common.is_floating_point() else moved.round())
        self._set_buffers()

    def _buffers(self) -> list[Tensor]:
        return [getattr(module, name) for module, name in self._buffer_places]

    def _set_buffers(self) -> None:
        # New tensors: the graph of an earlier slot's forward pass may still need the old ones.
        for (module, name), value in zip(self._buffer_places, self._common, strict=True):
            setattr(module, name, value.clone())

    def state(self) -> State:
        """Return model and optimiser as named tensors, copied to the CPU."""
        found = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for index, parameter in enumerate(self._parameters):
            for name, value in self._optimiser.state.get(parameter, {}).items():
                if value is not None:
                    found[f"optimiser.{index}.{name}"] = torch.as_tensor(value)
        return {name: value.detach().cpu().clone() for name, value in found.items()}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore a result of :meth:`state`. Without optimiser tensors the optimiser starts anew."""
        names = [name for name in state if name.startswith("model.")]
        self.model.load_state_dict({name.removeprefix("model."): state[name] for name in names})
        for buffer, common in zip(self._buffers(), self._common, strict=True):
            common.copy_(buffer)
        self._optimiser = self._new_optimiser()
        for index, parameter in enumerate(self._parameters):
            start = f"optimiser.{index}."
            own = {n.removeprefix(start): v.clone() for n, v in state.items() if n.startswith(start)}
            if own:
                self._optimiser.state[parameter] = {
                    name: value if name == "step" else value.to(self.device) for name, value in own.items()
                }


def step_size_factor(params: TrainParams, epoch: int, epochs: int) -> float:
    """Return the factor in (0, 1] on ``lr`` in an epoch (0-based) of a phase of ``epochs``."""
    warm = round(params.warmup * epochs)
    if epoch < warm:
        return (epoch + 1) / (warm + 1)
    done = (epoch - warm) / max(epochs - warm, 1)
    if params.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * done))
    return 1.0 - done if params.schedule == "linear" else 1.0


def model_state(state: Mapping[str, Tensor]) -> State:
    """Return the model's part of a learner's state. Restoring it starts the optimiser anew."""
    return {name: value for name, value in state.items() if name.startswith("model.")}
