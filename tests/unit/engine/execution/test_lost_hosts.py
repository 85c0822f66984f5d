"""Connections to hosts that Ray has given up end at once; all others stay."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import Event
from typing import Any

import pytest

from engine.execution import lost_hosts
from engine.execution.cluster import executor
from engine.execution.lost_hosts import end_connections, ending_connections_to_lost_hosts, lost_addresses
from engine.recipe.recipe import RunSection

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="open files are listed on Linux alone")
LOST, HERE = "127.0.0.77", "127.0.0.78"
"""Addresses of this machine that nothing else uses."""


def node(name: str, address: str, alive: bool) -> dict[str, Any]:
    return {"NodeID": name, "NodeManagerAddress": address, "Alive": alive}


@pytest.fixture
def connections() -> Iterator[dict[str, socket.socket]]:
    """Connections to both addresses, and one from a socket of IPv6."""
    with ExitStack() as stack:
        found = {}
        for name, address, target in (
            ("lost", LOST, LOST),
            ("here", HERE, HERE),
            ("v6", LOST, "::ffff:" + LOST),
        ):
            server = stack.enter_context(socket.create_server((address, 0)))
            client = stack.enter_context(socket.create_connection((target, server.getsockname()[1])))
            stack.enter_context(server.accept()[0])
            client.settimeout(0.2)
            found[name] = client
        yield found


def test_only_connections_to_lost_hosts_end(connections: dict[str, socket.socket]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    assert end_connections({LOST}) == 2
    assert connections["lost"].recv(1) == b""
    assert connections["v6"].recv(1) == b""
    with pytest.raises(TimeoutError):
        connections["here"].recv(1)
    assert len(os.listdir("/proc/self/fd")) == before


def test_nothing_ends_without_a_lost_host(connections: dict[str, socket.socket]) -> None:
    assert end_connections(set()) == 0
    with pytest.raises(TimeoutError):
        connections["lost"].recv(1)


def test_a_host_is_lost_once_unless_another_node_of_it_is_alive() -> None:
    nodes = [node("a", "10.0.0.1", True), node("b", "10.0.0.2", False), node("c", "10.0.0.3", False)]
    assert lost_addresses(nodes, set()) == {"10.0.0.2", "10.0.0.3"}
    assert lost_addresses(nodes, {"b"}) == {"10.0.0.3"}
    assert lost_addresses([*nodes, node("d", "10.0.0.3", True)], set()) == {"10.0.0.2"}


HEAD = "10.0.0.1"


def watched(
    answers: Sequence[list[dict[str, Any]] | Exception], monkeypatch: pytest.MonkeyPatch
) -> list[set[str]]:
    """Return the addresses to which connections were ended while Ray gave these answers, one at a look."""
    import ray

    left, over, ended = list(answers), Event(), list[set[str]]()

    def nodes() -> list[dict[str, Any]]:
        answer = left.pop(0)
        if not left:
            over.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(addresses: set[str]) -> int:
        ended.append(addresses)
        return 1

    monkeypatch.setattr(ray, "nodes", nodes)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "10.0.0.9")
    context = type("Context", (), {"gcs_address": f"{HEAD}:6379"})()
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(lost_hosts, "end_connections", end)
    with ending_connections_to_lost_hosts(0.001):
        assert over.wait(20)
    return ended


def test_deaths_are_noticed_once_also_after_ray_did_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [node("a", "10.0.0.2", True), node("b", "10.0.0.3", True)]
    one = [both[0], node("b", "10.0.0.3", False)]
    away = ConnectionError("the head is away")
    assert watched([away, both, away, one, one], monkeypatch) == [{"10.0.0.3"}]


def test_deaths_before_the_run_are_no_news_and_the_head_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [node("b", "10.0.0.3", False), node("h", HEAD, True), node("own", "10.0.0.9", True)]
    after = [before[0], node("h", HEAD, False), node("own", "10.0.0.9", False)]
    assert watched([before, after, after], monkeypatch) == []


@pytest.mark.parametrize(("joined", "watches"), [(True, True), (False, False)])
def test_a_cluster_that_the_caller_has_joined_is_watched(
    joined: bool, watches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Ray that the run itself has started has no other hosts."""
    import ray

    entered = []

    @contextmanager
    def watching() -> Iterator[None]:
        entered.append(True)
        yield

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: joined)
    monkeypatch.setattr(ray, "init", lambda **_: None)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(lost_hosts, "ending_connections_to_lost_hosts", watching)
    with executor(RunSection(executor="ray")):
        assert bool(entered) == watches
