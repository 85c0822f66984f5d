"""Group DRO: the weight of a group grows with its loss."""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import logsumexp

from engine.recipe.trainers import GdroParams
from engine.training.data.rows import Counts
from engine.training.rules.base import Batch, RuleState
from engine.training.rules.on_device import GroupDroOnDevice
from operators.arrays import Float64
from operators.base import OperatorError

_log = logging.getLogger("rowsieve")


class GroupDro:
    """Online group DRO (Sagawa, Koh, Hashimoto & Liang 2020, Algorithm 1 and section 3.3).

    A step first moves the groups' weights, q_g proportional to q_g exp(step_size * L_g), then goes down
    the gradient of sum_g q_g L_g. L_g is the mean loss of the group's rows in the step (by their weights)
    plus C/sqrt(n_g); for a group without rows in the step it is C/sqrt(n_g) alone. Rows in no group keep
    their share s of the step as in ERM: (1 - s) of the sum above plus s times their mean.

    Parameters
    ----------
    sizes : (G,) train rows of each group; one without rows gets no weight.
    step_size, adjustment : see ``GdroParams``.

    Attributes
    ----------
    state["log_q"] : (G,) logarithms of the groups' weights, whose sum is 1; equal at the start. The update is
        a product, so that a weight that one large loss of another group rounds to 0 would stay 0.
    """

    sees_all = True

    def __init__(self, sizes: npt.ArrayLike, step_size: float, adjustment: float = 0.0) -> None:
        self._sizes = np.asarray(sizes, np.float64)
        self._step_size = step_size
        present = self._sizes > 0
        if not present.any():
            raise ValueError("gdro needs at least one group with train rows")
        self._bonus = np.where(present, adjustment / np.sqrt(np.maximum(self._sizes, 1)), 0.0)
        self.state: RuleState = {"log_q": np.where(present, -np.log(present.sum()), -np.inf)}

    @property
    def q(self) -> Float64:
        """Weights of the groups (G,), sum 1."""
        return np.exp(self.state["log_q"])

    def weigh(self, batch: Batch) -> Float64:
        """Implement the method of :class:`engine.training.rules.base.Rule`."""
        inside = batch.group >= 0
        place = np.where(inside, batch.group, 0)
        weight = np.where(inside, batch.weight, 0.0)
        mass = np.bincount(place, weight, minlength=len(self._sizes))
        share = weight / np.maximum(mass[place], 1e-300)
        loss = np.bincount(place, share * batch.loss, minlength=len(self._sizes))
        gain = self._step_size * (loss + self._bonus)
        log_q = self.state["log_q"] + gain
        self.state["log_q"] = log_q - logsumexp(log_q)
        outside = np.where(inside, 0.0, batch.weight)
        total = outside.sum()
        grouped = 1.0 - total / max(float(batch.weight.sum()), 1e-300)
        alone = (1.0 - grouped) * outside / max(float(total), 1e-300)
        counts: Float64 = grouped * self.q[place] * share + alone
        return counts

    def on_device(self, device: torch.device) -> GroupDroOnDevice:
        """Implement the method of :class:`engine.training.rules.on_device.HasDeviceForm`."""
        log_q, bonus = (torch.tensor(one, device=device) for one in (self.state["log_q"], self._bonus))
        return GroupDroOnDevice(log_q, bonus, self._step_size)


def group_dro(params: GdroParams, counts: Counts) -> GroupDro:
    """Return the rule of a training. Raises OperatorError where no train row is in a group."""
    sizes = counts.group_rows
    _warn_of_absent_groups(params, sizes)
    if not sizes.any():
        raise OperatorError(
            "train.trainer gdro: no train row is in a group, all are noise. Set train.noise to "
            "own_group, or train erm."
        )
    return GroupDro(sizes, params.step_size, params.adjustment)


def _warn_of_absent_groups(params: GdroParams, sizes: npt.NDArray[np.int64]) -> None:
    """Warn where a group is expected in fewer than one row of a step: its weight q then hardly grows."""
    if params.sampling == "group_balanced":
        return
    present = sizes[sizes > 0]
    expected = params.step_rows * float(present.min()) / float(present.sum())
    if expected < 1:
        _log.warning(
            "train.sampling is %r: a step of %d rows holds %.2f rows of the smallest group (%d rows) on "
            "average, so that group DRO hardly learns from it. Set sampling to group_balanced, or raise "
            "batch_size.",
            params.sampling,
            params.step_rows,
            expected,
            int(present.min()),
        )
