"""The hosts themselves: what they share, how links are cut, and that nothing is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hosts.bed import REPOSITORY, Host, children, hosts, until
from tests.hosts.storage import BUSY, TRUNCATED, UNANSWERED, storage_on

pytestmark = pytest.mark.hosts
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], 7000), 2) as connection:
    print(connection.recv(10).decode())
"""
ANSWER = """
import socket
with socket.create_server(("", 7000)) as server:
    while True:
        server.accept()[0].sendall(socket.gethostname().encode())
"""


def asked(host: Host, other: Host) -> str:
    """The name by which another host answers; empty if it does not."""
    try:
        return host.run([sys.executable, "-c", ASK, other.address]).strip()
    except AssertionError:
        return ""


def test_hosts_share_a_network_and_no_folder() -> None:
    with hosts(["a", "b"], disk="50m") as found:
        a, b = found.values()
        a.path("/tmp/mine").write_text("a")
        assert a.run(["cat", "/tmp/mine"]) == "a"
        assert not b.path("/tmp/mine").exists()
        assert not Path("/tmp/mine").exists()
        here = str(Path(__file__).parent / "written")
        with pytest.raises(AssertionError, match="Read-only"):
            a.run(["touch", here])
        assert [host.run(["hostname"]).strip() for host in (a, b)] == ["a", "b"]
        boots = {host.run(["cat", "/proc/sys/kernel/random/boot_id"]) for host in (a, b)}
        assert len(boots | {Path("/proc/sys/kernel/random/boot_id").read_text()}) == 3
        with pytest.raises(AssertionError, match="No space"):
            a.run(["dd", "if=/dev/zero", "of=/tmp/full", "bs=1M", "count=60"])
        started = b.start([sys.executable, "-c", ANSWER], {}, "/tmp/log")
        until(lambda: asked(a, b) == "b", 10, "b answers")
        b.cut()
        assert asked(a, b) == ""
        b.mend()
        assert asked(a, b) == "b"
        a.lose_packets_to(b)
        assert asked(a, b) == ""
        a.reach_again(b)
        assert asked(a, b) == "b"
        started.end()
        assert asked(a, b) == ""


def test_orphans_are_buried_and_a_host_dies_with_all_its_processes() -> None:
    with hosts(["a"]) as found:
        a = found["a"]
        a.run(["sh", "-c", "(sh -c 'sleep 0.1' & sleep 1000 &) > /dev/null 2>&1"])
        until(lambda: len(children(a.pid)) == 2, 5, "cat and sleep are left")
        a.kill()
        until(lambda: not Path(f"/proc/{a.pid}").exists(), 5, "process 1 is gone")
        assert not a.alive()
        found.boot("a").run(["ip", "address", "show", "eth0"])


HANG = """
import signal, sys, time
from tests.hosts.bed import hosts
# A shell that starts a command in the background lets it, and so this process, ignore the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
with hosts(["x", "y"]) as found:
    print(*(host.pid for host in found.values()), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_however_the_test_ends(number: int) -> None:
    before = traces()
    process = subprocess.Popen(
        [sys.executable, "-c", HANG],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    pids = process.stdout.readline().split()
    assert len(pids) == 2
    os.kill(process.pid, number)
    process.wait(20)
    process.stdout.close()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 10, "the hosts are gone")
    until(lambda: traces() == before, 5, f"left: {traces()} against {before}")


def traces() -> tuple[str, ...]:
    """Named namespaces, links and mounts of the machine that a host could leave."""
    said = [
        subprocess.run(["ip", *words], capture_output=True, text=True).stdout
        for words in (["netns"], ["link"])
    ]
    mounts = Path("/proc/self/mounts").read_text()
    return (
        "".join(sorted(said[0])),
        *(line for text in (said[1], mounts) for line in text.splitlines() if "rs-" in line),
    )


def test_a_command_that_was_stopped_and_woken_ends() -> None:
    with hosts(["one"]) as found:
        started = found["one"].start(["sleep", "1"], {}, "/tmp/sleep.log")
        until(lambda: children(started.process.pid), 5, "the command runs")
        started.signal(signal.SIGSTOP)
        time.sleep(1.5)
        assert started.process.poll() is None
        started.signal(signal.SIGCONT)
        assert started.wait(10) == 0


GET = """
import obstore, sys, datetime
from obstore.store import S3Store
from connectors.storage.clients import client
store = client("s3://bucket")
for number in range(60):
    obstore.put(store, f"k{number}", b"x" * 5000)
    assert obstore.get(store, f"k{number}").bytes() == b"x" * 5000
print("done")
"""


def test_the_storage_host_has_the_faults_it_is_told() -> None:
    with hosts(["client", "storage"]) as found, storage_on(found["storage"]) as storage:
        storage.s3.client().create_bucket(Bucket="bucket")
        started = time.monotonic()
        with storage.faults(1, **{BUSY: 0.1, TRUNCATED: 0.1, UNANSWERED: 0.1}):
            assert "done" in found["client"].run([sys.executable, "-c", GET], storage.environment)
            counts = storage.counts()
        assert counts["requests"] > 120
        assert all(counts[name] > 2 for name in (BUSY, TRUNCATED, UNANSWERED)), counts
        assert {path for _, path, _ in storage.puts()} == {f"/bucket/k{number}" for number in range(60)}
        assert {client for _, _, client in storage.puts()} == {found["client"].address}
        assert storage.s3.client().get_object(Bucket="bucket", Key="k7")["Body"].read() == b"x" * 5000
        assert time.monotonic() - started < 60
