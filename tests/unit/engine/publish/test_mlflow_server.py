"""MLflow's server as the manifests start it: PostgreSQL for records, S3 for artifacts."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.data import free_port
from tests.unit.project.test_deploy_files import DEPLOY, compose, instructions, on_path

pytestmark = pytest.mark.slow
PATIENCE = 120.0
NOBODY = 65534


@pytest.fixture
def database() -> Iterator[str]:
    """URI of an empty database, without the scheme."""
    if not (initdb := shutil.which("initdb")) or not (postgres := shutil.which("postgres")):
        pytest.skip("needs PostgreSQL's server: initdb and postgres")
    pytest.importorskip("psycopg")
    user: dict[str, Any] = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
    folder = Path(f"/tmp/pg-{secrets.token_hex(4)}")
    folder.mkdir(mode=0o700)
    if user:
        os.chown(folder, NOBODY, NOBODY)
    port = free_port()
    quiet: dict[str, Any] = {
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "cwd": folder,
        **user,
    }
    try:
        data = folder / "data"
        subprocess.run([initdb, "-D", data, "-U", "mlflow", "-A", "trust", "-N"], check=True, **quiet)
        options = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}"]
        with running([postgres, "-D", str(data), "-p", str(port), *options], **quiet):
            import psycopg

            def create() -> None:
                with psycopg.connect(
                    f"postgresql://mlflow@127.0.0.1:{port}/postgres", autocommit=True
                ) as connection:
                    connection.execute("CREATE DATABASE mlflow")

            eventually(create, psycopg.OperationalError)
            yield f"mlflow@127.0.0.1:{port}/mlflow"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def storage() -> Iterator[str]:
    """Address of an object storage."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host if host != '0.0.0.0' else '127.0.0.1'}:{port}"
    server.stop()


@contextmanager
def running(command: list[str], **options: Any) -> Iterator[None]:
    process = subprocess.Popen(command, **options)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def eventually(step: Any, *faults: type[Exception]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            step()
        except faults:
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.3)
        else:
            return


def test_as_the_manifests_start_it(
    database: str, storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": "mlflow",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
        "MLFLOW_S3_ENDPOINT_URL": storage,
        "MLFLOW_BACKEND_STORE_URI": f"postgresql+psycopg://{database}",
        "MLFLOW_ARTIFACTS_DESTINATION": "s3://mlflow",
    }
    (settings,) = (rest for name, rest in instructions(DEPLOY / "mlflow" / "Dockerfile") if name == "ENV")
    environment |= dict(entry.split("=") for entry in settings.split())
    bucket = compose()["services"]["bucket"]["command"]
    for _ in range(2):  # it may be there already
        subprocess.run([sys.executable, *bucket[1:]], env=on_path(**environment), check=True)
    command = json.loads(instructions(DEPLOY / "mlflow" / "Dockerfile")[-1][1])
    manifests = list(yaml.safe_load_all((DEPLOY / "mlflow" / "kubernetes.yaml").read_text()))
    (deployment,) = (one for one in manifests if one["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"] == command
    port = str(free_port())
    words = [port if word == "5000" else word for word in [*command, *container["args"]]]
    address = f"http://127.0.0.1:{port}"
    with running(words, env=on_path(**environment), cwd=tmp_path, stderr=subprocess.DEVNULL):
        eventually(lambda: urllib.request.urlopen(f"{address}/health"), urllib.error.URLError)
        _leave_a_run(address, tmp_path, monkeypatch)
        stranger = urllib.request.Request(f"{address}/api/2.0/mlflow/experiments/search", b"{}")
        stranger.add_header("Host", "evil.example.org")
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(stranger)
    import boto3
    import psycopg

    keys = {"aws_access_key_id": "mlflow", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    objects = boto3.client("s3", endpoint_url=storage, **keys).list_objects_v2(Bucket="mlflow")["Contents"]
    assert [entry["Key"].rpartition("/")[2] for entry in objects] == ["note.txt"]
    with psycopg.connect(f"postgresql://{database}") as connection:
        assert connection.execute("SELECT value FROM metrics").fetchall() == [(0.5,)]


def _leave_a_run(address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    client = MlflowClient(address)
    run = client.create_run("0").info.run_id
    client.log_metric(run, "share", 0.5)
    (folder / "note.txt").write_text("kept")
    client.log_artifact(run, str(folder / "note.txt"))
    client.set_terminated(run)
    assert client.list_artifacts(run)[0].path == "note.txt"
