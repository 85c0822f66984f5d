"""Training of a classifier on shards of rows: the same bytes for any number of workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import numpy as np
import torch
from torch import nn

from operators.arrays import Float64
from operators.base import OperatorError
from operators.communicator import Communicator
from operators.models import ModelSpec, Standardize, build
from operators.probe.census import slots_of, take_census
from operators.probe.logistic import Scale, train_logistic
from operators.probe.minibatch import fit_minibatch
from operators.probe.rows import Rows, Shards, blocks
from operators.probe.scoring import score
from operators.probe.settings import Settings
from operators.probe.trained import Trained
from operators.threads import limit_threads


def train(
    spec: ModelSpec,
    shards: Shards,
    *,
    settings: Settings | None = None,
    seed: int = 0,
    communicator: Communicator | None = None,
    device: torch.device | str = "cpu",
) -> Trained[nn.Module]:
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
    settings, device = settings or Settings(), torch.device(device)
    if spec.model == "logistic":
        return _train_logistic(spec, shards, settings, communicator, device)
    with repeatable(device):
        slots = slots_of(shards, communicator)
        model = build(spec, seed).to(device)
        census = take_census(spec, shards, slots)
        if census.mean is not None and census.std is not None:
            cast(Standardize, model.get_submodule("standardize")).set(census.mean, census.std)
        curve = fit_minibatch(model, shards, slots, census, settings, seed)
        model.eval()
        sums = slots.total_over_shards(lambda shard: score(model, shards[shard]))
    loss, accuracy = (sums / census.total_weight).tolist()
    if not np.isfinite(loss):
        raise OperatorError(
            f"Training of the probe '{spec.model}' diverged: the mean loss ended at {loss} with "
            f"lr={settings.lr}, l2={settings.l2}. Lower lr, or set standardize."
        )
    n_parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return Trained(
        model=model.cpu(),
        n_parameters=n_parameters,
        loss_curve=curve,
        converged=True,
        n_rows=census.n_rows,
        train_loss=loss,
        train_accuracy=accuracy,
    )


def _train_logistic(
    spec: ModelSpec,
    shards: Shards,
    settings: Settings,
    communicator: Communicator | None,
    device: torch.device,
) -> Trained[nn.Module]:
    """Solve the model in NumPy, its sums on the GPU where there is one, and return it as a torch module."""

    def on_device(rows: Rows, theta: Float64, scale: Scale | None) -> Float64:
        return partial_sums_on(device, rows, theta, scale)

    with repeatable(device):
        sums = None if device.type == "cpu" else on_device
        found = train_logistic(spec, shards, settings=settings, communicator=communicator, sums=sums)
        model = build(spec, seed=0).eval()
        model.load_state_dict({name: torch.from_numpy(value) for name, value in found.model.arrays().items()})
    return found.with_model(model)


def partial_sums_on(device: torch.device, rows: Rows, theta: Float64, scale: Scale | None) -> Float64:
    """Return :func:`operators.probe.logistic.partial_sums`, computed by torch on another device."""
    at = torch.tensor(theta, device=device)
    loss, gradient = at.new_zeros(1), torch.zeros_like(at)
    moments = None if scale is None else [torch.tensor(part, device=device) for part in scale]
    for block in blocks(rows):
        x, y, weight = (torch.tensor(part, device=device) for part in block)
        z = x if moments is None else (x - moments[0]) / moments[1]
        log_p = torch.log_softmax(torch.addmm(at[:, -1], z, at[:, :-1].T), dim=1)
        loss -= weight @ log_p.gather(1, y[:, None])
        error = log_p.exp() - nn.functional.one_hot(y, len(at))
        error *= weight[:, None]
        gradient[:, :-1] += error.T @ z
        gradient[:, -1] += error.sum(dim=0)
    return np.asarray(torch.cat([loss, gradient.flatten()]).cpu().numpy(), np.float64)


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
