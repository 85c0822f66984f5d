"""The training on Ray Train's workers. The only module of the probe that imports Ray."""

from __future__ import annotations

import shutil
import uuid
from typing import Any

import ray
import ray.train
from ray.train.torch import TorchConfig, TorchTrainer

from operators.base import OperatorError, ResourceError, Resources
from operators.probe.crew import SLOTS, Distributed
from operators.probe.job import TrainingJob, run_job


def run_on_ray(job: TrainingJob) -> dict[str, float]:
    """Train with ``TorchTrainer``; a lost worker starts the training over, once, with the same result.

    Ray Train keeps its own records beside the state while it runs; they are removed at the end.

    Raises
    ------
    OperatorError
        The cluster has no room for a worker, or a worker found rows or model unusable.
    """
    wanted = job.params.resources
    storage = job.state / "ray_train"
    storage.mkdir(parents=True, exist_ok=True)

    def loop() -> dict[str, float]:
        return run_job(job, Distributed())

    trainer = TorchTrainer(
        loop,
        # Sums are exchanged on the CPU, in an order that NCCL would not promise.
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ray.train.ScalingConfig(
            num_workers=_count_workers(job),
            use_gpu=wanted.gpus > 0,
            resources_per_worker={"CPU": wanted.cpus} | ({"GPU": wanted.gpus} if wanted.gpus else {}),
        ),
        run_config=ray.train.RunConfig(
            # Ray resumes a run whose name it knows; ours must start from the beginning.
            name=f"probe-{uuid.uuid4().hex}",
            storage_path=str(storage),
            failure_config=ray.train.FailureConfig(max_failures=1),
            logging_config=ray.train.LoggingConfig(log_level="ERROR"),
        ),
    )
    try:
        metrics: dict[str, float] = trainer.fit().return_value
    except ray.train.TrainingFailedError as error:
        fault = _expected_fault(error)
        if fault is None:
            raise
        raise OperatorError(fault) from error
    finally:
        shutil.rmtree(storage)
    return metrics


def _count_workers(job: TrainingJob) -> int:
    """What was asked for, as far as slots, shards and the cluster allow: fewer give the same result."""
    wanted = job.params.resources
    fits = _fits(wanted, ray.cluster_resources())
    if not fits:
        raise ResourceError(
            f"operators.probe.resources asks for {wanted.cpus:g} CPUs and {wanted.gpus:g} GPUs a worker, and "
            f"the cluster has {ray.cluster_resources().get('CPU', 0):g} and "
            f"{ray.cluster_resources().get('GPU', 0):g}. Ask for less, or add a node."
        )
    return min(job.params.workers or fits, fits, SLOTS, len(job.reader.shards))


def _fits(wanted: Resources, there: dict[str, float]) -> int:
    shares = [
        there.get(kind, 0) / each for kind, each in (("CPU", wanted.cpus), ("GPU", wanted.gpus)) if each
    ]
    return int(min(shares, default=SLOTS))


def _expected_fault(error: Exception) -> str | None:
    """The text of an OperatorError that some worker raised, however deep Ray has wrapped it."""
    failures: dict[int, Any] = getattr(error, "worker_failures", {})
    for failure in failures.values():
        cause: BaseException | None = failure
        while cause is not None and not isinstance(cause, OperatorError):
            cause = getattr(cause, "_base_exc", None) or getattr(cause, "cause", None) or cause.__cause__
        if cause is not None:
            return str(cause)
    return None
