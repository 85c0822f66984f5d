"""Hosts die, links are cut, storage and MLflow fail, disks fill, drivers race: the same bytes each time."""

from __future__ import annotations

import signal
import time

import pytest

from engine.storage.lease import STALE_SECONDS
from tests.hosts.bed import Host
from tests.hosts.cluster import CLIENT, HEAD, MLFLOW, RUN_SECONDS, STORAGE, WORKERS, Cluster
from tests.hosts.faults import LOCAL, Bench, Trial, make_bench, race, record, run_with
from tests.hosts.storage import BUSY, STALLED, TRUNCATED, UNANSWERED

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(1800)]
MOMENTS = 3
"""Moments of each fault."""


@pytest.fixture(scope="module")
def bench(many: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return make_bench(many, tmp_path_factory.mktemp("bench"))


def cut_for(host: Host, seconds: float) -> None:
    """Cut the link of a host for some seconds."""
    host.cut()
    time.sleep(seconds)
    host.mend()


@pytest.mark.parametrize("how", ["host off", "link cut for good"])
def test_a_worker_dies(bench: Bench, how: str) -> None:
    for number, moment in enumerate(bench.moments(seed=1, count=MOMENTS)):
        name = WORKERS[number % 2]
        strike = bench.cluster.hosts[name].kill if how == "host off" else bench.cluster.hosts[name].cut
        run_with(
            bench,
            f"worker: {how}",
            moment,
            strike,
            after=lambda name=name: bench.cluster.replace_worker(name),
        )


@pytest.mark.parametrize("seconds", [5, 30, 120])
def test_the_link_of_a_worker_is_cut_for_a_while(bench: Bench, seconds: int) -> None:
    for number, moment in enumerate(bench.moments(seed=seconds, count=MOMENTS)):
        host = bench.cluster.hosts[WORKERS[number % 2]]
        run_with(
            bench, f"link of a worker cut for {seconds} s", moment, lambda host=host: cut_for(host, seconds)
        )
        bench.cluster.ensure_workers()


@pytest.mark.parametrize("seconds", [5, 20])
def test_the_head_does_not_reach_the_storage_for_a_while(bench: Bench, seconds: int) -> None:
    head, storage = bench.cluster.head, bench.cluster.hosts[STORAGE]
    for moment in bench.moments(seed=40 + seconds, count=MOMENTS):

        def strike() -> None:
            head.lose_packets_to(storage)
            time.sleep(seconds)
            head.reach_again(storage)

        run_with(bench, f"head cut from the storage for {seconds} s", moment, strike)


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("503 for a tenth of the requests", {BUSY: 0.1}),
        ("a twentieth of the answers closed mid-body", {TRUNCATED: 0.05}),
        ("answer lost after a tenth of the PUTs", {UNANSWERED: 0.1}),
        ("one in a hundred answered 5 s late", {STALLED: 0.01}),
        ("all four", {BUSY: 0.1, STALLED: 0.005, TRUNCATED: 0.03, UNANSWERED: 0.05}),
    ],
)
def test_the_storage_fails_now_and_then(bench: Bench, name: str, shares: dict[str, float]) -> None:
    for seed in range(2):
        with bench.cluster.storage.faults(seed, **shares):
            trial = run_with(bench, f"storage: {name}", 0, lambda: None)
            counts = bench.cluster.storage.counts()
        trial.notes = f"{sum(counts.get(fault, 0) for fault in shares)} of {counts['requests']} requests"
        assert all(counts[fault] for fault in shares)


def test_mlflow_is_gone(bench: Bench) -> None:
    for moment in [0, *bench.moments(seed=7, count=MOMENTS - 1)]:
        host = bench.cluster.hosts[MLFLOW]
        run_with(
            bench, "MLflow's host cut off", moment, host.cut, after=host.mend, tracking={"enabled": True}
        )


def test_the_disk_of_a_worker_is_full(bench: Bench) -> None:
    """The run may end, and then names the host; the same command goes on once there is room."""
    for number, moment in enumerate(bench.moments(seed=8, count=MOMENTS)):
        host = bench.cluster.hosts[WORKERS[number % 2]]
        trial = run_with(
            bench, "disk of a worker full", moment, host.fill_disk, after=host.empty_disk, allowed=(2, 4)
        )
        if trial.repeated:
            assert f"host {host.name} is full" in trial.notes
            assert "MiB are free in /tmp" in trial.notes
            assert "memory" not in trial.notes
        bench.cluster.ensure_workers()


ENDS_SECONDS = 60.0
"""Longest time until a driver that has lost its lease has ended; its heartbeat finds it out within 10 s."""


def test_two_drivers_race_for_one_output(bench: Bench) -> None:
    for _ in range(MOMENTS):
        race(bench, "two drivers at once")


def test_a_paused_driver_wakes_after_its_lease_was_taken_over(bench: Bench) -> None:
    """Stopped on the head, silent for longer than a minute, woken while another host writes, or after it."""
    for number, moment in enumerate(bench.moments(seed=9, count=MOMENTS)):
        output, started = bench.output(), time.monotonic()
        first = bench.start(output, HEAD)
        bench.wait_for(output, moment, first)
        first.signal(signal.SIGSTOP)
        assert first.process.poll() is None
        kept = len(bench.store_puts(output))
        early = bench.start(output, CLIENT, run=LOCAL)
        assert early.wait(RUN_SECONDS) == 5
        time.sleep(STALE_SECONDS + 5)
        second = bench.start(output, CLIENT, run=LOCAL)
        if number % 2:
            second.finish(RUN_SECONDS)
        else:
            bench.wait_for(output, kept + 3, second)
        first.signal(signal.SIGCONT)
        woken = time.monotonic()
        assert first.wait(ENDS_SECONDS) == 5, first.output
        ended = time.monotonic() - woken
        assert "taken over by" in first.output
        assert "Traceback" not in first.output
        second.finish(RUN_SECONDS)
        notes = f"ended {ended:.1f} s after it was woken"
        record(bench, Trial("driver paused, lease taken over", kept, notes=notes), output, started)
