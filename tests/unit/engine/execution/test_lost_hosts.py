"""Connections to hosts that Ray has given up end at once; all others stay."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from engine.execution.lost_hosts import end_connections, lost_addresses

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
