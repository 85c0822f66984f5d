"""Hosts whose disk is full, or that start no worker, are named with what to do."""

from __future__ import annotations

import errno
import json
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import ray

from connectors.storage.beneath import new_file_beneath
from engine.core.errors import InfeasibleError, is_refused, system_error
from engine.execution import node_health
from engine.execution.node_health import Disk, disks_of_nodes, noted_disks, own_disk, trouble
from engine.execution.ray_executor import dying_workers


def test_a_full_disk_and_a_silent_host_are_named() -> None:
    well = Disk("one", "/tmp", 10**10, 10**11)
    said = trouble([well, Disk("two", "/scratch", 3 << 20, 2000 << 20), Disk("three")])
    assert "disk of host two is full: 3 of 2,000 MiB are free in /scratch. Free space there" in said
    assert "Host three starts no worker process any more" in said
    assert "one" not in said.replace("none", "")
    assert trouble([well]) == ""


def test_this_host_says_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    found = own_disk()
    assert found.host == socket.gethostname()
    assert found.folder == tempfile.gettempdir()
    assert 0 < found.free <= found.total

    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    assert own_disk().total > 0


@contextmanager
def dashboard(answer: Any) -> Iterator[str]:
    """A server that gives one answer to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing of a request."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("summary", "found"),
    [
        (
            [
                {
                    "hostname": "two",
                    "disk": {"/": {"free": 9, "total": 90}, "/tmp/ray": {"free": 1, "total": 50}},
                }
            ],
            {"two": Disk("two", "/tmp/ray", 1, 50)},
        ),
        ([{"hostname": "three"}], {}),
        ([{"disk": {"/": 1}}], {}),
        ("another form", {}),
    ],
)
def test_what_the_dashboard_has_noted(
    summary: Any, found: dict[str, Disk], monkeypatch: pytest.MonkeyPatch
) -> None:
    with dashboard({"data": {"summary": summary}}) as address:
        monkeypatch.setattr(ray._private.worker, "get_dashboard_url", lambda: address)
        assert noted_disks() == found
    assert noted_disks() == {}


def test_a_task_that_no_node_has_answered_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would start as soon as the node is well again, when nobody waits for it."""
    cancelled: list[str] = []
    nodes = [{"NodeID": name, "NodeManagerHostname": name, "Alive": True} for name in ("one", "two")]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(node_health, "_ask", lambda node: f"task of {node}")
    monkeypatch.setattr(ray, "wait", lambda tasks, **_: (tasks[:1], tasks[1:]))
    monkeypatch.setattr(ray, "get", lambda task: Disk("one", "/tmp", 1, 2))
    monkeypatch.setattr(ray, "cancel", lambda task, force: cancelled.append(task))
    monkeypatch.setattr(node_health, "noted_disks", dict)
    assert disks_of_nodes() == [Disk("one", "/tmp", 1, 2), Disk("two")]
    assert cancelled == ["task of two"]


def die() -> None:
    with dying_workers("probe"):
        raise ray.exceptions.WorkerCrashedError


@pytest.mark.parametrize(
    ("disk", "words"),
    [
        (Disk("one", "/tmp", 10**10, 10**11), "Usually memory ran out: lower source.shard_bytes"),
        (Disk("two", "/tmp", 0, 3 << 30), "The disk of host two is full: 0 of 3,072 MiB are free in /tmp"),
    ],
)
def test_workers_that_die_have_a_reason(disk: Disk, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_health, "disks_of_nodes", lambda: [disk])
    with pytest.raises(
        InfeasibleError, match=rf"operators\.probe: its workers keep dying.*\. {words}"
    ) as caught:
        die()
    assert ("memory" in str(caught.value)) == (disk.host == "one")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded", "/work/out/x"),
        FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp', '/work']"),
    ],
)
def test_a_full_disk_names_host_and_room(
    error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    said = str(system_error(error))
    assert said.startswith(f"A disk of host {socket.gethostname()} is full: ")
    assert f"MiB are free in {tmp_path}" in said
    assert "Free space there" in said
    assert "the same command continues" in said


def test_a_full_output_is_named(tmp_path: Path) -> None:
    """A write to an open file names none; the room of other disks was told."""
    file = tmp_path / "part.json"
    with pytest.raises(OSError, match="No space") as caught, new_file_beneath(tmp_path, file):
        raise OSError(errno.ENOSPC, "No space left on device")
    said = str(system_error(caught.value))
    assert f"No space left on device: {file}. " in said
    assert f"MiB are free in {tmp_path}, " in said
    unnamed = OSError(errno.ENOSPC, "No space left on device")
    assert f"MiB are free in {tmp_path}, " in str(system_error(unnamed, str(tmp_path)))


def test_a_missing_right_is_no_full_disk() -> None:
    said = str(system_error(PermissionError(errno.EACCES, "Permission denied", "/work/out")))
    assert said.startswith("The operating system refuses: Permission denied: /work/out.")


def test_too_many_open_files_name_the_limit_and_are_no_bad_input() -> None:
    error = OSError(errno.EMFILE, "Too many open files")
    assert is_refused(error)
    found = system_error(error)
    assert isinstance(found, InfeasibleError)
    assert "Raise the limit there (`ulimit -n`, now " in str(found)
