"""Names the hosts of the Ray cluster on which work cannot go on: a full disk, or no new worker process.

A worker whose disk is full often dies before it can say so, since Ray cannot write the worker's log. The
driver then only learns that workers have died. It asks every node for its disk by a task of its own.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from operators.bounded_json import parse_json

LEAST_FREE = 64 * 2**20
"""Bytes of free space in a host's temporary folder below which its disk counts as full."""
ANSWER_SECONDS = 30.0
DASHBOARD_SECONDS = 5.0
MAX_BYTES = 64 * 2**20
"""Bytes of the dashboard's answer that are read."""


@dataclass(frozen=True)
class Disk:
    """State of a host's temporary folder, in bytes; without a total the host could not say it."""

    host: str
    folder: str = ""
    free: int = 0
    total: int = 0


def own_disk() -> Disk:
    """Return the state of this host's temporary folder."""
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError:  # there is no folder that takes a file
        folder = "/tmp"  # noqa: S108
    usage = shutil.disk_usage(folder)
    return Disk(socket.gethostname(), folder, usage.free, usage.total)


def disks_of_nodes(seconds: float = ANSWER_SECONDS) -> list[Disk]:
    """Ask every node that is alive for its disk, by a task on it.

    For a node that starts no worker, the fullest disk that Ray's dashboard has noted of it is taken; if there
    is none, the result has no total.
    """
    asked = {_ask(node["NodeID"]): str(node["NodeManagerHostname"]) for node in ray.nodes() if node["Alive"]}
    ready, waiting = ray.wait(list(asked), num_returns=len(asked), timeout=seconds)
    for task in waiting:  # or it would start once the node is well again
        ray.cancel(task, force=True)
    found = [_answer(task, host) if task in ready else Disk(host) for task, host in asked.items()]
    silent = [disk.host for disk in found if not disk.total]
    noted = noted_disks() if silent else {}
    return [noted.get(disk.host, disk) if not disk.total else disk for disk in found]


def noted_disks() -> dict[str, Disk]:
    """Return the fullest disk of each host as Ray's dashboard has it; empty without a dashboard."""
    found: dict[str, Disk] = {}
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, ImportError):
        # Private, like the form of the answer: with another Ray there may be none.
        from ray._private.authentication.http_token_authentication import get_auth_headers_if_auth_enabled

        url = f"http://{ray._private.worker.get_dashboard_url()}/nodes?view=summary"
        request = urllib.request.Request(url, headers=get_auth_headers_if_auth_enabled({}))
        with urllib.request.urlopen(request, timeout=DASHBOARD_SECONDS) as answer:  # noqa: S310  # nosec B310
            summary = parse_json(answer.read(MAX_BYTES), url)["data"]["summary"]
        for node in summary:
            disks = [
                Disk(node["hostname"], folder, int(usage["free"]), int(usage["total"]))
                for folder, usage in (node.get("disk") or {}).items()
            ]
            if disks:
                found[node["hostname"]] = min(disks, key=lambda disk: disk.free)
    return found


def _ask(node: str) -> Any:
    here = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    return ray.remote(num_cpus=0, max_retries=0)(own_disk).options(scheduling_strategy=here).remote()


def _answer(task: Any, host: str) -> Disk:
    try:
        found: Disk = ray.get(task)
    except ray.exceptions.RayError:
        return Disk(host)
    return found


def trouble(disks: Sequence[Disk], least_free: int = LEAST_FREE) -> str:
    """Return sentences that name the hosts whose disk is full, or that start no worker; empty without any."""
    found = []
    for disk in disks:
        if not disk.total:
            found.append(
                f"Host {disk.host} starts no worker process any more: look at the disk of its temporary "
                f"folder (df -h /tmp) and at its memory."
            )
        elif disk.free < least_free:
            found.append(
                f"The disk of host {disk.host} is full: {disk.free >> 20:,} of {disk.total >> 20:,} MiB are "
                f"free in {disk.folder}. Free space there, or start its Ray node with --temp-dir and TMPDIR "
                f"on a larger disk."
            )
    return " ".join(found)


def trouble_of_cluster() -> str:
    """Return the result of :func:`trouble` for the cluster that this process has joined; empty if unknown."""
    try:
        return trouble(disks_of_nodes())
    except (ray.exceptions.RayError, OSError, RuntimeError):
        return ""
