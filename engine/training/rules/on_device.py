"""Rules on the device of a training: they weigh a step's rows without reading a number of it to the host.

A rule has such a form if it has the method ``on_device``; any other is called on the host, which then waits
for the device in every step. The forms compute what the rules of this package define, in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from engine.training.rules.base import Batch, Rule, RuleState

LEAST = 1e-300
"""Stands for a mass of 0 in a denominator, as in the rules themselves."""


@dataclass(frozen=True)
class DeviceBatch:
    """Rows of one step as tensors on one device; see :class:`engine.training.rules.base.Batch`."""

    loss: Tensor
    """(b,) float64."""
    weight: Tensor
    """(b,) float64."""
    group: Tensor
    """(b,) int64."""
    n_rows: int


class DeviceRule(Protocol):
    """The form of a rule for one epoch, which starts from the rule's state."""

    def weigh(self, batch: DeviceBatch) -> Tensor:
        """Return the factor of each row (b,), float64 on the batch's device."""
        ...

    def state(self) -> RuleState:
        """Return the rule's state after the steps so far. This waits for the device."""
        ...


@runtime_checkable
class HasDeviceForm(Protocol):
    """A rule that need not be called on the host."""

    def on_device(self, device: torch.device) -> DeviceRule:
        """Return the rule's form on a device, with the state that it has now."""
        ...


def device_form(rule: Rule, device: torch.device) -> DeviceRule:
    """Return the form of a rule on a device; of a rule without one, calls on the host."""
    return rule.on_device(device) if isinstance(rule, HasDeviceForm) else OnHost(rule)


class OnHost:
    """A rule that is called on the host: every step waits for its losses."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def weigh(self, batch: DeviceBatch) -> Tensor:
        """Implement the method of :class:`DeviceRule`."""
        columns = [values.cpu().numpy() for values in (batch.loss, batch.weight, batch.group)]
        if not np.isfinite(columns[0]).all():  # the loop ends the training; the rule need not know such rows
            return torch.ones_like(batch.loss)
        found = self._rule.weigh(Batch(columns[0], columns[1], columns[2], batch.n_rows))
        return torch.from_numpy(found).to(batch.loss.device)

    def state(self) -> RuleState:
        """Implement the method of :class:`DeviceRule`."""
        return self._rule.state


class MeanOnDevice:
    """Form of :class:`engine.training.rules.erm.Erm`."""

    def weigh(self, batch: DeviceBatch) -> Tensor:
        """Implement the method of :class:`DeviceRule`."""
        return batch.weight / batch.n_rows

    def state(self) -> RuleState:
        """Implement the method of :class:`DeviceRule`."""
        return {}


class GroupDroOnDevice:
    """Form of :class:`engine.training.rules.gdro.GroupDro`. ``log_q`` and ``bonus`` are (G,), float64."""

    def __init__(self, log_q: Tensor, bonus: Tensor, step_size: float) -> None:
        self._log_q, self._bonus, self._step_size = log_q, bonus, step_size

    def weigh(self, batch: DeviceBatch) -> Tensor:
        """Implement the method of :class:`DeviceRule`."""
        inside = batch.group >= 0
        place = batch.group.clamp(min=0)
        weight = torch.where(inside, batch.weight, 0.0)
        mass = torch.zeros_like(self._log_q).index_add_(0, place, weight)
        share = weight / mass[place].clamp(min=LEAST)
        loss = torch.zeros_like(self._log_q).index_add_(0, place, share * batch.loss)
        log_q = self._log_q + self._step_size * (loss + self._bonus)
        self._log_q = log_q - torch.logsumexp(log_q, 0)
        outside = torch.where(inside, 0.0, batch.weight)
        total = outside.sum()
        grouped = 1.0 - total / batch.weight.sum().clamp(min=LEAST)
        alone = (1.0 - grouped) * outside / total.clamp(min=LEAST)
        return grouped * self._log_q.exp()[place] * share + alone

    def state(self) -> RuleState:
        """Implement the method of :class:`DeviceRule`."""
        return {"log_q": self._log_q.cpu().numpy()}


def _trimmed(batch: DeviceBatch, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return what :func:`engine.training.rules.doro.trimmed` does."""
    order = torch.argsort(batch.loss, descending=True, stable=True)
    mass = batch.weight[order]
    total = mass.sum()
    after = torch.where(total > 0, mass.cumsum(0) / total.clamp(min=LEAST), 0.0)
    before = torch.cat([after.new_zeros(1), after[:-1]])
    kept = [(edge.clamp(min=eps) - eps) / (1 - eps) for edge in (before, after)]
    return kept[0], kept[1], order


class CvarOnDevice:
    """Form of :class:`engine.training.rules.doro.CvarDoro`."""

    def __init__(self, alpha: float, eps: float) -> None:
        self._alpha, self._eps = alpha, eps

    def weigh(self, batch: DeviceBatch) -> Tensor:
        """Implement the method of :class:`DeviceRule`."""
        before, after, order = _trimmed(batch, self._eps)
        tail = (after.clamp(max=self._alpha) - before.clamp(max=self._alpha)) / self._alpha
        return torch.zeros_like(tail).scatter_(0, order, tail)

    def state(self) -> RuleState:
        """Implement the method of :class:`DeviceRule`."""
        return {}


class Chi2OnDevice:
    """Form of :class:`engine.training.rules.doro.Chi2Doro`, whose eta is found without iterations.

    Among the k largest losses, with p-mass s, mean m and variance v under p, the derivative of the loss by
    eta is 0 at eta = m - sqrt(v / (c^2 s - 1)). The k is right whose eta lies between its last loss and the
    next one.
    """

    def __init__(self, c: float, eps: float) -> None:
        self._c, self._eps = c, eps

    def weigh(self, batch: DeviceBatch) -> Tensor:
        """Implement the method of :class:`DeviceRule`."""
        before, after, order = _trimmed(batch, self._eps)
        found = self._weights(batch.loss[order], after - before)
        return torch.zeros_like(found).scatter_(0, order, found)

    def _weights(self, loss: Tensor, p: Tensor) -> Tensor:
        """Return the weights (b,) of descending losses with shares p."""
        kept = p > 0
        high = torch.where(kept, loss, -torch.inf).amax()
        spread = high - torch.where(kept, loss, torch.inf).amin()
        top = p * (loss >= high - 1e-9 * spread)
        over = (loss - self._eta(loss - high, p) - high).clamp(min=0)
        raw = torch.where(self._c**2 * top.sum() >= 1, top, p * over)
        flat = ~kept.any() | (spread <= 1e-12 * high.abs().clamp(min=1.0)) | (self._c <= 1)
        return torch.where(flat, p, raw / raw.sum())

    def _eta(self, shifted: Tensor, p: Tensor) -> Tensor:
        """Return eta less the largest kept loss, for descending losses less it."""
        mass = p.cumsum(0)
        mean = (p * shifted).cumsum(0) / mass
        variance = ((p * shifted.square()).cumsum(0) / mass - mean.square()).clamp(min=0)
        eta = mean - (variance / (self._c**2 * mass - 1)).sqrt()
        below = torch.cat([shifted[1:], shifted.new_full((1,), -torch.inf)])
        right = (eta >= below) & (eta < shifted)  # False where there is no root
        return eta.gather(0, right.long().argmax()[None])

    def state(self) -> RuleState:
        """Implement the method of :class:`DeviceRule`."""
        return {}
