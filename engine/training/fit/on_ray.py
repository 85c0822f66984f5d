"""Training on Ray Train's workers. No other module of the training imports Ray."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from connectors.storage import ObjectPath
from engine.storage.state_sync import download, snapshot, upload
from engine.training.fit.job import TrainingJob, run_job, run_job_on_copy
from operators.base import OperatorError
from operators.communicator import Distributed
from operators.probe.ray_train import count_workers, run_workers

FAULT = "fault"


def run_on_ray(job: TrainingJob, place: ObjectPath | None = None) -> dict[str, Any]:
    """Train with ``TorchTrainer``; a lost worker starts all of them again from the last checkpoint.

    Where the hosts share no disk, ``place`` is the prefix of which the job's folder is the driver's copy:
    workers exchange files through it. Returns ``training.json``.

    Raises
    ------
    OperatorError
        The cluster has no room for a worker, or a worker found rows or model unusable.
    """

    def loop() -> dict[str, Any]:
        from engine.training.fit.loop import DivergedError

        try:
            if place is not None:
                return run_job_on_copy(job, place, Distributed())
            return run_job(job, Distributed())
        except DivergedError as error:
            # Every worker has it, and again after a new start: not a failure to recover from.
            return {FAULT: str(error)}

    params = job.resolved_params
    most = min(params.n_slots, len(job.version.manifest["parts"]))
    n_workers = count_workers("train", params.resources, params.workers, most)
    storage = job.folder / "ray_train"
    if place is not None:
        upload(job.folder, list(snapshot(job.folder)), place)
        # Ray creates the same folder on the workers' hosts, and open to others.
        storage = Path(tempfile.mkdtemp(prefix="rowsieve-train-"))
    record = run_workers(
        loop,
        name="train",
        storage=storage,
        n_workers=n_workers,
        resources=params.resources,
        max_failures=params.max_failures,
        elastic=place is not None,
    )
    if FAULT in record:
        raise OperatorError(record[FAULT])
    if place is not None:
        download(place, [name for name in place.tags_below() if not name.startswith(".")], job.folder)
    return record
