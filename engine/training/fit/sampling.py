"""Selection of the rows of an epoch and of its steps, independent of the number of workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.training.data.rows import GroupedRows, Shards, join
from operators.arrays import Float64, Int64
from operators.communicator import Slots

WINDOW = 2**16
"""Rows of a slot that are shuffled together and held in memory at once (a few more where counts do not
divide)."""


@dataclass(frozen=True)
class Draw:
    """Specification of how often an epoch takes each row.

    ``times`` has, for each slot of this worker, how often its rows are taken (its shards one after the
    other); None takes each once. ``weights`` instead has their weights >= 0, on any scale: then every epoch
    draws as many rows as there are, with replacement.
    """

    times: Mapping[int, Int64] | None = None
    weights: Mapping[int, Float64] | None = None


@dataclass(frozen=True)
class Epoch:
    """Rows of one epoch: how often each is taken, and the number of rows of each slot."""

    place: tuple[int, ...]
    """Seed, phase and epoch, which determine the shuffling."""
    times: Mapping[int, Int64] | None
    slot_rows: tuple[int, ...]
    steps: int

    def piece(self, slot: int, step: int) -> int:
        """Return the number of a slot's rows in a step. Sizes differ by at most one."""
        n = self.slot_rows[slot]
        return n * (step + 1) // self.steps - n * step // self.steps

    def batch(self, step: int) -> int:
        """Return the number of rows of all slots in a step."""
        return sum(self.piece(slot, step) for slot in range(len(self.slot_rows)))


def balance(mass: Float64) -> Float64:
    """Return factors that give every group the same total weight and keep the overall total.

    Parameters
    ----------
    mass
        (G,) sum of weights of each group; 0 where it has no rows.

    Returns
    -------
    (G + 1,) factors; the last, which the group index -1 picks, is 1: rows in no group keep their share.
    """
    present = mass > 0
    share = mass.sum() / max(int(present.sum()), 1)
    return np.append(np.divide(share, mass, out=np.zeros_like(mass), where=present), 1.0)


def plan_epoch(
    draw: Draw, slots: Slots, slot_rows: Sequence[int], batch_size: int, place: tuple[int, ...]
) -> Epoch:
    """Draw the rows of an epoch. ``slot_rows``: rows of every slot."""
    times = draw.times
    if draw.weights is not None:
        times = _resample(draw.weights, slots, sum(slot_rows), place)
    if times is not None:
        counts = slots.each(lambda slot: torch.tensor([int(times[slot].sum())]))
        slot_rows = [int(count) for count in counts[:, 0]]
    return Epoch(place, times, tuple(slot_rows), max(1, -(-sum(slot_rows) // batch_size)))


def _resample(
    weights: Mapping[int, Float64], slots: Slots, n: int, place: tuple[int, ...]
) -> dict[int, Int64]:
    """Draw n rows by weight: first the number of draws of each slot, then the rows within it."""
    sums = slots.each(lambda slot: torch.tensor([float(weights[slot].sum())], dtype=torch.float64))
    masses = sums[:, 0].numpy()
    common = np.random.default_rng([*place, 2**31])
    wanted = common.multinomial(n, masses / masses.sum())
    found = {}
    for slot in slots.mine:
        own, total = weights[slot], float(masses[slot])
        generator = np.random.default_rng([*place, slot, 1])
        found[slot] = (
            generator.multinomial(int(wanted[slot]), own / total) if total else np.zeros(len(own), np.int64)
        )
    return found


def pieces(shards: Shards, slots: Slots, epoch: Epoch, slot: int) -> Iterator[tuple[GroupedRows, int]]:
    """Yield a slot's rows of each step, with a seed for randomness inside the model (dropout)."""
    generator = np.random.default_rng([*epoch.place, slot])
    mine = slots.shards(slot)
    times = None if epoch.times is None else epoch.times[slot]
    windows = _windows(shards, mine, times, generator)
    rest = join([shards[mine[0]]]).take(slice(0, 0))
    start = 0
    for step in range(epoch.steps):
        wanted = epoch.piece(slot, step)
        while len(rest) - start < wanted:
            rest = join([rest.take(slice(start, None)), next(windows)])
            start = 0
        yield rest.take(slice(start, start + wanted)), int(generator.integers(2**31))
        start += wanted


def _windows(
    shards: Shards, mine: Sequence[int], times: Int64 | None, generator: np.random.Generator
) -> Iterator[GroupedRows]:
    """Yield a slot's rows in random order by windows, each of which holds rows of every shard.

    A window of whole shards would hold only one class if the source is sorted by class.
    """
    positions = _positions(shards, mine, times)
    order = generator.permutation(np.asarray(mine)).tolist()
    n_windows = max(1, -(-sum(len(rows) for rows in positions.values()) // WINDOW))
    if n_windows > 1:
        positions = {shard: generator.permutation(positions[shard]) for shard in order}
    cuts = {shard: np.array_split(positions[shard], n_windows) for shard in order}
    for window in range(n_windows):
        # Rotated, so that the longer pieces of ``array_split`` do not all fall into the first window.
        held = [
            shards[shard].take(cuts[shard][(window + place) % n_windows]) for place, shard in enumerate(order)
        ]
        yield _join_shuffled(held, generator)


def _positions(shards: Shards, mine: Sequence[int], times: Int64 | None) -> dict[int, Int64]:
    """Return the positions of the rows that an epoch takes of each shard, repeated as ``times`` says."""
    found, start = {}, 0
    for shard in mine:
        n_rows = len(shards[shard])
        places = np.arange(n_rows, dtype=np.int64)
        found[shard] = places if times is None else np.repeat(places, times[start : start + n_rows])
        start += n_rows
    return found


def _join_shuffled(held: list[GroupedRows], generator: np.random.Generator) -> GroupedRows:
    """Return all rows of several sets in one random order."""
    window = join(held)
    return window.take(generator.permutation(len(window)))
