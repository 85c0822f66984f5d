"""The passes of DCKM over shards: workers keep the state of rows in files and return sums.

Shards are distributed over a fixed number of slots. Sums are formed within each slot, in the order of its
shards, and then over the slots in their order, so that the number of workers changes no bit. A pass writes
the state of a shard into a new file and keeps the previous one for one more pass, so that a task can be
repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from operators.array_files import save_array
from operators.arrays import Float64, Integers, Labels
from operators.base import FEATURES, ROW_ID, Executor, OperatorError, Resources, ShardReader
from operators.columns import vectors_to_numpy
from operators.dckm import steps
from operators.dckm.balance import Coded
from operators.dckm.features import Coder, Coding, column_sums, join_sums, squared_deviations
from operators.dckm.steps import (
    Candidate,
    FinalSums,
    GradientSums,
    InitialSums,
    LineSums,
    RowState,
    Slope,
    add,
    candidate,
    earlier,
)
from operators.threads import limit_threads

SLOTS = 32
"""Largest number of tasks of a pass. Another number gives other last bits."""

R = TypeVar("R")
Rows: TypeAlias = npt.NDArray[np.floating]


@dataclass(frozen=True)
class ShardStates:
    """Shards, and the files with the states of their rows. Picklable."""

    shards: ShardReader
    used: tuple[int, ...]
    """Shards that have rows."""
    folder: Path
    """Folder of states and results, which all workers must share."""
    coder: Coder
    version: int = 0
    """Number of the pass that wrote the states."""

    def read(self, shard: int) -> tuple[Coded, Integers]:
        """Read the coded features and the row ids of a shard."""
        table = self.shards.read(shard, [FEATURES])
        return self.coder(vectors_to_numpy(table.column(FEATURES))), table.column(ROW_ID).to_numpy()

    def load(self, shard: int) -> RowState:
        """Load the state that the last pass stored for a shard."""
        with np.load(self._state(shard, self.version), allow_pickle=False) as stored:
            return RowState(**stored)

    def save(self, state: RowState, shard: int, version: int) -> None:
        """Store the state of a shard's rows, keep the previous one, and remove the one before it."""
        save_array(self._state(shard, version), vars(state))
        self._state(shard, version - 2).unlink(missing_ok=True)

    def _state(self, shard: int, version: int) -> Path:
        return self.folder / f"rows-{shard}-{version}.npz"


class Sharded:
    """Passes over shards; implements :class:`operators.dckm.kernel.Passes`. ``finish`` writes the results."""

    def __init__(self, states: ShardStates, n_rows: int, executor: Executor, resources: Resources) -> None:
        self._states = states
        self._n_rows = n_rows
        self._executor = executor
        self._resources = resources

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return self._n_rows

    def initialise(self, n_clusters: int, start: float, seed: int) -> InitialSums:
        """Make the pass of :func:`operators.dckm.steps.initialise`."""
        step = partial(steps.initialise, n_clusters=n_clusters, start=start, seed=seed)
        return self._total(partial(_initialise, self._states, step))

    def draw(self, centres: Float64, seed: int) -> Float64:
        """Return the row (d,) that k-means++ draws next."""
        return self._total(partial(_draw, self._states, centres, seed), earlier).row

    def assign_rows(self, centres: Float64 | None, step: float | None, momentum: float) -> GradientSums:
        """Make the pass of :func:`operators.dckm.steps.assign_rows`."""
        return self._advance(partial(steps.assign_rows, centres=centres, step=step, momentum=momentum))

    def compute_gradient(self, slope: Slope, n_clusters: int) -> LineSums:
        """Make the pass of :func:`operators.dckm.steps.compute_gradient`."""
        return self._advance(partial(steps.compute_gradient, slope=slope, n_clusters=n_clusters))

    def finish(self, centres: Float64 | None, step: float) -> FinalSums:
        """Make the pass of :func:`operators.dckm.steps.finish`."""
        sums = self._total(partial(_finish, self._states, centres, step))
        for path in self._states.folder.glob("rows-*.npz"):
            path.unlink()
        return sums

    def _advance(self, step: Callable[[Coded, RowState], tuple[RowState, R]]) -> R:
        sums = self._total(partial(_advance, self._states, step))
        self._states = replace(self._states, version=self._states.version + 1)
        return sums

    def _total(self, work: Callable[[int], R], join: Callable[[R, R], R] = add) -> R:
        slots = range(min(SLOTS, len(self._states.used)))
        in_slot = partial(_in_slot, self._states.used, work, join)
        return reduce(join, self._executor.map(in_slot, slots, resources=self._resources))


def survey(
    shards: ShardReader, coding: Coding, folder: Path, executor: Executor, resources: Resources
) -> tuple[ShardStates, int]:
    """Compute how features are coded; return the shards with their files, and the number of rows.

    Raises
    ------
    OperatorError
        No rows, or rows of different lengths.
    """
    numbers = range(len(shards.shards))
    found = executor.map(partial(_column_sums, shards), numbers, resources=resources)
    used, sums = list[int](), None
    for shard, part in zip(numbers, found, strict=True):
        if part is None:
            continue
        if sums is not None and part.shape != sums.shape:
            raise OperatorError(
                f"{shards.shards[shard].path}: rows have {part.shape[1]} features, those of earlier shards "
                f"have {sums.shape[1]}. Every row needs the same features; fix the source."
            )
        used.append(shard)
        sums = part if sums is None else join_sums(sums, part)
    if sums is None:
        raise OperatorError(
            f"There is no row to weight: none of the {len(numbers)} shards has a valid row. `rowsieve "
            "quarantine` lists the rejected rows and the reasons."
        )
    squares = None
    if coding == "standardize":
        work = partial(_squared_deviations, shards, sums[1] / sums[0])
        squares = reduce(add, executor.map(work, used, resources=resources))
    coder = Coder.from_sums(coding, sums, squares)
    return ShardStates(shards, tuple(used), folder, coder), int(sums[0, 0])


def read_result(folder: Path, shard: int) -> tuple[Float64, Labels]:
    """Read the weights (n,) that minimise the objective, and the clusters (n,), of a shard's rows."""
    path = folder / f"result-{shard}.npz"
    if not path.exists():
        return np.empty(0), np.empty(0, np.int32)
    with np.load(path, allow_pickle=False) as stored:
        return stored["weight"], stored["cluster"]


def _features(shards: ShardReader, shard: int) -> Rows:
    return vectors_to_numpy(shards.read(shard, [FEATURES]).column(FEATURES))


def _column_sums(shards: ShardReader, shard: int) -> Float64 | None:
    X = _features(shards, shard)
    return column_sums(X) if len(X) else None


def _squared_deviations(shards: ShardReader, mean: Float64, shard: int) -> Float64:
    return squared_deviations(_features(shards, shard), mean)


def _in_slot(used: Sequence[int], work: Callable[[int], R], join: Callable[[R, R], R], slot: int) -> R:
    # More than one thread would change the order of sums.
    with limit_threads(1):
        return reduce(join, map(work, used[slot::SLOTS]))


def _draw(states: ShardStates, centres: Float64, seed: int, shard: int) -> Candidate:
    return candidate(*states.read(shard), centres, seed)


def _initialise(
    states: ShardStates, step: Callable[[Coded, Integers], tuple[RowState, InitialSums]], shard: int
) -> InitialSums:
    state, sums = step(*states.read(shard))
    states.save(state, shard, 0)
    return sums


def _advance(states: ShardStates, step: Callable[[Coded, RowState], tuple[RowState, R]], shard: int) -> R:
    state, sums = step(states.read(shard)[0], states.load(shard))
    states.save(state, shard, states.version + 1)
    return sums


def _finish(states: ShardStates, centres: Float64 | None, step: float, shard: int) -> FinalSums:
    weight, labels, sums = steps.finish(states.read(shard)[0], states.load(shard), centres, step)
    save_array(states.folder / f"result-{shard}.npz", {"weight": weight, "cluster": labels})
    return sums
