"""Tables in an object store: read, and written to, over HTTP."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests import tables
from tests.s3 import REGION, SECRET, USER
from tests.unit.engine.publish.test_export import Target, Version

pytestmark = pytest.mark.slow
pytest.importorskip("moto")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server in a process of its own: deltalake keeps Python's lock while it waits for an answer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        for _ in range(300):
            with suppress(OSError), urlopen(url, timeout=1):
                break
            time.sleep(0.1)
        yield url
        server.terminate()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    import boto3

    settings = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": USER,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ALLOW_HTTP": "true",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3").create_bucket(Bucket="lake")
    return "lake"


@pytest.mark.parametrize("name", ["delta", "lance", "iceberg"])
def test_a_version_goes_there_and_comes_back(name: str, bucket: str, endpoint: str, tmp_path: Path) -> None:
    target, old, new = Target(name, tmp_path), Version(tmp_path, "v1", 5), Version(tmp_path, "v2", 8)
    if target.catalog is None:
        target.path = f"s3://{bucket}/{name}/people"
    else:
        target.catalog |= {"warehouse": f"s3://{bucket}/{name}", "s3.endpoint": endpoint}
    target.made = tables.MadeTable(name, target.path, target.made.options)
    assert target.export(old, "create").written
    assert target.ids() == [*range(5)]
    assert target.export(new, "overwrite").written
    assert not target.export(new, "overwrite").written
    assert target.ids() == [*range(8)]
