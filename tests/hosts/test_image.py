"""The image on hosts: its user, a root that is read-only, and a Ray head and worker that share nothing.

``make image`` builds the image and names its root file system by ``ROWSIEVE_IMAGE_ROOT``.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.hosts.bed import Host, Hosts, Started, hosts, until
from tests.hosts.cluster import (
    HEAD,
    RUN_SECONDS,
    START_SECONDS,
    STORAGE,
    on_this_machine,
    published,
    recipe,
    settings,
    upload,
)
from tests.hosts.storage import Storage, storage_on

ROOT = Path(os.environ.get("ROWSIEVE_IMAGE_ROOT", "/none"))
pytestmark = [
    pytest.mark.hosts,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not ROOT.exists(), reason="needs the root of the image, which make image names"),
]
WORKER = "worker-1"
USER, HOME = 1000, "/home/rowsieve"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENTER = f"""
set -e
mount --rbind /proc {ROOT}/proc
mount --rbind /dev {ROOT}/dev
mount -t tmpfs -o mode=1777 rs-tmp {ROOT}/tmp
mount -t tmpfs -o uid={USER},gid={USER} rs-home {ROOT}{HOME}
mount --bind /etc/hosts {ROOT}/etc/hosts
"""
"""Mounts of a container, as the manifests make them: all but /tmp and the home folder is read-only."""
COUNT_NODES = "import ray; ray.init('auto', log_to_driver=False); print(len(ray.nodes()))"


@dataclass
class Container:
    """The image on a host, as its own user."""

    host: Host
    environment: Mapping[str, str]
    _commands: int = 0

    def start(self, *words: str) -> Started:
        """Start a command of the image in the home folder."""
        self._commands += 1
        enter = [
            "chroot",
            f"--userspec={USER}:{USER}",
            str(ROOT),
            "sh",
            "-c",
            f'cd {HOME} && exec "$@"',
            "sh",
        ]
        own = {"PATH": PATH, "HOME": HOME, "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
        environment = own | dict(self.environment)
        return self.host.start([*enter, *words], environment, f"/tmp/container-{self._commands}.log")

    def run(self, *words: str, seconds: float = RUN_SECONDS) -> str:
        """Run a command of the image to its end, which must be a success; return its output."""
        return self.start(*words).finish(seconds)

    def write(self, path: str, text: str) -> None:
        """Write a file where the container may."""
        self.host.path(f"{ROOT}{path}").write_text(text)


def container(host: Host, environment: Mapping[str, str]) -> Container:
    """Make the mounts of a container on a host."""
    host.run(["sh", "-c", ENTER])
    return Container(host, environment)


def test_the_demo_runs_as_its_user_with_a_root_that_is_read_only() -> None:
    with hosts(["one"]) as found:
        one = container(found["one"], {"MLFLOW_DISABLE_TELEMETRY": "true"})
        assert one.run("sh", "-c", "id -u; id -g").split() == [str(USER), str(USER)]
        root = one.host.start(["touch", f"{ROOT}/x"], {}, "/tmp/root.log")
        assert root.wait(60) == 1
        assert "Read-only file system" in root.output
        one.write("/tmp/demo.yaml", Path(recipe("demo")).read_text())
        one.run("python", "-m", "connectors.digits", "demo/data")
        said = one.run("rowsieve", "run", "/tmp/demo.yaml", *settings(run__executor="local"))
        assert "1,797 rows, 4 groups" in said


@dataclass
class Bed:
    """Three hosts, of which one serves S3."""

    hosts: Hosts
    storage: Storage

    def container(self, name: str, environment: Mapping[str, str]) -> Container:
        """Make a container on a host, which reaches S3."""
        return container(self.hosts[name], {**self.storage.environment, **environment})

    def start_ray(self, one: Container, *words: str) -> None:
        """Start a node of Ray in a container."""
        own = (f"--node-ip-address={one.host.address}", "--object-store-memory=200000000")
        one.start("ray", "start", *words, *own, "--block", "--disable-usage-stats")


@pytest.fixture
def bed() -> Iterator[Bed]:
    with hosts([HEAD, WORKER, STORAGE]) as found, storage_on(found[STORAGE]) as storage:
        yield Bed(found, storage)


def test_a_head_and_a_worker_publish_what_one_host_publishes(bed: Bed, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "connectors.digits", str(tmp_path / "data")], check=True)
    for bucket in ("data", "out"):
        bed.storage.s3.client().create_bucket(Bucket=bucket)
    upload(bed.storage, tmp_path / "data", "data", "demo")
    chosen = {"source__path": "s3://data/demo/*.parquet", "tracking__enabled": "false"}
    one = settings(**chosen, output__path="s3://out/one", run__executor="local")
    on_this_machine(bed.storage, ["run", recipe("demo"), *one], tmp_path)

    address = f"{bed.hosts[HEAD].address}:6379"
    environment = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_raylet_start_wait_time_s": "100",
        "OMP_NUM_THREADS": "1",
    }
    head, worker = (bed.container(name, environment) for name in (HEAD, WORKER))
    bed.start_ray(head, "--head", "--port=6379", "--num-cpus=0")
    bed.start_ray(worker, f"--address={address}", "--num-cpus=2")
    until(lambda: nodes_of(head) == 2, START_SECONDS, "head and worker join", pause=2.0)

    head.write("/tmp/demo.yaml", Path(recipe("demo")).read_text())
    many = settings(**chosen, output__path="s3://out/many", run__executor="ray")
    driver = replace(head, environment={**head.environment, "RAY_ADDRESS": address})
    driver.run("rowsieve", "run", "/tmp/demo.yaml", *many)
    puts = {client for _, path, client in bed.storage.puts() if path.startswith("/out/many/store/")}
    assert worker.host.address in puts
    assert content(bed, "s3://out/many") == content(bed, "s3://out/one")


def content(bed: Bed, output: str) -> dict[str, str]:
    """Return the digests of the version but its manifest, which names the releases of Python and packages."""
    return {name: sha for name, sha in published(bed.storage, output).items() if name != "manifest.json"}


def nodes_of(head: Container) -> int:
    """Return how many nodes Ray has, by a command on its head; 0 while it does not answer."""
    asked = head.start("python", "-c", COUNT_NODES)
    if asked.process.wait(START_SECONDS):
        return 0
    return int(asked.output.split()[-1])
