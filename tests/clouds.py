"""Azure's and Google's object stores on this machine, as far as there are emulators of them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import Request, urlopen

import pytest

from tests.data import free_port

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, the same everywhere."""
_numbers = itertools.count()


@contextmanager
def azurite() -> Iterator[str]:
    """Address of an Azurite (``npm install azurite``); skips where there is none."""
    program = _found("azurite-blob", "AZURITE", "npm install --global azurite")
    with TemporaryDirectory() as folder:
        port = free_port()
        words = [program, "--silent", "--skipApiVersionCheck", "--location", folder, "--blobPort", str(port)]
        with _running([*words, "--blobHost", "127.0.0.1"], port) as host:
            yield host


@contextmanager
def fake_gcs() -> Iterator[str]:
    """Address of a fake-gcs-server; skips where there is none."""
    program = _found("fake-gcs-server", "FAKE_GCS_SERVER", "a release of fsouza/fake-gcs-server")
    port = free_port()
    words = [program, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    with _running([*words, "-public-host", f"127.0.0.1:{port}"], port) as host:
        yield host


def new_container(host: str) -> str:
    """Name of a new, empty container of Azurite's."""
    name, version = f"box-{next(_numbers)}", "2021-08-06"
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    signed = "PUT" + 12 * "\n" + f"x-ms-date:{date}\nx-ms-version:{version}\n/{ACCOUNT}/{ACCOUNT}/{name}"
    digest = hmac.new(base64.b64decode(KEY), f"{signed}\nrestype:container".encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        "Content-Length": "0",
    }
    url = f"http://{host}/{ACCOUNT}/{name}?restype=container"
    urlopen(Request(url, method="PUT", headers=headers), timeout=10).close()
    return name


def new_bucket(host: str, files: dict[str, bytes]) -> str:
    """Name of a new bucket of fake-gcs-server's with these objects."""
    name = f"bucket-{next(_numbers)}"
    plain = {"Content-Type": "application/json"}
    body = json.dumps({"name": name}).encode()
    urlopen(Request(f"http://{host}/storage/v1/b?project=p", body, plain), timeout=10).close()
    for key, data in files.items():
        url = f"http://{host}/upload/storage/v1/b/{name}/o?uploadType=media&name={key}"
        urlopen(Request(url, data, {"Content-Type": "application/octet-stream"}), timeout=10).close()
    return name


def _found(program: str, variable: str, how: str) -> str:
    found = os.environ.get(variable) or shutil.which(program)
    if not found or not Path(found).exists():
        pytest.skip(f"{program} is not there: {how}, and name it in {variable}")
    return found


@contextmanager
def _running(words: list[str], port: int) -> Iterator[str]:
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait(port)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait(port: int) -> None:
    for _ in range(300):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
