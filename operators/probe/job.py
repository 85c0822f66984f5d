"""The training of the probe as one function, which runs in one task or on every worker of a group."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from operators.base import FEATURES, LABEL, OperatorError, ShardReader
from operators.columns import vectors_to_numpy
from operators.models.spec import ModelSpec
from operators.probe.params import ProbeParams
from operators.probe.settings import Settings

if TYPE_CHECKING:
    from operators.communicator import Communicator
    from operators.probe.rows import Rows

CACHE_BYTES = 512 * 2**20
"""Features that one worker keeps in memory between passes; the rest is read again each pass."""


@dataclass(frozen=True)
class ProbeJob:
    """Rows, parameters and output folder of one training. It can be pickled."""

    reader: ShardReader
    state: Path
    """Gets ``model.safetensors``, ``model.json`` and ``training.json``; all workers must see the folder."""
    params: ProbeParams
    n_classes: int
    widths: tuple[int, ...]
    """Features that each source column gave; empty where they come from another operator."""
    seed: int


@dataclass
class CachedShards:
    """Shards of training rows; the first ones read stay in memory until ``budget`` bytes are used up."""

    reader: ShardReader
    budget: int = CACHE_BYTES
    _kept: dict[int, Rows] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.reader.shards)

    def __getitem__(self, shard: int, /) -> Rows:
        if shard in self._kept:
            return self._kept[shard]
        rows = self._read(shard)
        if rows.X.nbytes <= self.budget:
            self.budget -= rows.X.nbytes
            self._kept[shard] = rows
        return rows

    def _read(self, shard: int) -> Rows:
        from operators.probe.rows import Rows

        table = self.reader.read(shard, [FEATURES, LABEL])
        labels = table.column(LABEL).to_numpy().astype(np.int64)
        return Rows(vectors_to_numpy(table.column(FEATURES)), labels, np.ones(len(labels)))


def run_job(job: ProbeJob, communicator: Communicator | None = None) -> dict[str, float]:
    """Train; rank 0 writes the state. Returns train_loss, train_accuracy and n_parameters.

    Raises OperatorError where the rows or the model cannot be used.
    """
    from operators.models import prepare_device, save
    from operators.probe.kernel import train

    params = job.params
    shards = CachedShards(job.reader)
    spec = _spec(job, shards)
    settings = Settings.of(params)
    device = prepare_device(params.resources.cpus, params.resources.gpus)
    trained = train(spec, shards, settings=settings, seed=job.seed, communicator=communicator, device=device)
    metrics = {
        "train_loss": trained.train_loss,
        "train_accuracy": trained.train_accuracy,
        "n_parameters": float(trained.n_parameters),
    }
    if communicator is None or communicator.rank == 0:
        save(trained.model, spec, job.state)
        record = metrics | {
            "n_rows": trained.n_rows,
            "steps": len(trained.loss_curve),
            "converged": trained.converged,
            "loss_curve": trained.loss_curve,
        }
        (job.state / "training.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return metrics


def _spec(job: ProbeJob, shards: CachedShards) -> ModelSpec:
    widths = (rows.X.shape[1] for rows in (shards[i] for i in range(len(shards))) if len(rows))
    n_features = next(widths, None)
    if n_features is None:
        raise OperatorError(
            f"The probe has nothing to learn from: none of the {len(shards)} shards has a valid row. "
            "`rowsieve quarantine` lists the rows that `ingest` rejected, and why."
        )
    params = job.params
    return ModelSpec(
        model=params.model,
        hidden=params.hidden,
        standardize=params.standardize,
        blocks=(job.widths or (n_features,)) if params.standardize else (),
        n_features=n_features,
        n_classes=job.n_classes,
    )
