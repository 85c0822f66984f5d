"""Runs over several hosts that share no disk, source and output on S3: the same bytes as on one host."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.hosts.bed import until
from tests.hosts.cluster import (
    CLIENT,
    HEAD,
    RUN_SECONDS,
    WORKERS,
    Cluster,
    objects,
    on_this_machine,
    published,
    recipe,
    settings,
    upload,
)

pytestmark = pytest.mark.hosts


@pytest.fixture(scope="module")
def digits(many: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The demo's rows on S3."""
    folder = tmp_path_factory.mktemp("digits")
    subprocess.run([sys.executable, "-m", "connectors.digits", str(folder)], check=True, capture_output=True)
    for bucket in ("data", "one", "many"):
        many.storage.s3.client().create_bucket(Bucket=bucket)
    upload(many.storage, folder, "data", "demo")
    return "s3://data/demo/*.parquet"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what the machine itself runs."""
    return tmp_path_factory.mktemp("here")


@pytest.fixture(scope="module")
def demo(many: Cluster, digits: str, here: Path) -> dict[str, str]:
    """Digests of the demo as one host publishes it, in one process."""
    words = ["run", recipe("demo"), *settings(source__path=digits, output__path="s3://one/demo")]
    on_this_machine(many.storage, [*words, *settings(run__executor="local")], here)
    return published(many.storage, "s3://one/demo")


def writers(many: Cluster, output: str, puts_before: int) -> Counter[str]:
    """Which hosts have put how many parts of operators below an output."""
    names = {host.address: host.name for host in many.hosts.values()}
    start = f"{output.removeprefix('s3:/')}/store/"
    puts = [(path, client) for _, path, client in many.storage.puts(puts_before)]
    parts = [(path, client) for path, client in puts if path.startswith(start) and path.endswith(".parquet")]
    assert len(set(parts)) == len(parts)
    return Counter(names[client] for _, client in parts)


def run(many: Cluster, words: Sequence[str], host: str = HEAD) -> str:
    """Run a command on a host to its end."""
    return many.rowsieve(*words, host=host).finish(RUN_SECONDS)


@pytest.mark.timeout(600)
def test_demo_has_the_bytes_of_one_host(many: Cluster, digits: str, demo: dict[str, str]) -> None:
    before, output = len(many.storage.puts()), "s3://many/demo"
    said = run(many, ["run", recipe("demo"), *settings(source__path=digits, output__path=output)])
    assert "mlflow  run " in said
    assert published(many.storage, output) == demo
    assert set(writers(many, output, before)) >= set(WORKERS)
    said = run(many, ["run", recipe("demo"), *settings(source__path=digits, output__path=output)])
    assert "already published" in said


@pytest.mark.timeout(600)
def test_submitted_from_a_host_outside_the_cluster(many: Cluster, digits: str, demo: dict[str, str]) -> None:
    output = "s3://many/submitted"
    words = ["submit", recipe("demo"), *settings(source__path=digits, output__path=output)]
    refused = many.rowsieve(*words, host=CLIENT, environment={"RAY_AUTH_TOKEN": secrets.token_hex(32)})
    assert refused.wait(RUN_SECONDS) == 2
    assert "refuses the token" in refused.output
    said = run(many, [*words, "--wait"], CLIENT)
    assert f"{demo['version']} " in said
    assert published(many.storage, output) == demo
    assert "already succeeded" in run(many, words, CLIENT)


@pytest.mark.timeout(900)
def test_every_operator(many: Cluster, digits: str, here: Path) -> None:
    words = ["run", recipe("full"), *settings(source__path=digits)]
    one = [*words, *settings(output__path="s3://one/full", run__executor="local")]
    on_this_machine(many.storage, one, here)
    run(many, [*words, *settings(output__path="s3://many/full")])
    assert published(many.storage, "s3://many/full") == published(many.storage, "s3://one/full")


@pytest.mark.timeout(1800)
def test_three_nights_with_retraining(many: Cluster, digits: str, here: Path, tmp_path: Path) -> None:
    words = ["run", recipe("nightly"), *settings(source__path="s3://data/nights/*.parquet")]
    one = [*words, *settings(output__path="s3://one/nights", run__executor="local")]
    on_many = [*words, *settings(output__path="s3://many/nights", run__executor="ray")]
    for night in ("1", "2", "3"):
        command = [sys.executable, "-m", "connectors.drifting_digits", str(tmp_path), night]
        subprocess.run(command, check=True, capture_output=True)
        upload(many.storage, tmp_path, "data", "nights")
        on_this_machine(many.storage, one, here)
        run(many, on_many)
        found = [published(many.storage, f"s3://{bucket}/nights") for bucket in ("one", "many")]
        assert found[0] == found[1], night
        assert models(many, "s3://many/nights") == models(many, "s3://one/nights"), night


def models(many: Cluster, output: str) -> dict[str, bytes]:
    """Weights and descriptions of the models of an output."""
    found = objects(many.storage, f"{output}/models")
    assert any(name.endswith(".safetensors") for name in found)
    return {name: found[name] for name in found if name.endswith((".safetensors", "ensemble.json"))}


def copy(many: Cluster, name: str) -> None:
    """Copy the demo's output to another place; the server is a process of its own."""
    for key, content in objects(many.storage, "s3://one/demo").items():
        many.storage.s3.client().put_object(Bucket="one", Key=f"{name}/{key}", Body=content)


@pytest.mark.timeout(900)
def test_retrained_by_a_command(many: Cluster, digits: str, demo: dict[str, str], here: Path) -> None:
    words = ["retrain", "--trainer", "gdro", "--set", "epochs=5", "--register", "digits", "--dataset"]
    on_this_machine(many.storage, [*words, "s3://one/demo", "--executor", "local"], here)
    expected = models(many, "s3://one/demo")
    copy(many, "trained")
    run(many, [*words, "s3://one/trained", "--executor", "ray"])
    assert models(many, "s3://one/trained") == expected


@pytest.mark.timeout(1800)
def test_trained_by_workers_on_both_hosts_and_one_dies(
    many: Cluster, digits: str, demo: dict[str, str], here: Path
) -> None:
    """Ray Train's workers exchange checkpoints and models through the store, also when a host is lost."""
    words = ["retrain", "--trainer", "boosted_cvar", "--set", "rounds=6", "--set", "checkpoint_every=1"]
    for name in ("alone", "whole", "broken"):
        copy(many, name)
    on_this_machine(many.storage, [*words, "--dataset", "s3://one/alone", "--executor", "local"], here)
    expected = models(many, "s3://one/alone")
    words += ["--set", "where=ray", "--executor", "ray", "--dataset"]
    before = len(many.storage.puts())
    run(many, [*words, "s3://one/whole"])
    assert models(many, "s3://one/whole") == expected
    assert trainers(many, "/one/whole/", before) == {many.hosts[name].address for name in WORKERS}

    before = len(many.storage.puts())
    broken = many.rowsieve(*words, "s3://one/broken")

    def training() -> bool:
        assert broken.process.poll() is None, broken.output
        return len(trainers(many, "/one/broken/", before)) == 2

    until(training, RUN_SECONDS, "both workers train")
    many.hosts[WORKERS[1]].kill()
    broken.finish(RUN_SECONDS)
    many.replace_worker(WORKERS[1])
    assert models(many, "s3://one/broken") == expected


def trainers(many: Cluster, start: str, before: int) -> set[str]:
    """Return the hosts that have put a part of a checkpoint."""
    puts = [(path, client) for _, path, client in many.storage.puts(before) if path.startswith(start)]
    return {client for path, client in puts if "/checkpoints/" in path and "/slot-" in path}
