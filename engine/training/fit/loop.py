"""The training loop: one epoch of steps, in which a rule weights the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from engine.training.data.rows import GroupedRows, Shards
from engine.training.fit.learner import HEAD, Forward, Learner
from engine.training.fit.sampling import Epoch, pieces
from engine.training.rules import Batch, Rule
from operators.arrays import Float64, Int64
from operators.base import OperatorError
from operators.communicator import Slots

OnStep = Callable[[int, int, float | Tensor], None]
"""Is told of a step: its number from 1, its rows, and the sum of their losses, which may be on a device."""
MAX_NAMED_ROWS = 10
"""Most row ids that an error names."""


class DivergedError(OperatorError):
    """A loss or gradient is not a number. All workers raise it together."""


@dataclass(frozen=True)
class SlotForward:
    """Rows of one slot in one step, with their forward pass."""

    rows: GroupedRows
    forward: Forward


def run_epoch(
    learner: Learner,
    rule: Rule,
    shards: Shards,
    slots: Slots,
    epoch: Epoch,
    mean_weight: float,
    on_step: OnStep | None = None,
) -> float:
    """Take the epoch's steps and return the mean loss in nats of its rows, each measured before its step.

    Weights are divided by ``mean_weight``, the mean over the train rows. ``on_step`` is called after every
    step.

    Raises
    ------
    DivergedError
        A loss is not a number, with the ids of the rows; or the gradient is not.
    """
    streams = {slot: pieces(shards, slots, epoch, slot) for slot in slots.mine}
    loss = 0.0
    for step in range(epoch.steps):
        n = epoch.batch(step)
        if not n:
            continue
        held = {slot: _forward(learner, streams[slot]) for slot in slots.mine}
        counts = weigh(rule, held, slots, epoch, step, mean_weight)
        total = slots.total_on_device(lambda slot: learner.share(held[slot].forward, counts[slot]))  # noqa: B023
        if not bool(total.isfinite().all()):
            bad = partial(_bad_rows, held)
            raise DivergedError(describe_fault(bad, slots, epoch, step, learner.lr))
        learner.step(total, n)
        summed = float(total[HEAD - 1])
        loss += summed
        if on_step is not None:
            on_step(step + 1, n, summed)
    return loss / max(sum(epoch.slot_rows), 1)


def _forward(learner: Learner, stream: Iterator[tuple[GroupedRows, int]]) -> SlotForward:
    rows, seed = next(stream)
    return SlotForward(rows, learner.forward(rows, seed))


def weigh(
    rule: Rule, held: Mapping[int, SlotForward], slots: Slots, epoch: Epoch, step: int, mean_weight: float
) -> dict[int, Tensor]:
    """Return the factor of each row of this worker's slots in the step's objective."""
    n = epoch.batch(step)
    if not rule.sees_all:
        return {
            slot: torch.from_numpy(rule.weigh(_batch(_columns(share), n, mean_weight)))
            for slot, share in held.items()
        }
    sizes = [epoch.piece(slot, step) for slot in range(slots.count)]
    most = max(sizes)
    table = slots.each(lambda slot: _padded(_columns(held[slot]), most)).numpy().reshape(-1, 3, most)
    whole = np.concatenate([table[slot, :, :size] for slot, size in enumerate(sizes)], axis=1)
    if not np.isfinite(whole[0]).all():
        # The rule might hide a bad row by giving it no weight: let the sum find it.
        return {slot: torch.ones(len(share.rows)) for slot, share in held.items()}
    counts = torch.from_numpy(rule.weigh(_batch(whole, n, mean_weight)))
    return {slot: part for slot, part in enumerate(torch.split(counts, sizes)) if slot in held}


def _columns(share: SlotForward) -> Float64:
    """Return loss, weight and group of a slot's rows as (3, b)."""
    loss = share.forward.loss.detach().cpu().numpy()
    return np.stack([loss, share.rows.weight, share.rows.group]).astype(np.float64)


def _padded(columns: Float64, width: int) -> Tensor:
    found = np.zeros((3, width))
    found[:, : columns.shape[1]] = columns
    return torch.from_numpy(found.reshape(-1))


def _batch(columns: Float64, n: int, mean_weight: float) -> Batch:
    return Batch(columns[0], columns[1] / mean_weight, columns[2].astype(np.int64), n)


def _bad_rows(held: Mapping[int, SlotForward], slot: int) -> Int64:
    """Return the ids of a slot's rows whose loss is no number."""
    share = held[slot]
    bad: Int64 = share.rows.row_id[~np.isfinite(share.forward.loss.detach().cpu().numpy())]
    return bad


def describe_fault(
    bad_rows: Callable[[int], Int64], slots: Slots, epoch: Epoch, step: int, step_size: float
) -> str:
    """Describe why a step's sum is not finite; every worker gets the same text.

    ``bad_rows`` returns the ids of the rows of one of this worker's slots whose loss is no number.
    """

    def ids(slot: int) -> Tensor:
        bad = bad_rows(slot)
        found = torch.full((MAX_NAMED_ROWS + 1,), -1, dtype=torch.int64)
        first = torch.from_numpy(bad[:MAX_NAMED_ROWS].astype(np.int64))
        found[: len(first)] = first
        found[MAX_NAMED_ROWS] = len(bad)
        return found

    table = slots.each(ids)
    known = sorted(int(i) for i in table[:, :MAX_NAMED_ROWS].flatten() if i >= 0)[:MAX_NAMED_ROWS]
    n_bad, place = int(table[:, MAX_NAMED_ROWS].sum()), f"step {step + 1} of epoch {epoch.place[-1] + 1}"
    if not n_bad:
        return (
            f"Training diverged: the gradient of {place} is not finite although every loss is. "
            f"Lower train.lr ({step_size:g}), or set train.standardize."
        )
    more = f" and {n_bad - len(known)} more" if n_bad > len(known) else ""
    return (
        f"Training stopped: the loss of {n_bad} of {epoch.batch(step)} rows is not a number in {place}. "
        f"row_id: {', '.join(map(str, known))}{more}. Look at these rows' features; if they are sound, "
        f"training has diverged: lower train.lr ({step_size:g}), or set train.standardize."
    )
