"""Adam on minibatches that are put together from fixed slots, so that the workers' number leaves no trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from operators.base import OperatorError
from operators.communicator import Slots
from operators.probe.census import Census
from operators.probe.rows import Rows, Shards, join
from operators.probe.settings import Settings

WINDOW = 2**16
"""Rows of a slot that are shuffled together and held in memory at once (whole pieces, so a few more)."""
PIECES = 8
"""Number of large shards that share a window; each is read up to so many times an epoch then."""
HEAD = 2
"""Numbers before the gradient in a slot's vector: loss and rows."""


def fit_minibatch(
    model: nn.Module, shards: Shards, slots: Slots, census: Census, settings: Settings, seed: int
) -> list[float]:
    """Train ``model`` in place by Adam (Kingma & Ba 2015) and return the mean training loss of each epoch.

    Every row is used once an epoch. A step takes an equal fraction of every slot, about ``batch_size``
    rows in all. ``l2`` is added to the gradient as ``l2 * W`` for parameters of two or more dimensions;
    biases and scales of normalisation layers are not penalised.
    """
    learner = _Learner(model, settings.lr, settings.l2)
    mean_weight = census.total_weight / census.n_rows
    steps = -(-census.n_rows // settings.batch_size)
    pieces = {slot: _pieces(shards, slots.shards(slot), census.slot_rows[slot]) for slot in slots.mine}
    curve = []
    for epoch in range(settings.epochs):
        seen = torch.zeros(HEAD, dtype=torch.float64)
        streams = {
            slot: _stream(shards, pieces[slot], census.slot_rows[slot], steps, (seed, epoch, slot))
            for slot in slots.mine
        }
        for _ in range(steps):
            total = slots.total_on_device(partial(_next_share, learner, streams))
            if total[1] > 0:
                learner.step(total, mean_weight)
            seen += total[:HEAD].cpu()
        curve.append(float(seen[0] / seen[1]) / mean_weight)
    return curve


def _next_share(learner: _Learner, streams: dict[int, Iterator[tuple[Rows, int]]], slot: int) -> Tensor:
    rows, seed = next(streams[slot])
    return learner.share(rows, seed)


def _stream(
    shards: Shards, pieces: Sequence[Piece], n_rows: int, steps: int, place: tuple[int, int, int]
) -> Iterator[tuple[Rows, int]]:
    """Yield a slot's share of each step of an epoch, with a seed each.

    ``place`` has the training's seed, the epoch and the slot.
    """
    generator = np.random.default_rng([*place])
    windows = _shuffled_windows(shards, pieces, generator)
    for rows in cut(windows, n_rows, steps):
        yield rows, int(generator.integers(2**31))


@dataclass(frozen=True)
class Piece:
    """Every ``step``-th row of a shard from ``start`` on."""

    shard: int
    start: int = 0
    step: int = 1

    def rows(self, shards: Shards) -> Rows:
        """Return the rows: a copy, unless the piece is the whole shard, so that the rest is not kept."""
        rows = shards[self.shard]
        return rows if self.step == 1 else rows.take(np.arange(self.start, len(rows), self.step))


def _pieces(shards: Shards, mine: Sequence[int], n_rows: int) -> list[Piece]:
    """Divide a slot's ``n_rows`` rows into pieces that windows are put together from.

    A window holds at least :data:`PIECES` of them. Otherwise the rows of a table in the order of its classes
    would come class by class where shards are as large as windows, and training would forget the first.
    """
    if n_rows <= WINDOW:
        return [Piece(shard) for shard in mine]
    found = []
    for shard in mine:
        step = max(1, min(PIECES, -(-len(shards[shard]) * PIECES // WINDOW)))
        found += [Piece(shard, start, step) for start in range(step)]
    return found


def cut(windows: Iterator[Rows], n: int, steps: int) -> Iterator[Rows]:
    """Cut the ``n`` rows of all windows in ``steps`` pieces whose sizes differ by at most one."""
    rest = join([])
    for step in range(steps):
        wanted = n * (step + 1) // steps - n * step // steps
        while len(rest) < wanted:
            rest = join([rest, next(windows)])
        yield rest.take(slice(0, wanted))
        rest = rest.take(slice(wanted, None))


def _shuffled_windows(
    shards: Shards, pieces: Sequence[Piece], generator: np.random.Generator
) -> Iterator[Rows]:
    held: list[Rows] = []
    least = PIECES if any(piece.step > 1 for piece in pieces) else 1
    for place in generator.permutation(len(pieces)):
        held.append(pieces[place].rows(shards))
        if sum(map(len, held)) >= WINDOW and len(held) >= least:
            yield _shuffle(held, generator)
            held = []
    if held:
        yield _shuffle(held, generator)


def _shuffle(held: list[Rows], generator: np.random.Generator) -> Rows:
    window = join(held)
    return window.take(generator.permutation(len(window)))


class _Learner:
    """One worker's copy of the model; all copies take the same steps."""

    def __init__(self, model: nn.Module, lr: float, l2: float) -> None:
        self._model = model.train()
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._buffers = list(model.buffers())
        self._common = [buffer.clone() for buffer in self._buffers]
        self._loss = nn.CrossEntropyLoss(reduction="none")
        if not self._parameters:
            raise OperatorError(
                "The probe's model has no trainable parameter: every one is frozen. Leave requires_grad on "
                "for those that are to be trained."
            )
        self._device = self._parameters[0].device
        matrices = [p for p in self._parameters if p.ndim > 1]
        others = [p for p in self._parameters if p.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": l2}, {"params": others, "weight_decay": 0.0}]
        self._optimiser = torch.optim.Adam([group for group in groups if group["params"]], lr=lr)

    def share(self, rows: Rows, seed: int) -> Tensor:
        """Return a slot's share of a step: loss sum, rows, gradient sum, and change of the buffers times
        rows.

        Buffers (running statistics) start from the same values for every slot, and ``seed`` decides the
        randomness inside the model (dropout): neither knows what this worker computed before.
        """
        n = len(rows)
        self._set_buffers(self._common)
        if not n:
            flat = [p.new_zeros(p.numel()) for p in (*self._parameters, *self._buffers)]
            return torch.cat([torch.zeros(HEAD, device=self._device), *flat])
        torch.manual_seed(seed)
        weight = torch.tensor(rows.weight, dtype=torch.float32, device=self._device)
        logits = self._model(torch.tensor(rows.X, device=self._device))
        loss = weight @ self._loss(logits, torch.tensor(rows.y, device=self._device))
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
        changes = [n * (new - old).flatten() for new, old in zip(self._buffers, self._common, strict=True)]
        head = torch.stack([loss.detach(), loss.new_tensor(n)])
        return torch.cat([head, *(g.flatten() for g in gradients), *changes]).float()

    def step(self, total: Tensor, mean_weight: float) -> None:
        """Move along the summed gradient; take the row-weighted mean of the slots' buffers."""
        n = float(total[1])
        sizes = [part.numel() for part in (*self._parameters, *self._buffers)]
        parts = torch.split(total[HEAD:].to(self._device), sizes)
        for parameter, gradient in zip(self._parameters, parts, strict=False):
            parameter.grad = gradient.view_as(parameter) / (n * mean_weight)
        self._optimiser.step()
        for common, change in zip(self._common, parts[len(self._parameters) :], strict=True):
            moved = common + change.view_as(common) / n
            common.copy_(moved if common.is_floating_point() else moved.round())
        self._set_buffers(self._common)

    @torch.no_grad()
    def _set_buffers(self, values: list[Tensor]) -> None:
        for buffer, value in zip(self._buffers, values, strict=True):
            buffer.copy_(value)
