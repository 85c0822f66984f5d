"""EOS around the probe on Ray Train's workers: all iterations in one group of them."""

from __future__ import annotations

from operators.eos.probe_job import ProbeJob, run_job
from operators.probe.communicator import SLOTS, Distributed
from operators.probe.ray_train import count_workers, run_workers


def run_on_ray(job: ProbeJob) -> dict[str, float]:
    """As ``run_job``; a lost worker starts it over, once, with the same result.

    Raises
    ------
    OperatorError
        The cluster has no room for a worker, or a worker found rows or model unusable.
    """
    probe = job.probe
    most = min(SLOTS, len(job.reader.shards))
    return run_workers(
        lambda: run_job(job, Distributed()),
        name="eos",
        storage=job.state / "ray_train",
        n_workers=count_workers("operators.probe", probe.resources, probe.workers, most),
        resources=probe.resources,
        max_failures=1,
    )
