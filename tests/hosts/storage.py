"""The storage host: an S3 server in memory, its faults, and what it has been asked for.

It listens at its host's address, and on a socket that the test process has bound outside before: by the
first the hosts reach it, by the second the test, also while links are cut. Only requests by the first have
faults. Commands come as JSON lines on its input, answers go to its output.

    python -m tests.hosts.storage ADDRESS PORT SOCKET
"""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Any

from tests.hosts.bed import REPOSITORY, Host
from tests.s3 import CODES, REGION, SECRET, USER, Faults, S3Server, half, hang_up

PORT = 9000
BUSY, STALLED, TRUNCATED, UNANSWERED = "busy", "stalled", "truncated", "unanswered"
"""Faults: answered by 503; answered late; closed in the middle of the body; a PUT whose answer is lost."""
STALL_SECONDS = 5.0


class Requests:
    """Requests of the hosts, counted, and the faults drawn for some of them."""

    def __init__(self, application: Any) -> None:
        self._application, self._lock = application, Lock()
        self.puts: list[tuple[float, str, str]] = []
        """Time, path and client of every PUT that was done."""
        self.shares: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self._random = random.Random(0)

    def set(self, shares: dict[str, float], seed: int) -> None:
        """Set the share of requests that meets each fault, and count anew."""
        with self._lock:
            self.shares, self.counts, self._random = shares, {"requests": 0}, random.Random(seed)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        fault = self._fault(environ["REQUEST_METHOD"])
        if fault == BUSY:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response(f"503 {CODES[503]}", [("Content-Type", "application/xml")])
            return [f"<Error><Code>{CODES[503]}</Code></Error>".encode()]
        if fault == STALLED:
            time.sleep(STALL_SECONDS)
        answers: list[tuple[str, list[tuple[str, str]]]] = []
        body = b"".join(
            self._application(environ, lambda status, headers, *_: answers.append((status, headers)))
        )
        status, headers = answers[-1]
        if environ["REQUEST_METHOD"] == "PUT" and status.startswith("2"):
            with self._lock:
                self.puts.append((time.time(), environ["PATH_INFO"], environ["REMOTE_ADDR"]))
        if fault == UNANSWERED:
            hang_up(environ)
        start_response(status, headers)
        return half(environ, body) if fault == TRUNCATED and len(body) > 1 else [body]

    def _fault(self, method: str) -> str:
        with self._lock:
            self.counts["requests"] = self.counts.get("requests", 0) + 1
            allowed = {BUSY: True, STALLED: True, TRUNCATED: method == "GET", UNANSWERED: method == "PUT"}
            for name, share in self.shares.items():
                if allowed[name] and self._random.random() < share:
                    self.counts[name] = self.counts.get(name, 0) + 1
                    return name
        return ""


def main(address: str, port: int, outside: int) -> None:
    """Serve until the input ends."""
    import logging

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    application = DomainDispatcherApplication(create_backend_app)
    requests = Requests(application)
    make = {"threaded": True}
    servers = [
        make_server(address, port, requests, **make),
        make_server("127.0.0.1", 0, application, fd=outside, **make),
    ]
    for server in servers:
        Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if "shares" in command:
            requests.set(command["shares"], command["seed"])
        answer = {"counts": requests.counts, "puts": requests.puts[command.get("since", 0) :]}
        print(json.dumps(answer), flush=True)


@dataclass
class Storage:
    """The running server, as the test process sees it."""

    host: Host
    s3: S3Server
    """For the test process alone."""
    process: subprocess.Popen[Any] = field(repr=False)
    environment: dict[str, str] = field(repr=False)
    """For clients on hosts."""
    _lock: Any = field(default_factory=Lock, repr=False)

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command and return the answer."""
        assert self.process.stdin
        assert self.process.stdout
        with self._lock:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
            found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def puts(self, since: int = 0) -> list[tuple[float, str, str]]:
        """Time, path and client of every PUT of a host that was done, from the ``since``-th on."""
        return [(when, path, client) for when, path, client in self.ask(since=since)["puts"]]

    @contextmanager
    def faults(self, seed: int, **shares: float) -> Iterator[None]:
        """While the block runs, these shares of the hosts' requests meet a fault."""
        self.ask(shares=shares, seed=seed)
        try:
            yield
        finally:
            self.ask(shares={}, seed=0)

    def counts(self) -> dict[str, int]:
        """Requests and faults since the last call of :meth:`faults`."""
        found: dict[str, int] = self.ask(since=10**9)["counts"]
        return found


@contextmanager
def storage_on(host: Host) -> Iterator[Storage]:
    """Serve S3 on a host, at port 9000."""
    with socket.socket() as outside:
        outside.bind(("127.0.0.1", 0))
        outside.listen(64)
        words = [sys.executable, "-m", "tests.hosts.storage", host.address, str(PORT), str(outside.fileno())]
        environment = {"PYTHONPATH": str(REPOSITORY)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "pass_fds": [outside.fileno()]}
        started = host.start(words, environment, "/tmp/storage.log", **pipes)
        number = outside.getsockname()[1]
    try:
        assert started.process.stdout
        said = started.process.stdout.readline()
        assert said == b'"ready"\n', started.output
        endpoint = f"http://127.0.0.1:{number}"
        yield Storage(
            host,
            S3Server(endpoint, environment_for(endpoint), Faults(None)),
            started.process,
            environment_for(f"http://{host.address}:{PORT}"),
        )
    finally:
        started.end()
        for stream in (started.process.stdin, started.process.stdout):
            if stream:
                stream.close()


def environment_for(endpoint: str) -> dict[str, str]:
    """Variables with which clients find the server at an endpoint."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": USER,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
