"""Softmax regression by full-batch L-BFGS over streamed sums, in NumPy.

Importing this module does not import torch, which a run with the default recipe never needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy.optimize import minimize

from operators.arrays import Float64
from operators.base import OperatorError
from operators.communicator import Communicator, Slots
from operators.models.linear import LinearModel, log_softmax, standard_deviations
from operators.models.spec import ModelSpec
from operators.probe.census import Census, slots_of, take_census
from operators.probe.rows import Rows, Shards, blocks
from operators.probe.settings import Settings
from operators.probe.trained import Trained
from operators.threads import limit_threads

GO, STOP = 1.0, 0.0
HISTORY = 20
Scale: TypeAlias = tuple[Float64, Float64]
"""Mean and standard deviation (d,) of the features, of the precision of float32."""
PartialSums: TypeAlias = Callable[[Rows, Float64, "Scale | None"], Float64]
"""As :func:`partial_sums`, where another device computes them."""


def train_logistic(
    spec: ModelSpec,
    shards: Shards,
    *,
    settings: Settings | None = None,
    communicator: Communicator | None = None,
    sums: PartialSums | None = None,
) -> Trained[LinearModel]:
    """Minimise ``sum_i w_i ce_i / sum_i w_i + l2 / 2 * ||W||^2`` to a tolerance; biases are free.

    Every worker of a group calls this with the same arguments and gets the same model, in one thread each:
    bytes are equal for equal shards on one kind of processor.

    Parameters
    ----------
    spec : a model ``logistic``; with ``standardize``, its mean and standard deviation are those of the rows,
        unweighted.
    shards : the training rows, at least one in all.
    settings : default ``Settings()``.
    communicator : the workers; default: this process alone.
    sums : computes a shard's loss and gradient; default :func:`partial_sums`.

    Raises
    ------
    OperatorError
        There are no rows or no weight, or a label is out of range.
    """
    slots = slots_of(shards, communicator)
    with limit_threads(1):
        census = take_census(spec, shards, slots)
        scale = _scale(spec, census)
        theta, curve, converged = _fit(
            spec, scale, shards, slots, census, settings or Settings(), sums or partial_sums
        )
        model = LinearModel(
            *(part.astype(np.float32) for part in (theta[:, :-1], theta[:, -1], *(scale or ())))
        )
        totals = slots.total_array_over_shards(lambda shard: _score(model, shards[shard]))
    loss, accuracy = (totals / census.total_weight).tolist()
    if not np.isfinite(loss):
        raise OperatorError(
            f"Training of the probe 'logistic' ended at a mean loss of {loss}. Set standardize."
        )
    return Trained(
        model=model,
        n_parameters=model.n_parameters,
        loss_curve=curve,
        converged=converged,
        n_rows=census.n_rows,
        train_loss=loss,
        train_accuracy=accuracy,
    )


def partial_sums(rows: Rows, theta: Float64, scale: Scale | None) -> Float64:
    """Return a shard's share of loss and gradient.

    Parameters
    ----------
    rows : n rows of d features.
    theta : (C, d + 1) weights and, in the last column, biases.
    scale : applied to the features first.

    Returns
    -------
    (1 + C (d + 1),): sum of w_i * cross-entropy_i, then its gradient in ``theta``.
    """
    loss, gradient = 0.0, np.zeros_like(theta)
    for x, y, weight in blocks(rows):
        z = x if scale is None else (x - scale[0]) / scale[1]
        log_p = log_softmax(z @ theta[:, :-1].T + theta[:, -1])
        own = np.arange(len(y)), y
        loss -= float(weight @ log_p[own])
        error = np.exp(log_p)
        error[own] -= 1
        error *= weight[:, None]
        gradient[:, :-1] += error.T @ z
        gradient[:, -1] += error.sum(axis=0)
    return np.concatenate([[loss], gradient.ravel()])


def _scale(spec: ModelSpec, census: Census) -> Scale | None:
    if census.mean is None or census.std is None:
        return None
    std = standard_deviations(census.mean, census.std, spec.blocks)
    return census.mean.astype(np.float32).astype(np.float64), std.astype(np.float64)


def _fit(
    spec: ModelSpec,
    scale: Scale | None,
    shards: Shards,
    slots: Slots,
    census: Census,
    settings: Settings,
    partial: PartialSums,
) -> tuple[Float64, list[float], bool]:
    """Return theta (C, d + 1), the objective at each evaluation, and whether the tolerance was reached.

    Starts from zero. Rank 0 searches and tells the others where to evaluate: were each to search on its
    own, processors that round differently could part ways and wait for each other for ever.
    """
    shape = spec.n_classes, spec.n_features + 1

    def sums(theta: Float64) -> Float64:
        at = theta.reshape(shape)
        return slots.total_array_over_shards(lambda shard: partial(shards[shard], at, scale))

    def objective(theta: Float64) -> tuple[float, Float64]:
        slots.broadcast_array(np.concatenate([[GO], theta]))
        mean = sums(theta) / census.total_weight
        weights = theta.reshape(shape).copy()
        weights[:, -1] = 0
        value = mean[0] + settings.l2 / 2 * np.square(weights).sum()
        return float(value), mean[1:] + settings.l2 * weights.ravel()

    theta = np.zeros(shape[0] * shape[1])
    curve: list[float] = []
    converged = True
    if slots.communicator.rank == 0:
        theta, curve, converged = minimise(objective, theta, settings.tolerance, settings.max_iterations)
        slots.broadcast_array(np.concatenate([[STOP], theta]))
    else:
        theta = _follow(slots, sums, theta)
    return theta.reshape(shape), curve, converged


def _follow(slots: Slots, sums: Callable[[Float64], Float64], like: Float64) -> Float64:
    while True:
        message = slots.broadcast_array(np.zeros(1 + len(like)))
        if message[0] == STOP:
            return message[1:]
        sums(message[1:])


def minimise(
    objective: Callable[[Float64], tuple[float, Float64]],
    start: Float64,
    tolerance: float,
    max_iterations: int,
) -> tuple[Float64, list[float], bool]:
    """Minimise by L-BFGS (Zhu, Byrd, Lu & Nocedal 1997; SciPy's L-BFGS-B without bounds).

    Returns the last point, the objective at each evaluation, and whether the search ended there because
    the largest entry of the gradient is at most ``tolerance`` or a step moves the objective by less than
    rounding does.
    """
    curve: list[float] = []

    def evaluate(theta: Float64) -> tuple[float, Float64]:
        value, gradient = objective(theta)
        curve.append(value)
        return value, gradient

    options = {"maxiter": max_iterations, "maxfun": 10 * max_iterations, "maxcor": HISTORY}
    limits = {"gtol": tolerance, "ftol": 1e-15}
    found = minimize(evaluate, start, jac=True, method="L-BFGS-B", options=options | limits)
    return np.asarray(found.x, np.float64), curve, bool(found.success)


def _score(model: LinearModel, rows: Rows) -> Float64:
    """Return the weighted sums over rows of the loss and of right predictions: (2,)."""
    prediction, loss = model.predict(rows.X, rows.y)
    return np.array([rows.weight @ loss.astype(np.float64), rows.weight @ (prediction == rows.y)])
