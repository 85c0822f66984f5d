"""Ends this process's connections to hosts that Ray has given up.

Ray takes a host for dead that has been silent for about a minute. What waits for an answer from there learns
it from the connection alone: gRPC asks whether the other side is alive after five minutes, and waits two
minutes for that. Ray's servers would close the connection if it asked more often, and end every task that
takes longer. So the connections are ended here, and Ray gives the work to other hosts at once.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

POLL_SECONDS = 5.0
OPEN_FILES = Path("/proc/self/fd")
"""Only Linux lists a process's open files here; elsewhere nothing is ended."""
MAPPED = "::ffff:"
"""Prefix of an IPv4 address on a socket of IPv6."""
_log = logging.getLogger("rowsieve")


@contextmanager
def ending_connections_to_lost_hosts(poll_seconds: float = POLL_SECONDS) -> Iterator[None]:
    """Watch the nodes of the cluster that this process has joined while the block runs."""
    over = Event()
    watcher = Thread(target=_watch, args=(over, poll_seconds), name="lost-hosts", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(poll_seconds)  # it may wait for an answer of a head that is away


def _watch(over: Event, poll_seconds: float) -> None:
    seen: set[str] | None = None
    while True:
        with suppress(Exception):  # the head is away for a while; Ray tells the run if it stays away
            seen = _look(seen)
        if over.wait(poll_seconds):
            return


def _look(seen: set[str] | None) -> set[str]:
    """End connections to hosts that have died since the last look; return the ids of all dead nodes.

    At the first look, ``seen`` is None, and no death is news.
    """
    import ray

    nodes = ray.nodes()
    dead = {node["NodeID"] for node in nodes if not node["Alive"]}
    lost = lost_addresses(nodes, dead if seen is None else seen)
    if lost:
        head = ray.get_runtime_context().gcs_address.rpartition(":")[0]
        lost -= {head, ray.util.get_node_ip_address()}
    if lost and (ended := end_connections(lost)):
        _log.info("Ray has given up %s; %d connections ended.", ", ".join(sorted(lost)), ended)
    return dead


def lost_addresses(nodes: Sequence[Mapping[str, Any]], seen: Collection[str]) -> set[str]:
    """Return the addresses of hosts that have died, with no other node that is alive.

    Parameters
    ----------
    nodes
        From ``ray.nodes()``.
    seen
        Ids of nodes whose death is no news.

    """
    alive = {node["NodeManagerAddress"] for node in nodes if node["Alive"]}
    dead = {node["NodeManagerAddress"] for node in nodes if not node["Alive"] and node["NodeID"] not in seen}
    return dead - alive


def end_connections(addresses: Collection[str]) -> int:
    """End the connections of this process to the addresses, as if the other side had; return how many."""
    entries = os.listdir(OPEN_FILES) if OPEN_FILES.exists() else []
    return sum(_ended(int(entry), addresses) for entry in entries)


def _ended(descriptor: int, addresses: Collection[str]) -> bool:
    """Return whether an open file was a connection to one of the addresses, which is ended then."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6):
                return False
            if connection.getpeername()[0].removeprefix(MAPPED) not in addresses:
                return False
            connection.shutdown(socket.SHUT_RDWR)
            return True
    except OSError:  # not connected, or closed by now
        return False
