"""A head node of Ray with its dashboard and token authentication, as a process of its own."""

from __future__ import annotations

import os
import random
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.core.errors import RowsieveError
from engine.jobs import list_jobs

TOKEN = secrets.token_hex(32)
PATIENCE = 180.0
PORTS = range(20000, 32000)
"""Neither those that Ray's workers take by themselves nor those that the system hands out."""
NAMES = ("port", "dashboard-port", "dashboard-agent-listen-port", "dashboard-agent-grpc-port")
NAMES += ("ray-client-server-port", "metrics-export-port", "runtime-env-agent-port")


@dataclass
class Head:
    """A cluster of one node."""

    address: str
    folder: Path
    """Where Ray keeps its sessions, with their logs."""


def free_ports(count: int) -> list[int]:
    """Different ports on which nobody listens now."""
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe:
            if port not in found and probe.connect_ex(("127.0.0.1", port)):
                found.append(port)
    return found


@contextmanager
def running_head(environment: Mapping[str, str] | None = None, umask: int = -1) -> Iterator[Head]:
    """Start the node with more variables, and stop it after the block."""
    ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
    here = Path(sys.executable).parent
    command = [str(here / "ray"), "start", "--head", "--block", "--dashboard-host=127.0.0.1", "--num-cpus=4"]
    command += ["--object-store-memory=150000000", "--disable-usage-stats"]
    command += [f"--{name}={port}" for name, port in ports.items()]
    address = f"http://127.0.0.1:{ports['dashboard-port']}"
    with tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as folder:
        variables = {
            **os.environ,
            **(environment or {}),
            # Started by its path: the job's own path does not lead to this environment's interpreter.
            "PATH": ":".join(path for path in os.environ["PATH"].split(":") if Path(path) != here),
            "RAY_TMPDIR": folder,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": TOKEN,
        }
        with (Path(folder) / "head.log").open("w") as log:
            process = subprocess.Popen(command, env=variables, stdout=log, stderr=log, umask=umask)
        try:
            _wait_until_up(address, process, Path(log.name))
            yield Head(address, Path(folder))
        finally:
            process.terminate()
            process.wait(60)


def _wait_until_up(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", TOKEN)
        while True:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, "the head node does not come up"
            try:
                list_jobs(address)
            except RowsieveError:
                time.sleep(0.5)
            else:
                return
