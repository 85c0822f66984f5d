"""Training without each fold on Ray Train's workers: as many for each fold as the cluster has room for."""

from __future__ import annotations

from operators.base import Resources
from operators.probe.communicator import SLOTS, Distributed
from operators.probe.ray_train import count_workers, run_workers
from operators.weights.cross_fit import FoldJob


def count_workers_per_fold(job: FoldJob, resources: Resources) -> int:
    """Return how many workers can share the training without one fold; below 2 a task for each fold does as
    well.
    """
    n_folds = job.trust.n_folds
    most = n_folds * min(SLOTS, len(job.reader.shards))
    return count_workers("operators.weights", resources, None, most) // n_folds


def train_folds(job: FoldJob, resources: Resources, workers: int) -> None:
    """Train all folds at once, ``workers`` for each; leaves the bytes that one task for each fold leaves.

    A lost worker starts them over, once. Raises OperatorError where a worker found rows or model unusable.
    """

    def work() -> float:
        communicator = Distributed(job.trust.n_folds)
        return job(communicator.group, communicator)

    run_workers(
        work,
        name="weights",
        storage=job.state / "ray_train",
        n_workers=workers * job.trust.n_folds,
        resources=resources,
        max_failures=1,
    )
