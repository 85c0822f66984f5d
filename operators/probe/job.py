"""The training of the probe as one function, which runs in one task or on every worker of a group."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from operators.arrays import Float32, Int64, Labels
from operators.base import FEATURES, LABEL, OperatorError, Resources, ShardReader
from operators.columns import vectors_to_numpy
from operators.models.spec import ModelSpec
from operators.probe.params import ProbeParams
from operators.probe.rows import Rows, Shards
from operators.probe.settings import Settings

if TYPE_CHECKING:
    from operators.communicator import Communicator
    from operators.probe.trained import Trained

Predictor: TypeAlias = Callable[[Float32, Int64], tuple[Labels, Float32]]
"""From features (n, d) and classes (n,) to predicted classes (n,) and losses (n,) in nats."""

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
        return self._parsed(shard, self.reader.read(shard, [FEATURES, LABEL]))

    def _parsed(self, shard: int, table: pa.Table) -> Rows:
        labels = table.column(LABEL).to_numpy().astype(np.int64)
        return Rows(vectors_to_numpy(table.column(FEATURES)), labels, np.ones(len(labels)))


def run_job(job: ProbeJob, communicator: Communicator | None = None) -> dict[str, float]:
    """Train; rank 0 writes the state. Returns train_loss, train_accuracy, n_parameters and converged (0, 1).

    Raises OperatorError where the rows or the model cannot be used.
    """
    params = job.params
    shards = CachedShards(job.reader)
    trained = train_into(
        job.state, _spec(job, shards), shards, Settings.of(params), job.seed, params.resources, communicator
    )
    metrics = {
        "train_loss": trained.train_loss,
        "train_accuracy": trained.train_accuracy,
        "n_parameters": float(trained.n_parameters),
        "converged": float(trained.converged),
    }
    if communicator is None or communicator.rank == 0:
        record = metrics | {
            "n_rows": trained.n_rows,
            "steps": len(trained.loss_curve),
            "converged": trained.converged,
            "loss_curve": trained.loss_curve,
        }
        (job.state / "training.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return metrics


def train_into(
    folder: Path,
    spec: ModelSpec,
    shards: Shards,
    settings: Settings,
    seed: int,
    resources: Resources,
    communicator: Communicator | None = None,
) -> Trained[object]:
    """Train a classifier, of which rank 0 writes ``model.safetensors`` and ``model.json`` into ``folder``.

    A logistic model is solved without torch unless ``resources`` ask for a GPU.
    """
    writes = communicator is None or communicator.rank == 0
    if solves_in_numpy(spec, resources):
        from operators.models.storage import save_linear
        from operators.probe.logistic import train_logistic

        solved = train_logistic(spec, shards, settings=settings, communicator=communicator)
        if writes:
            save_linear(solved.model, spec, folder)
        return solved
    from operators.models import prepare_device, save
    from operators.probe.kernel import train

    device = prepare_device(resources.cpus, resources.gpus)
    trained = train(spec, shards, settings=settings, seed=seed, communicator=communicator, device=device)
    if writes:
        save(trained.model, spec, folder)
    return trained


def solves_in_numpy(spec: ModelSpec, resources: Resources) -> bool:
    """Return whether the classifier is trained, and predicts, without torch."""
    return spec.model == "logistic" and not resources.gpus


def open_predictor(folder: Path, resources: Resources) -> Predictor:
    """Return a function from features (n, d) and classes (n,) to predicted classes (n,) and losses (n,).

    ``folder`` is that of :func:`train_into`.
    """
    from operators.models.storage import load_linear, load_spec

    if solves_in_numpy(load_spec(folder), resources):
        return load_linear(folder).predict
    from operators.models import load, prepare_device
    from operators.probe.scoring import predict

    return partial(predict, load(folder).to(prepare_device(resources.cpus, resources.gpus)))


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
