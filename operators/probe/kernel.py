"""Training of the probe on shards of rows: the same bytes for any number of workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import nn

from operators.base import OperatorError
from operators.communicator import Communicator, SingleProcess, Slots
from operators.models import ModelSpec, Standardize, build
from operators.probe.census import Census, take_census
from operators.probe.logistic import fit_logistic
from operators.probe.minibatch import fit_minibatch
from operators.probe.rows import Shards
from operators.probe.scoring import score
from operators.probe.settings import Settings
from operators.threads import limit_threads


@dataclass(frozen=True)
class Trained:
    """A trained model with the record of its training."""

    model: nn.Module
    """On the CPU, in eval mode."""
    loss_curve: list[float]
    """Objective at each evaluation (``logistic``; rank 0 only), or mean loss of each epoch."""
    converged: bool
    """Whether L-BFGS arrived within ``max_iterations``; true for Adam, which runs its epochs."""
    n_rows: int
    train_loss: float
    """Weighted mean softmax cross-entropy in nats, without penalty."""
    train_accuracy: float
    """Weighted share of rows that are predicted right."""

    @property
    def n_parameters(self) -> int:
        """Trainable numbers in the model."""
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)


def train(
    spec: ModelSpec,
    shards: Shards,
    *,
    settings: Settings | None = None,
    seed: int = 0,
    communicator: Communicator | None = None,
    device: torch.device | str = "cpu",
) -> Trained:
    """Minimise the weighted mean softmax cross-entropy over all shards' rows.

    ``logistic`` is solved to a tolerance by full-batch L-BFGS in float64; any other model runs Adam for
    a number of epochs. Shards are read once each pass, one at a time (Adam: a window of them). Every
    worker of a group calls this with the same arguments and gets the same model, in one thread each:
    bytes are equal for equal seed and shards on one kind of processor.

    Parameters
    ----------
    spec : the model; with ``standardize``, its mean and standard deviation are those of the rows,
        unweighted.
    shards : the training rows, at least one in all.
    settings : default ``Settings()``.
    seed : of initial weights, minibatches and dropout; ``logistic`` starts from zero and uses none.
    communicator : the workers; default: this process alone.
    device : where to compute.

    Raises
    ------
    OperatorError
        There are no rows or no weight, a label is out of range, or training diverged.
    """
    settings = settings or Settings()
    if not len(shards):
        raise OperatorError("The probe has nothing to learn from: there are no shards.")
    with repeatable(torch.device(device)):
        slots = Slots(communicator or SingleProcess(), len(shards))
        model = build(spec, seed).to(device)
        census, curve, converged = _fit(model, spec, shards, slots, settings, seed)
        model.eval()
        sums = slots.total_over_shards(lambda shard: score(model, shards[shard]))
    loss, accuracy = (sums / census.total_weight).tolist()
    if not np.isfinite(loss):
        raise OperatorError(
            f"Training of the probe '{spec.model}' diverged: the mean loss ended at {loss} with "
            f"lr={settings.lr}, l2={settings.l2}. Lower lr, or set standardize."
        )
    return Trained(model.cpu(), curve, converged, census.n_rows, loss, accuracy)


def _fit(
    model: nn.Module,
    spec: ModelSpec,
    shards: Shards,
    slots: Slots,
    settings: Settings,
    seed: int,
) -> tuple[Census, list[float], bool]:
    scaler = cast(Standardize, model.get_submodule("standardize")) if spec.standardize else None
    census = take_census(spec, shards, slots, scaler)
    if spec.model != "logistic":
        return census, fit_minibatch(model, shards, slots, census, settings, seed), True
    head = cast(nn.Linear, model.get_submodule("head"))
    curve, converged = fit_logistic(head, scaler, shards, slots, census, settings)
    return census, curve, converged


@contextmanager
def repeatable(device: torch.device, threads: int = 1) -> Iterator[None]:
    """Compute with so many threads inside the block, and restore torch's random state at the end.

    With more than one, the last bits depend on their number.
    """
    before = torch.get_num_threads()
    gpus = [torch.cuda.current_device()] if device.type == "cuda" else []
    # torch keeps a count of its own; threadpoolctl reaches the BLAS behind NumPy and SciPy.
    with torch.random.fork_rng(devices=gpus), limit_threads(threads):
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
