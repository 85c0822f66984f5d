"""Training of all folds on the workers of Ray Train, as many for each fold as the cluster has room for."""

from __future__ import annotations

from operators.base import Resources
from operators.communicator import SLOTS, Distributed
from operators.probe.ray_train import count_workers, run_workers
from operators.weights.cross_fit import FoldJob


def count_workers_per_fold(job: FoldJob, resources: Resources) -> int:
    """Return how many workers can share the training of one fold. With fewer than 2, use a task per fold."""
    n_folds = job.trust.n_folds
    max_workers = n_folds * min(SLOTS, len(job.reader.shards))
    return count_workers("operators.weights", resources, None, max_workers) // n_folds


def train_folds(job: FoldJob, resources: Resources, workers: int) -> None:
    """Train all folds at once with ``workers`` workers each. The models equal those of one task per fold.

    After a lost worker the training is repeated once. Raises OperatorError where rows or model are unusable.
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
