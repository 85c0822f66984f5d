"""Softmax regression by full-batch L-BFGS over streamed sums."""

from __future__ import annotations

from collections.abc import Callable

import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from operators.arrays import Float64
from operators.communicator import Slots
from operators.models import Standardize
from operators.probe.census import Census
from operators.probe.rows import Rows, Shards, blocks
from operators.probe.settings import Settings

GO, STOP = 1.0, 0.0
HISTORY = 20
Value = tuple[float, Tensor]


def partial_sums(rows: Rows, theta: Tensor, scaler: Standardize | None) -> Tensor:
    """Return a shard's share of loss and gradient.

    Parameters
    ----------
    rows : n rows of d features.
    theta : (C, d + 1) float64, weights and, in the last column, biases.
    scaler : applied to the features first.

    Returns
    -------
    (1 + C (d + 1),) float64: sum of w_i * cross-entropy_i, then its gradient in ``theta``.
    """
    loss = theta.new_zeros(1)
    gradient = torch.zeros_like(theta)
    for x, y, weight in blocks(rows, theta.device):
        z = x if scaler is None else scaler(x)
        log_p = torch.log_softmax(torch.addmm(theta[:, -1], z, theta[:, :-1].T), dim=1)
        picked = y[:, None]
        loss -= weight @ log_p.gather(1, picked)
        error = log_p.exp_()
        error.scatter_add_(1, picked, error.new_full(picked.shape, -1.0))
        error *= weight[:, None]
        gradient[:, :-1] += error.T @ z
        gradient[:, -1] += error.sum(dim=0)
    return torch.cat([loss, gradient.flatten()])


def fit_logistic(
    head: nn.Linear,
    scaler: Standardize | None,
    shards: Shards,
    slots: Slots,
    census: Census,
    settings: Settings,
) -> tuple[list[float], bool]:
    """Set ``head`` to the minimum of ``sum_i w_i ce_i / sum_i w_i + l2 / 2 * ||W||^2``; biases are free.

    Starts from zero. Rank 0 searches and tells the others where to evaluate: were each to search on its
    own, processors that round differently could part ways and wait for each other for ever.

    Returns
    -------
    The objective at each evaluation, line searches included (empty but on rank 0), and whether the
    tolerance was reached.
    """
    shape = (head.out_features, head.in_features + 1)

    def sums(theta: Tensor) -> Tensor:
        theta = theta.view(shape).to(head.weight.device)
        return slots.total_over_shards(lambda shard: partial_sums(shards[shard], theta, scaler))

    def objective(theta: Tensor) -> Value:
        slots.communicator.broadcast(torch.cat([theta.new_tensor([GO]), theta]))
        mean = sums(theta) / census.total_weight
        weights = theta.view(shape).clone()
        weights[:, -1] = 0
        value = mean[0] + settings.l2 / 2 * weights.square().sum()
        return float(value), mean[1:] + settings.l2 * weights.flatten()

    theta = torch.zeros(shape[0] * shape[1], dtype=torch.float64)
    curve: list[float] = []
    converged = True
    if slots.communicator.rank == 0:
        theta, curve, converged = minimise(objective, theta, settings.tolerance, settings.max_iterations)
        slots.communicator.broadcast(torch.cat([theta.new_tensor([STOP]), theta]))
    else:
        theta = _follow(slots, sums, theta)
    with torch.no_grad():
        head.weight.copy_(theta.view(shape)[:, :-1])
        head.bias.copy_(theta.view(shape)[:, -1])
    return curve, converged


def _follow(slots: Slots, sums: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
    while True:
        message = slots.communicator.broadcast(like.new_zeros(1 + len(like)))
        if message[0] == STOP:
            return message[1:]
        sums(message[1:])


def minimise(
    objective: Callable[[Tensor], Value], start: Tensor, tolerance: float, max_iterations: int
) -> tuple[Tensor, list[float], bool]:
    """Minimise by L-BFGS (Zhu, Byrd, Lu & Nocedal 1997; SciPy's L-BFGS-B without bounds).

    Returns the last point, the objective at each evaluation, and whether the search ended there because
    the largest entry of the gradient is at most ``tolerance`` or a step moves the objective by less than
    rounding does.
    """
    curve: list[float] = []

    def evaluate(theta: Float64) -> tuple[float, Float64]:
        value, gradient = objective(torch.tensor(theta))
        curve.append(value)
        return value, gradient.numpy()

    options = {"maxiter": max_iterations, "maxfun": 10 * max_iterations, "maxcor": HISTORY}
    limits = {"gtol": tolerance, "ftol": 1e-15}
    found = minimize(evaluate, start.numpy(), jac=True, method="L-BFGS-B", options=options | limits)
    return torch.tensor(found.x), curve, bool(found.success)
