"""Rowsieve's deployment on hosts of their own: Ray with tokens, S3, MLflow, a client outside the cluster."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.hosts.bed import REPOSITORY, Host, Hosts, Started, hosts, until
from tests.hosts.storage import Storage, storage_on

HEAD, WORKERS, STORAGE, MLFLOW, CLIENT = "head", ("worker-1", "worker-2"), "storage", "mlflow", "client"
HERE = Path(sys.executable).parent
OBJECT_STORE = 200_000_000
START_SECONDS = 120.0
RUN_SECONDS = 600.0
"""Longest time of a command."""
ASK_NODES = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Authorization": f"Bearer {sys.argv[2]}"})
print(urllib.request.urlopen(request, timeout=5).read().decode())
"""


@dataclass
class Cluster:
    """The hosts and what runs on them."""

    hosts: Hosts
    storage: Storage
    token: str = field(repr=False)
    nodes: dict[str, Started] = field(default_factory=dict)
    """Ray's process on each host of the cluster."""
    mlflow: Started | None = None
    _commands: int = 0

    @property
    def head(self) -> Host:
        """The host of the head node."""
        return self.hosts[HEAD]

    @property
    def ray_address(self) -> str:
        """Address for drivers."""
        return f"{self.head.address}:6379"

    @property
    def jobs_address(self) -> str:
        """Address of the job server."""
        return f"http://{self.head.address}:8265"

    @property
    def tracking(self) -> str:
        """Address of MLflow."""
        return f"http://{self.hosts[MLFLOW].address}:5000"

    @property
    def environment(self) -> dict[str, str]:
        """Environment of Ray's nodes and of drivers beside them."""
        return {
            **self.storage.environment,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_raylet_start_wait_time_s": "100",  # by default 30: a busy machine needs more
            "RAY_worker_niceness": "0",  # by default 15: beside other work they would wait
            "MLFLOW_TRACKING_URI": self.tracking,
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
            "NO_COLOR": "1",
        }

    def start_head(self) -> None:
        """Start Ray's head; it does no work, as in ``deploy``."""
        words = ["--head", "--port=6379", "--dashboard-host=0.0.0.0", "--num-cpus=0"]
        self._start_node(HEAD, words)

    def start_worker(self, name: str) -> None:
        """Start Ray on a worker; returns before it has joined."""
        self._start_node(name, [f"--address={self.ray_address}", "--num-cpus=1"])

    def _start_node(self, name: str, words: Sequence[str]) -> None:
        host = self.hosts[name]
        words = [*words, "--block", f"--node-ip-address={host.address}", "--disable-usage-stats"]
        command = [str(HERE / "ray"), "start", *words, f"--object-store-memory={OBJECT_STORE}"]
        self.nodes[name] = host.start(command, self.environment, "/tmp/node.log")

    def replace_worker(self, name: str) -> None:
        """Turn a worker's host off, boot it again, and wait until Ray knows the new node."""
        node = self.nodes.pop(name)
        self.hosts[name].kill()
        node.process.wait(10)
        self.wait_for_nodes()
        self.hosts.boot(name)
        self.start_worker(name)
        self.wait_for_nodes()

    def ensure_workers(self) -> None:
        """Replace the workers whose node Ray has given up, and wait until all have joined."""
        alive = self.alive_nodes()
        for name in WORKERS:
            if self.hosts[name].address not in alive or self.nodes[name].process.poll() is not None:
                self.replace_worker(name)
        self.wait_for_nodes()

    def start_mlflow(self) -> None:
        """Start MLflow's server; returns before it answers."""
        host = self.hosts[MLFLOW]
        words = ["server", "--backend-store-uri", "sqlite:////tmp/home/mlflow.db", "--host", host.address]
        words += ["--artifacts-destination", "/tmp/home/artifacts", "--port", "5000", "--workers", "1"]
        words += ["--allowed-hosts", f"{host.address}:5000,localhost"]
        environment = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        self.mlflow = host.start([str(HERE / "mlflow"), *words], environment, "/tmp/mlflow.log")

    def alive_nodes(self) -> list[str]:
        """Return the addresses of the nodes that Ray believes alive."""
        words = [sys.executable, "-c", ASK_NODES, f"{self.jobs_address}/api/v0/nodes", self.token]
        try:
            found = json.loads(self.head.run(words))["data"]["result"]["result"]
        except (AssertionError, ValueError):
            return []
        return sorted(node["node_ip"] for node in found if node["state"] == "ALIVE")

    def wait_for_nodes(self) -> None:
        """Wait until all hosts that are up have joined."""
        wanted = sorted(self.hosts[name].address for name in self.nodes)

        def joined() -> bool:
            for name, node in self.nodes.items():
                assert node.process.poll() is None, f"{name}:\n{node.output}"
            return self.alive_nodes() == wanted

        until(joined, START_SECONDS, "Ray's nodes join", pause=1.0)

    def rowsieve(
        self, *words: str, host: str = HEAD, log: str = "", environment: dict[str, str] | None = None
    ) -> Started:
        """Start the command ``rowsieve`` on a host, by default beside the head; its output goes to a log."""
        self._commands += 1
        log = log or f"/tmp/rowsieve-{self._commands}.log"
        more = (
            {"RAY_ADDRESS": self.ray_address}
            if host != CLIENT
            else {"RAY_API_SERVER_ADDRESS": self.jobs_address}
        )
        command = [str(HERE / "rowsieve"), *words]
        return self.hosts[host].start(command, self.environment | more | (environment or {}), log)

    def logs(self) -> str:
        """Return the ends of the logs of all nodes, for a failure."""
        return "\n".join(
            f"== {name}\n{node.output[-2000:]}" for name, node in self.nodes.items() if node.host.alive()
        )


@contextmanager
def cluster(disk: str = "3g", clocks: Mapping[str, int] | None = None) -> Iterator[Cluster]:
    """Yield a cluster whose nodes have all joined, with storage and MLflow; ``clocks`` as in ``hosts``."""
    with ExitStack() as stack:
        names = [HEAD, *WORKERS, STORAGE, MLFLOW, CLIENT]
        found = stack.enter_context(hosts(names, disk=disk, clocks=clocks))
        storage = stack.enter_context(storage_on(found[STORAGE]))
        made = Cluster(found, storage, secrets.token_hex(32))
        made.start_head()
        made.start_mlflow()
        for name in WORKERS:
            made.start_worker(name)
        try:
            made.wait_for_nodes()
            until(lambda: _answers(made), START_SECONDS, "MLflow answers", pause=1.0)
            yield made
        finally:
            for started in [*made.nodes.values(), *([made.mlflow] if made.mlflow else [])]:
                started.process.kill()
                started.process.wait(10)


def _answers(cluster: Cluster) -> bool:
    code = "import urllib.request, sys; urllib.request.urlopen(sys.argv[1] + '/health', timeout=2)"
    try:
        cluster.head.run([sys.executable, "-c", code, cluster.tracking])
    except AssertionError:
        return False
    return True


def objects(storage: Storage, uri: str) -> dict[str, bytes]:
    """Return the objects below ``s3://bucket/prefix``, by their names below it."""
    parts = urlsplit(uri)
    prefix = parts.path.strip("/") + "/"
    client = storage.s3.client()
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=parts.netloc, Prefix=prefix)
    keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
    return {
        key.removeprefix(prefix): client.get_object(Bucket=parts.netloc, Key=key)["Body"].read()
        for key in keys
    }


def published(storage: Storage, output: str) -> dict[str, str]:
    """Return the SHA-256 of every file of the current version of an output."""
    found = objects(storage, output)
    version = found["CURRENT"].decode().split()[0]
    start = f"versions/{version}/"
    digests = {
        name.removeprefix(start): hashlib.sha256(content).hexdigest()
        for name, content in sorted(found.items())
        if name.startswith(start)
    }
    assert "manifest.json" in digests
    return digests | {"version": version}


def upload(storage: Storage, folder: Path, bucket: str, prefix: str) -> None:
    """Put the files of a folder into a bucket."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            key = f"{prefix}/{path.relative_to(folder)}"
            storage.s3.client().put_object(Bucket=bucket, Key=key, Body=path.read_bytes())


def recipe(name: str) -> str:
    """Return the path of an example recipe; the working tree is visible on every host."""
    return str(REPOSITORY / "deploy" / "recipes" / f"{name}.yaml")


def settings(**values: Any) -> list[str]:
    """Return ``--set`` options; ``__`` in a name stands for a dot."""
    return [
        word for name, value in values.items() for word in ("--set", f"{name.replace('__', '.')}={value}")
    ]


def on_this_machine(storage: Storage, words: Sequence[str], folder: Path) -> str:
    """Run the command ``rowsieve`` on this machine, with the same S3 and MLflow's database in ``folder``."""
    keep = ("PATH", "HOME", "LANG", "TMPDIR")
    environment = {name: os.environ[name] for name in keep if name in os.environ} | storage.s3.environment
    environment |= {
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    done = subprocess.run(
        [str(HERE / "rowsieve"), *words],
        env=environment | {"OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
