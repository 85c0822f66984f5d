"""EOS with the recipe's probe as its learner, which alternates training and weighting on one or more
workers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor, nn

from operators.arrays import Float64
from operators.base import ROW_ID, Resources, ShardReader
from operators.bounded_json import read_json
from operators.communicator import Communicator, SingleProcess, Slots
from operators.eos.alpha import AlphaPoint, choose_alpha, effective_sample_size_curve
from operators.eos.descent import Descent, Fit
from operators.eos.kernel import (
    WeightStatistics,
    merged,
    random_weights,
    sample_hashes,
    statistics_of_losses,
)
from operators.eos.losses import FixedLosses
from operators.eos.memory import SAMPLE, rows_of
from operators.eos.params import EosParams
from operators.eos.state import EVERYONE, RECORD, constants, record, summary
from operators.models import ModelSpec, load, prepare_device, save
from operators.models.storage import load_spec
from operators.probe.job import CachedShards
from operators.probe.kernel import repeatable, train
from operators.probe.params import ProbeParams
from operators.probe.rows import Rows
from operators.probe.scoring import predict
from operators.probe.settings import Settings


@dataclass(frozen=True)
class ProbeJob:
    """Rows, parameters and folders of one EOS run around the probe. It can be pickled."""

    reader: ShardReader
    state: Path
    """Folder for ``model.safetensors``, ``model.json`` and ``eos.json``, which all workers must share."""
    probe_state: Path
    """The state of the recipe's probe, trained on equal weights: theta of the first iteration."""
    params: EosParams
    probe: ProbeParams
    seed: int


@dataclass(frozen=True)
class ProbeModel:
    """A trained probe with the interface of :class:`operators.eos.descent.Descent`."""

    module: nn.Module
    l2: float
    rows_needed: int

    @property
    def penalty(self) -> float:
        """l2 / 2 |W|^2 over all matrices, which training adds to the mean loss."""
        matrices = (p.detach().double() for p in self.module.parameters() if p.requires_grad and p.ndim > 1)
        return self.l2 / 2 * sum(float(p.square().sum()) for p in matrices)


@dataclass
class IdentifiedShards(CachedShards):
    """Training rows of every shard, and the row ids of the shards that were read."""

    ids: dict[int, npt.NDArray[np.int64]] = field(default_factory=dict)
    """(n,) by shard. Positions do not tell them, because rejected and held-out rows are left out."""

    def _parsed(self, shard: int, table: pa.Table) -> Rows:
        self.ids[shard] = table.column(ROW_ID).to_numpy()
        return super()._parsed(shard, table)


@dataclass
class WeightedShards:
    """Training rows with weights, which are computed when a shard is first read."""

    shards: CachedShards
    weigh: Callable[[int, Rows], Float64]
    _found: dict[int, Float64] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, shard: int, /) -> Rows:
        rows = self.shards[shard]
        if shard not in self._found:
            self._found[shard] = self.weigh(shard, rows) if len(rows) else np.empty(0)
        return Rows(rows.X, rows.y, self._found[shard])


class Worker:
    """One worker of a communicator; all workers run the same steps."""

    def __init__(self, job: ProbeJob, communicator: Communicator) -> None:
        self.job, self.communicator = job, communicator
        self.shards = IdentifiedShards(job.reader)
        self.slots = Slots(communicator, len(self.shards))
        self.spec: ModelSpec = load_spec(job.probe_state)
        resources = job.probe.resources
        self.device = prepare_device(resources.cpus, resources.gpus)

    def wrapped(self, module: nn.Module) -> ProbeModel:
        """Wrap a module with its penalty."""
        return ProbeModel(module.to(self.device), self.job.probe.l2, self.spec.n_classes)

    def losses(self, model: ProbeModel, rows: Rows) -> Float64:
        """Return the softmax cross-entropy (n,) in nats."""
        with repeatable(torch.device(self.device)):
            return predict(model.module, rows.X, rows.y)[1].astype(np.float64)

    def alpha(self, model: ProbeModel) -> tuple[float, list[AlphaPoint]]:
        """Choose alpha for the losses of a sample of all rows; every worker gets the same value."""
        job = self.job
        found = self.slots.each(partial(self._sample, model)).numpy().reshape(-1, 3)
        found = found[np.argsort(found[:, 0], kind="stable")][:SAMPLE]
        found = found[np.isfinite(found[:, 0])]
        sample = rows_of(found[:, 1:2], found[:, 2].astype(np.int64))
        curve = effective_sample_size_curve(sample, FixedLosses(), threshold=job.params.threshold)
        params, alpha = job.params, job.params.alpha
        if alpha == "auto":
            alpha = choose_alpha(curve, params.efficiency, params.most_flagged)
        return float(self.communicator.broadcast(torch.tensor([alpha], dtype=torch.float64))[0]), curve

    def collect(self, model: ProbeModel, alpha: float) -> WeightStatistics:
        """Make one pass over the rows of all workers."""
        found = self.slots.each(partial(self._statistics, model, alpha)).tolist()
        return merged(
            WeightStatistics(alpha, low, mass, square, prior, np.zeros(0))
            for low, mass, square, prior in found
        )

    def fit(self, model: ProbeModel, found: WeightStatistics, draw: int | None) -> ProbeModel:
        """Train from the beginning with the weights of ``found``."""

        def weigh(shard: int, rows: Rows) -> Float64:
            if np.isinf(found.alpha):
                return random_weights(self.shards.ids[shard], draw or 0)
            return np.exp(found.log_weights(self.losses(model, rows)))

        probe = self.job.probe
        settings = Settings.of(probe)
        shards = WeightedShards(self.shards, weigh)
        communicator = self.communicator
        trained = train(
            self.spec,
            shards,
            settings=settings,
            seed=self.job.seed,
            communicator=communicator,
            device=self.device,
        )
        return self.wrapped(trained.model)

    def run_descent(self, first: ProbeModel, alpha: float, draw: int | None) -> Fit:
        """Run one start; ``first`` was trained on equal weights."""
        params = self.job.params
        descent = Descent(first, alpha, params.tol, params.max_iter, draw, started=draw is None)
        while not descent.done:
            # The statistics before a random start have the weights of equal losses.
            found = self.collect(descent.ahead, descent.next_alpha)
            descent.advance(found, partial(self.fit, draw=draw))
        return descent.best

    def _statistics(self, model: ProbeModel, alpha: float, slot: int) -> Tensor:
        parts = [
            statistics_of_losses(self.losses(model, rows), rows.weight, alpha)
            for rows in (self.shards[shard] for shard in self.slots.shards(slot))
            if len(rows)
        ]
        if not parts:
            return torch.tensor([np.inf, 0.0, 0.0, 0.0], dtype=torch.float64)
        total = merged(parts)
        return torch.tensor([total.low, total.mass, total.square, total.prior], dtype=torch.float64)

    def _sample(self, model: ProbeModel, slot: int) -> Tensor:
        """Return hash, loss and class of the slot's rows with the smallest hashes, (3 SAMPLE,), padded by
        inf.
        """
        kept = np.full((SAMPLE, 3), np.inf)
        for shard in self.slots.shards(slot):
            rows = self.shards[shard]
            if len(rows):
                hashes = sample_hashes(self.shards.ids[shard], self.job.seed).astype(np.float64)
                both = np.concatenate([kept, np.column_stack([hashes, self.losses(model, rows), rows.y])])
                kept = both[np.argsort(both[:, 0], kind="stable")][:SAMPLE]
        return torch.tensor(kept.ravel())


def run_job(job: ProbeJob, communicator: Communicator | None = None) -> dict[str, float]:
    """Run EOS; rank 0 writes the state. Returns the metrics that ``eos`` records.

    Raises OperatorError where rows or model cannot be used.
    """
    worker = Worker(job, communicator or SingleProcess())
    params = job.params
    first = worker.wrapped(load(job.probe_state))
    alpha, curve = worker.alpha(first)
    draws = [None if params.start == "uniform" and not i else job.seed + i for i in range(params.n_init)]
    fit = min((worker.run_descent(first, alpha, draw) for draw in draws), key=lambda fit: fit.objective[-1])
    limit = float(np.log(params.threshold))
    outliers = worker.slots.total(partial(_outliers, worker, fit, limit))
    metrics = summary({EVERYONE: fit}, {}) | {"outliers": float(outliers[0])}
    if worker.communicator.rank == 0:
        save(fit.model.module.cpu(), worker.spec, job.state)
        found = {
            "statistics": constants(fit.statistics),
            **record({EVERYONE: fit}, {EVERYONE: curve}),
            "metrics": metrics,
        }
        (job.state / RECORD).write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    return metrics


def _outliers(worker: Worker, fit: Fit, limit: float, slot: int) -> Tensor:
    shards = (worker.shards[shard] for shard in worker.slots.shards(slot))
    found = (
        fit.statistics.log_weights(worker.losses(fit.model, rows)) < limit for rows in shards if len(rows)
    )
    return torch.tensor([float(sum(part.sum() for part in found))], dtype=torch.float64)


def load_scorer(
    state: Path, resources: Resources
) -> Callable[[npt.NDArray[np.float32], npt.NDArray[np.integer]], Float64]:
    """Return a function from rows (n, d) and classes (n,) to the log (n,) of weights of mean 1."""
    found = read_json(state / RECORD)
    statistics = WeightStatistics(sums=np.zeros(0), **found["statistics"])
    model = load(state).to(prepare_device(resources.cpus, resources.gpus))
    return lambda X, y: statistics.log_weights(predict(model, X, y.astype(np.int64))[1].astype(np.float64))
