"""Hosts whose clocks are ten minutes apart: runs and leases rest on no host's clock but the storage's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.hosts.cluster import CLIENT, HEAD, STORAGE, WORKERS, cluster
from tests.hosts.faults import Bench, make_bench, race, run_with

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        find_spec("libfaketime") is None, reason="needs libfaketime, which make hosts installs"
    ),
]
APART = 600
"""Seconds."""
CLOCKS = {WORKERS[0]: APART, WORKERS[1]: -APART, CLIENT: APART}
SETS = {"another driver fast": CLOCKS, "another driver slow": CLOCKS | {CLIENT: -APART}}


@pytest.fixture(scope="module", params=SETS)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The cluster whose workers' clocks are wrong, with a client whose clock is wrong as well."""
    with cluster(clocks=SETS[request.param]) as made:
        yield make_bench(made, tmp_path_factory.mktemp("bench"))


def test_the_clocks_are_apart(bench: Bench) -> None:
    hosts = bench.cluster.hosts
    for name in (HEAD, STORAGE, *WORKERS, CLIENT):
        told = float(hosts[name].run(["date", "+%s.%N"]))
        assert told - time.time() == pytest.approx(hosts[name].clock, abs=10)


def test_a_run_has_the_same_bytes(bench: Bench) -> None:
    for _ in range(2):
        run_with(bench, "workers' clocks 20 minutes apart", 0, lambda: None)


def test_a_lease_is_not_taken_over_because_of_a_wrong_clock(bench: Bench) -> None:
    for _ in range(2):
        race(bench, f"two drivers whose clocks are {APART} s apart")
