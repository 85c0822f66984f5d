"""Training on Ray Train's workers. The only module of the probe that imports Ray."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import ray
import ray.train
from ray.train.torch import TorchConfig, TorchTrainer

from operators.base import OperatorError, ResourceError, Resources, ShardReader
from operators.communicator import SLOTS, Communicator, Distributed

R = TypeVar("R")


class Job(Protocol):
    """The parts of a training job that :func:`run_on_ray` reads."""

    @property
    def reader(self) -> ShardReader:
        """The shards to learn from."""
        ...

    @property
    def state(self) -> Path:
        """Folder that all workers see."""
        ...


def run_on_ray(
    work: Callable[[Communicator], R],
    *,
    name: str,
    who: str,
    job: Job,
    resources: Resources,
    workers: int | None,
) -> R:
    """Run ``work`` with ``TorchTrainer``, as many workers as the cluster allows; return rank 0's result.

    A lost worker starts the work over, once, with the same result.

    Parameters
    ----------
    work : called on every worker with the communicator of the group. It can be pickled.
    name : name of the training in Ray's records.
    who : section of the recipe that an error about resources names.
    job : its shards bound the number of workers, and its state folder holds Ray's records meanwhile.
    resources : resources of one worker.
    workers : the number of workers that the recipe asks for; None: as many as there is room for.

    Raises
    ------
    OperatorError
        The cluster has no room for a worker, or a worker found rows or model unusable.
    """
    most = min(SLOTS, len(job.reader.shards))
    return run_workers(
        lambda: work(Distributed()),
        name=name,
        storage=job.state / "ray_train",
        n_workers=count_workers(who, resources, workers, most),
        resources=resources,
        max_failures=1,
    )


def run_workers(
    loop: Callable[[], R],
    *,
    name: str,
    storage: Path,
    n_workers: int,
    resources: Resources,
    max_failures: int,
    elastic: bool = False,
) -> R:
    """Run ``loop`` on a group of workers and return the result of rank 0; a lost worker restarts all.

    Ray Train keeps its own records in ``storage`` while it runs; they are removed at the end. With
    ``elastic``, fewer workers start again where a node does not come back, as many as there is room for.

    Raises
    ------
    OperatorError
        A worker raised one.
    """
    storage.mkdir(parents=True, exist_ok=True)
    trainer = TorchTrainer(
        loop,
        torch_config=TorchConfig(backend=backend(resources)),
        scaling_config=ray.train.ScalingConfig(
            num_workers=(1, n_workers) if elastic and n_workers > 1 else n_workers,
            use_gpu=resources.gpus > 0,
            resources_per_worker={"CPU": resources.cpus}
            | ({"GPU": resources.gpus} if resources.gpus else {}),
        ),
        run_config=ray.train.RunConfig(
            # Ray resumes a run whose name it knows; ours must start from the beginning.
            name=f"{name}-{uuid.uuid4().hex}",
            storage_path=str(storage),
            failure_config=ray.train.FailureConfig(max_failures=max_failures),
            logging_config=ray.train.LoggingConfig(log_level="ERROR"),
        ),
    )
    try:
        returned: R = trainer.fit().return_value
    except ray.train.TrainingFailedError as error:
        fault = _expected_fault(error)
        if fault is None:
            raise
        raise OperatorError(fault) from error
    finally:
        shutil.rmtree(storage)
    return returned


def backend(resources: Resources) -> str:
    """Return the backend of ``torch.distributed``: gloo, with NCCL where every worker has its own GPUs.

    Two workers that share a GPU cannot talk over NCCL.
    """
    return "cpu:gloo,cuda:nccl" if resources.gpus >= 1 else "gloo"


def count_workers(who: str, wanted: Resources, asked: int | None, most: int) -> int:
    """Return the number of workers that the cluster and ``most`` allow; fewer give the same result.

    ``who`` names the section of the recipe in the ResourceError for a cluster without room for one.
    """
    fits = _fits(wanted, ray.cluster_resources())
    if not fits:
        raise ResourceError(
            f"{who}.resources asks for {wanted.cpus:g} CPUs and {wanted.gpus:g} GPUs a worker, and "
            f"the cluster has {ray.cluster_resources().get('CPU', 0):g} and "
            f"{ray.cluster_resources().get('GPU', 0):g}. Ask for less, or add a node."
        )
    return min(asked or fits, fits, most)


def _fits(wanted: Resources, available: dict[str, float]) -> int:
    shares = [
        available.get(kind, 0) / each for kind, each in (("CPU", wanted.cpus), ("GPU", wanted.gpus)) if each
    ]
    return int(min(shares, default=SLOTS))


def _expected_fault(error: Exception) -> str | None:
    """Return the text of an OperatorError that some worker raised, however deep Ray has wrapped it."""
    failures: dict[int, Any] = getattr(error, "worker_failures", {})
    for failure in failures.values():
        cause: BaseException | None = failure
        while cause is not None and not isinstance(cause, OperatorError):
            cause = getattr(cause, "_base_exc", None) or getattr(cause, "cause", None) or cause.__cause__
        if cause is not None:
            return str(cause)
    return None
