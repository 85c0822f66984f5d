"""The training loop on a GPU: the host sends steps ahead and reads their results once an epoch.

The steps are those of :mod:`engine.training.fit.loop`. What that loop looks at in every step stays on the
device: the rule's weights, the losses, and whether they are numbers. A step whose loss is none is therefore
found at the end of its epoch; the error names the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.training.fit.device_rows import DeviceRows, StepRows
from engine.training.fit.learner import HEAD, Forward, Learner
from engine.training.fit.loop import DivergedError, OnStep, describe_fault
from engine.training.fit.sampling import Epoch
from engine.training.rules import Rule
from engine.training.rules.on_device import DeviceBatch, DeviceRule, device_form
from operators.arrays import Int64
from operators.communicator import Slots


@dataclass(frozen=True)
class DeviceSlotForward:
    """Rows of one slot in one step, with their forward pass."""

    rows: DeviceRows
    forward: Forward


@dataclass(frozen=True)
class StepLosses:
    """A step that was taken, with what is read of it later."""

    step: int
    loss: Tensor
    """() sum of the rows' losses."""
    is_sound: Tensor
    """() whether loss and gradient are numbers."""
    rows: dict[int, tuple[Int64, Tensor]]
    """Slot -> row ids, and whether the loss of each is a number."""


def run_epoch_on_device(
    learner: Learner,
    rule: Rule,
    source: StepRows,
    slots: Slots,
    epoch: Epoch,
    mean_weight: float,
    on_step: OnStep | None = None,
) -> float:
    """Take the epoch's steps as :func:`engine.training.fit.loop.run_epoch` does, with the same mean loss.

    Raises
    ------
    DivergedError
        After the epoch: in one of its steps a loss is not a number, with the ids of the rows; or the gradient
        is not.
    """
    streams = {slot: source.steps(epoch, slot) for slot in slots.mine}
    form = device_form(rule, learner.device)
    taken: list[StepLosses] = []
    for step in range(epoch.steps):
        n = epoch.batch(step)
        if not n:
            continue
        held = {}
        for slot in slots.mine:
            rows, seed = next(streams[slot])
            held[slot] = DeviceSlotForward(rows, learner.forward_on_device(rows.X, rows.answer, seed))
        counts = weigh(rule, form, held, slots, epoch, step, mean_weight)
        total = slots.total_on_device(lambda slot: learner.share(held[slot].forward, counts[slot]))  # noqa: B023
        learner.step(total, n)
        ids = {slot: (s.rows.row_id, s.forward.loss.detach().isfinite()) for slot, s in held.items()}
        taken.append(StepLosses(step, total[HEAD - 1], total.isfinite().all(), ids))
        if on_step is not None:
            on_step(step + 1, n, total[HEAD - 1])
    loss = _read_losses(taken, slots, epoch, learner)
    rule.state = form.state()
    return loss / max(sum(epoch.slot_rows), 1)


def _read_losses(taken: list[StepLosses], slots: Slots, epoch: Epoch, learner: Learner) -> float:
    """Return the sum of all steps' losses. Raises DivergedError for the first that is no number."""
    if not taken:
        return 0.0
    losses = torch.stack([one.loss for one in taken]).double()
    is_sound = torch.stack([one.is_sound for one in taken])
    found = torch.stack([losses, is_sound.to(losses)]).cpu().numpy()
    bad = np.flatnonzero(found[1] == 0)
    if len(bad):
        first = taken[int(bad[0])]

        def bad_rows(slot: int) -> Int64:
            row_id, is_number = first.rows[slot]
            found: Int64 = row_id[~is_number.cpu().numpy()]
            return found

        raise DivergedError(describe_fault(bad_rows, slots, epoch, first.step, learner.lr))
    return float(sum(found[0].tolist()))


def weigh(
    rule: Rule,
    form: DeviceRule,
    held: Mapping[int, DeviceSlotForward],
    slots: Slots,
    epoch: Epoch,
    step: int,
    mean_weight: float,
) -> dict[int, Tensor]:
    """Return the factor of each row of this worker's slots in the step's objective, on the device."""
    n = epoch.batch(step)
    if not rule.sees_all:
        return {slot: form.weigh(_batch(_columns(share), n, mean_weight)) for slot, share in held.items()}
    sizes = [epoch.piece(slot, step) for slot in range(slots.count)]
    most = max(sizes)
    device = next(iter(held.values())).rows.group.device
    table = slots.each_on_device(lambda slot: _padded(_columns(held[slot]), most)).to(device)
    whole = torch.cat([table[slot].view(3, most)[:, :size] for slot, size in enumerate(sizes)], dim=1)
    counts = torch.split(form.weigh(_batch(whole, n, mean_weight)), sizes)
    return {slot: counts[slot] for slot in held}


def _columns(share: DeviceSlotForward) -> Tensor:
    """Return loss, weight and group of a slot's rows as (3, b) float64."""
    rows = share.rows
    return torch.stack([share.forward.loss.detach().to(rows.weight), rows.weight, rows.group.to(rows.weight)])


def _padded(columns: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(columns, (0, width - columns.shape[1])).reshape(-1)


def _batch(columns: Tensor, n: int, mean_weight: float) -> DeviceBatch:
    return DeviceBatch(columns[0], columns[1] / mean_weight, columns[2].long(), n)
