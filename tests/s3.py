"""An S3 server on this machine, spoken to over HTTP: the test of every storage but the local disk."""

from __future__ import annotations

import itertools
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

USER, SECRET, REGION = "rowsieve-tester", "not-a-real-secret", "us-east-1"
CODES = {403: "AccessDenied", 503: "SlowDown"}
BROKEN = -1
"""In place of a status: the answer is closed in the middle of its body."""
_numbers = itertools.count()


class Faults:
    """The server's application; ``rule`` may answer in its place with a status."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self.rule: Callable[[str, str], int | None] | None = None
        self.watcher: Callable[[int], None] | None = None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        status = self.rule(environ["REQUEST_METHOD"], environ["PATH_INFO"]) if self.rule else None
        if status == BROKEN:
            return half(environ, b"".join(self._application(environ, start_response)))
        if status is None:
            return [self._seen(part) for part in self._application(environ, start_response)]
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response(f"{status} {CODES[status]}", [("Content-Type", "application/xml")])
        return [f"<Error><Code>{CODES[status]}</Code></Error>".encode()]

    def _seen(self, part: bytes) -> bytes:
        if self.watcher:
            self.watcher(len(part))
        return part

    @contextmanager
    def watching(self, watcher: Callable[[int], None]) -> Iterator[None]:
        """While the block runs, ``watcher`` hears how many bytes each answer has."""
        self.watcher = watcher
        try:
            yield
        finally:
            self.watcher = None

    @contextmanager
    def answering(self, rule: Callable[[str, str], int | None]) -> Iterator[None]:
        """While the block runs, ``rule(method, path)`` names the status of an answer, or None to serve it."""
        self.rule = rule
        try:
            yield
        finally:
            self.rule = None


def half(environ: dict[str, Any], body: bytes) -> Iterator[bytes]:
    """Yield half of a body, and close the connection."""
    yield body[: len(body) // 2]
    hang_up(environ)


def hang_up(environ: dict[str, Any]) -> None:
    """Close the connection below the server, and leave the request."""
    with suppress(OSError):
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError


@dataclass(frozen=True)
class S3Server:
    """Address of the server, and the environment variables that its clients need."""

    endpoint: str
    environment: dict[str, str] = field(repr=False)
    faults: Faults

    def client(self) -> Any:
        """A boto3 client."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=USER,
            aws_secret_access_key=SECRET,
            region_name=REGION,
        )

    def bucket(self) -> str:
        """A new, empty bucket."""
        name = f"bucket-{next(_numbers)}"
        self.client().create_bucket(Bucket=name)
        return name

    def copy(self, bucket: str, prefix: str, target: str) -> None:
        """Copy the objects below a prefix of a bucket to below another one, without requests."""
        for name, entry in list(_backend().get_bucket(bucket).keys.items()):
            if name.startswith(f"{prefix}/"):
                _backend().put_object(bucket, target + name[len(prefix) :], entry.value)

    def uri(self, bucket: str, path: str = "") -> str:
        """URI that needs no environment: keys and endpoint stand in it."""
        host = self.endpoint.removeprefix("http://")
        return f"s3://{USER}:{SECRET}@{bucket}/{path}?endpoint_override={host}&scheme=http&region={REGION}"


def _backend() -> Any:
    """Return the store behind the server, which is in this process: hundreds of requests take seconds."""
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server in a thread of this process, on a free port; other processes reach it too."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    faults = Faults(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, faults, threaded=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    environment = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": USER,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    try:
        yield S3Server(endpoint, environment, faults)
    finally:
        server.shutdown()
        thread.join()
