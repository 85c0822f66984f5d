"""An S3 server on this machine, spoken to over HTTP: the test of every storage but the local disk."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

USER, SECRET, REGION = "winnow-tester", "not-a-real-secret", "us-east-1"
_numbers = itertools.count()


@dataclass(frozen=True)
class S3Server:
    """Where it listens, and what its clients are to have in their environment."""

    endpoint: str
    environment: dict[str, str] = field(repr=False, default_factory=dict)

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

    def uri(self, bucket: str, path: str = "") -> str:
        """URI that needs no environment: keys and endpoint stand in it."""
        host = self.endpoint.removeprefix("http://")
        return f"s3://{USER}:{SECRET}@{bucket}/{path}?endpoint_override={host}&scheme=http&region={REGION}"


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server in a thread of this process, on a free port; other processes reach it too."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
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
        yield S3Server(endpoint, environment)
    finally:
        server.stop()
