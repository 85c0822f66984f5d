"""Distributionally robust losses after removal of the worst rows of a step (DORO, Zhai et al. 2021)."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import brentq

from engine.training.rules.base import Batch, RuleState
from engine.training.rules.on_device import Chi2OnDevice, CvarOnDevice
from operators.arrays import Float64


def trimmed(batch: Batch, eps: float) -> tuple[Float64, Float64, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Order a step's rows by descending loss and remove the share ``eps`` of their weight that comes first.

    Returns cumulated mass before and after each row, both (b,) from 0 to 1 over the rows that are left
    (a row may be left in part), and the order (b,). Rows of one loss keep their order.
    """
    order = np.argsort(-batch.loss, kind="stable")
    mass = batch.weight[order]
    total = float(mass.sum())
    after = np.cumsum(mass) / total if total else np.zeros_like(mass)
    before = np.concatenate(([0.0], after[:-1]))
    kept = [(edge.clip(min=eps) - eps) / (1 - eps) for edge in (before, after)]
    return kept[0], kept[1], order


class CvarDoro:
    """CVaR-DORO (Zhai, Dan, Kolter & Ravikumar 2021, "DORO", Algorithm 1).

    The mean of the worst ``alpha`` of the step's rows (by weight) after its worst ``eps`` are left out. The
    last row of the tail counts in part, so that alpha * n need not be a whole number.
    """

    sees_all = True

    def __init__(self, alpha: float, eps: float) -> None:
        self._alpha, self._eps = alpha, eps
        self.state: RuleState = {}

    def weigh(self, batch: Batch) -> Float64:
        """Implement the method of :class:`engine.training.rules.base.Rule`."""
        before, after, order = trimmed(batch, self._eps)
        found = np.zeros(len(order))
        found[order] = (after.clip(max=self._alpha) - before.clip(max=self._alpha)) / self._alpha
        return found

    def on_device(self, device: torch.device) -> CvarOnDevice:
        """Implement the method of :class:`engine.training.rules.on_device.HasDeviceForm`."""
        return CvarOnDevice(self._alpha, self._eps)


class Chi2Doro:
    """Chi-square DORO (Zhai et al. 2021, "DORO"; Duchi & Namkoong 2018).

    With p the kept rows' share of weight, the loss is min over eta of c sqrt(sum p_i (l_i - eta)_+^2) + eta,
    c = sqrt(1 + (1/alpha - 1)^2): the worst mean loss over all distributions r p with
    sum p_i (r_i - 1)^2 <= (1/alpha - 1)^2. Rows count c p_i (l_i - eta)_+ / sqrt(...), which sums to 1.
    """

    sees_all = True

    def __init__(self, alpha: float, eps: float) -> None:
        self._c = float(np.sqrt(1 + (1 / alpha - 1) ** 2))
        self._eps = eps
        self.state: RuleState = {}

    def weigh(self, batch: Batch) -> Float64:
        """Implement the method of :class:`engine.training.rules.base.Rule`."""
        before, after, order = trimmed(batch, self._eps)
        found = np.zeros(len(order))
        found[order] = chi2_weights(batch.loss[order], after - before, self._c)
        return found

    def on_device(self, device: torch.device) -> Chi2OnDevice:
        """Implement the method of :class:`engine.training.rules.on_device.HasDeviceForm`."""
        return Chi2OnDevice(self._c, self._eps)


def chi2_weights(loss: Float64, p: Float64, c: float) -> Float64:
    """Return the derivative of the loss in :class:`Chi2Doro` by each row's loss: (b,) >= 0, sum 1.

    Parameters
    ----------
    loss : (b,) losses.
    p : (b,) >= 0, sum 1; share of weight of each kept row.
    c : at least 1; 1 gives p.
    """
    kept = p > 0
    if not kept.any():
        return p
    high, low = float(loss[kept].max()), float(loss[kept].min())
    spread = high - low

    def slope(eta: float) -> float:
        # d/d eta of c sqrt(sum p (l - eta)_+^2) + eta, by its sign
        over = (loss - eta).clip(min=0)
        return float(np.sqrt(p @ over**2) - c * (p @ over))

    if c <= 1 or spread <= 1e-12 * max(abs(high), 1.0):
        return p
    start, end = low - spread, high - 1e-9 * spread
    if slope(end) <= 0:
        top = p * (loss >= end)
        first: Float64 = top / top.sum()
        return first  # eta is the largest loss: those rows alone make up the worst distribution
    while slope(start) > 0:
        start -= high - start
    eta = float(brentq(slope, start, end, xtol=1e-12 * max(spread, 1.0), rtol=1e-14))
    raw = p * (loss - eta).clip(min=0)
    found: Float64 = raw / raw.sum()
    return found
