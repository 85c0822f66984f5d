"""Hosts on one machine: each has its own network, mounts, process ids, host name and boot id.

A host is a tree of processes below a shell that is process 1 of its own PID namespace. The machine's disk is
visible read-only; ``/tmp`` (with the home folder) and ``/dev/shm`` are memory of the host's own. Its only
network is a veth link to a bridge, which lies in a network namespace without processes of a host: nothing is
added to the machine's own network, and no namespace has a name or a mount outside. The kernel removes all
of it when the last process ends, and every first process ends when the test process does, however it ends.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
NETWORK = "10.77.0"
BRIDGE = "rs-br"
HOME = "/tmp/home"
START_SECONDS = 20.0
TOOLS = ("unshare", "nsenter", "ip", "mount", "hostname")

INIT = r"""
set -e
exec 3<&0
mount --make-rprivate /
mount -t tmpfs -o size=$RS_DISK,mode=1777 rs-tmp /tmp
mount -t tmpfs -o size=$RS_SHM,mode=1777 rs-shm /dev/shm
mkdir $RS_HOME /tmp/.host
echo $RS_BOOT_ID > /tmp/.host/boot_id
: > /tmp/.host/resolv.conf
printf '%s' "$RS_HOSTS" > /tmp/.host/hosts
mount --bind /tmp/.host/boot_id /proc/sys/kernel/random/boot_id
mount --bind /tmp/.host/hosts /etc/hosts
[ -e /etc/resolv.conf ] && mount --bind /tmp/.host/resolv.conf /etc/resolv.conf
mount -o remount,bind,ro /
hostname $RS_NAME
ip link set lo up
echo ready
exec >/dev/null
cat <&3 >/dev/null &
wait $!
"""
"""What process 1 of a host does. The shell then waits, and buries the orphans, until its input is closed."""


def why_not() -> str:
    """Return why no hosts can be made here, or an empty text."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if sys.platform != "linux" or missing:
        return f"needs Linux with {', '.join(missing or TOOLS)}"
    if os.geteuid():
        return "namespaces need root"
    probe = (
        "mount -t tmpfs rs-probe /tmp && mount -o remount,bind,ro / && ip link add rs-br type bridge "
        "&& ip link add rs-a type veth peer name rs-b"
    )
    command = ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", "sh", "-c", probe]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    return f"namespaces are not allowed here: {done.stderr.strip()}" if done.returncode else ""


NAMESPACES = ("--net", "--mount", "--uts", "--ipc", "--pid")


def wrong_clock(seconds: int) -> dict[str, str]:
    """Return the environment of a process whose clock is fast by so many seconds: Linux has one clock for all
    namespaces. Clocks that measure intervals are right."""
    spec = find_spec("libfaketime")
    assert spec is not None
    assert spec.origin is not None
    library = Path(spec.origin).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
    assert library.exists()
    return {"LD_PRELOAD": str(library), "FAKETIME": f"{seconds:+d}s", "DONT_FAKE_MONOTONIC": "1"}


@dataclass
class Switch:
    """The network namespace with the bridge."""

    process: subprocess.Popen[str]

    def ip(self, *words: str) -> None:
        """Run ``ip`` in the switch."""
        enter = ["nsenter", "--target", str(self.process.pid), "--net"]
        _checked([*enter, "ip", *words])


@dataclass
class Host:
    """One host. ``address`` is its IPv4 address."""

    name: str
    address: str
    switch: Switch = field(repr=False)
    process: subprocess.Popen[str] = field(repr=False)
    pid: int
    """Of its process 1, as the machine numbers it."""
    disk: str
    """Size of its ``/tmp``."""
    clock: int = 0
    """Seconds by which its clock is fast."""

    @property
    def link(self) -> str:
        """Name of the switch's end of the link."""
        return f"rs-{self.name}"[:15]

    def path(self, path: str) -> Path:
        """Return a path by which this process reads and writes a file of the host."""
        return Path(f"/proc/{self.pid}/root") / path.lstrip("/")

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the command line that carries out ``words`` on the host."""
        return ["nsenter", "--target", str(self.pid), *NAMESPACES, f"--wd={self.path(HOME)}", *words]

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], log: str, **options: Any
    ) -> Started:
        """Start a command; its output goes to ``log``, a file of the host."""
        options.setdefault("stdin", subprocess.DEVNULL)
        with self.path(log).open("ab") as file:
            options.setdefault("stdout", file)
            process = subprocess.Popen(
                self.command(words), env=self.environment(environment), stderr=file, **options
            )
        return Started(self, process, log)

    def run(
        self, words: Sequence[str], environment: Mapping[str, str] | None = None, timeout: float = 60.0
    ) -> str:
        """Run a command on the host to its end and return its output; it must succeed."""
        return _checked(self.command(words), env=self.environment(environment or {}), timeout=timeout)

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """Environment of a process of the host: nothing of the test's own but the path of programs."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {
            "PATH": path,
            "HOME": HOME,
            "TMPDIR": "/tmp",
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
        }
        return own | (wrong_clock(self.clock) if self.clock else {}) | dict(more)

    def cut(self) -> None:
        """Cut the link: from now on every packet is lost, and nobody is told."""
        self.switch.ip("link", "set", self.link, "nomaster")

    def mend(self) -> None:
        """Mend the link."""
        self.switch.ip("link", "set", self.link, "master", BRIDGE)

    def lose_packets_to(self, other: Host) -> None:
        """Lose every packet to one other host."""
        nowhere = ("lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent")
        self.run(["ip", "neigh", "replace", other.address, *nowhere])

    def reach_again(self, other: Host) -> None:
        """End what :meth:`lose_packets_to` has begun."""
        self.run(["ip", "neigh", "del", other.address, "dev", "eth0"])

    def fill_disk(self) -> None:
        """Make the host's disk as small as what is on it."""
        used = shutil.disk_usage(self.path("/tmp")).used
        self.run(["mount", "-o", f"remount,size={used // 1024 + 4}k", "/tmp"])

    def empty_disk(self) -> None:
        """Give the disk its size again."""
        self.run(["mount", "-o", f"remount,size={self.disk}", "/tmp"])

    def alive(self) -> bool:
        """Return whether the host is up."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Turn the host off: the kernel kills every process of it, and its link goes."""
        self.process.kill()
        self.process.wait(10)
        with suppress(AssertionError):  # the kernel removes it too, but some time later
            self.switch.ip("link", "delete", self.link)


@dataclass
class Started:
    """A command that was started on a host."""

    host: Host
    process: subprocess.Popen[Any]
    log: str

    @property
    def output(self) -> str:
        """Return all text that the process has printed so far."""
        return self.host.path(self.log).read_text("utf-8", "replace")

    def wait(self, seconds: float) -> int:
        """Return its exit code; it must end within ``seconds``."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.process.args} goes on after {seconds} s:\n{self.output[-3000:]}"
            ) from None

    def finish(self, seconds: float) -> str:
        """Wait for its end, which must be a success, and return its output."""
        code = self.wait(seconds)
        assert code == 0, f"exit {code} of {self.process.args}:\n{self.output[-6000:]}"
        return self.output

    def signal(self, number: int) -> None:
        """Send a signal to the command itself, not to ``nsenter`` above it.

        ``nsenter`` stops itself when its child is stopped, and has to be woken to see the child's end.
        """
        for child in children(self.process.pid):
            os.kill(child, number)
        if number == signal.SIGCONT:
            os.kill(self.process.pid, number)

    def end(self) -> None:
        """Kill it if it still runs."""
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                self.signal(signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
            self.process.kill()
            self.process.wait(5)


def children(parent: int) -> list[int]:
    """Return the process ids of the children of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(entry.name))
    return found


class Hosts(dict[str, Host]):
    """The hosts of a test by name; one that was killed can be booted again."""

    def __init__(
        self,
        names: Sequence[str],
        switch: Switch,
        stack: ExitStack,
        disk: str,
        shm: str,
        clocks: Mapping[str, int],
    ) -> None:
        super().__init__()
        self._switch, self._stack, self._disk, self._shm = switch, stack, disk, shm
        self._clocks = clocks
        self._addresses = {name: f"{NETWORK}.{number}" for number, name in enumerate(names, 1)}

    def boot(self, name: str) -> Host:
        """Start a host, with empty disks, and connect it."""
        known = "127.0.0.1 localhost\n"
        known += "".join(f"{address} {other}\n" for other, address in self._addresses.items())
        sizes = {"RS_DISK": self._disk, "RS_SHM": self._shm}
        settings = sizes | {
            "RS_NAME": name,
            "RS_HOSTS": known,
            "RS_HOME": HOME,
            "RS_BOOT_ID": str(uuid.uuid4()),
        }
        unshare = ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc"]
        process = self._stack.enter_context(_first_process(unshare, INIT, settings))
        (pid,) = children(process.pid)
        clock = self._clocks.get(name, 0)
        self[name] = host = Host(name, self._addresses[name], self._switch, process, pid, self._disk, clock)
        _connect(host)
        return host


@contextmanager
def hosts(
    names: Sequence[str], disk: str = "3g", shm: str = "400m", clocks: Mapping[str, int] | None = None
) -> Iterator[Hosts]:
    """Yield hosts by name, on one bridge, at 10.77.0.1 and so on; all is gone when the block ends.

    ``clocks`` gives the seconds by which clocks are fast.
    """
    with ExitStack() as stack:
        switch = Switch(stack.enter_context(_first_process(["unshare", "--net"], "echo ready; exec cat", {})))
        switch.ip("link", "add", BRIDGE, "type", "bridge")
        switch.ip("link", "set", BRIDGE, "up")
        found = Hosts(names, switch, stack, disk, shm, clocks or {})
        for name in names:
            found.boot(name)
        yield found


def _connect(host: Host) -> None:
    link = ("link", "add", host.link, "type", "veth", "peer", "name", "eth0", "netns", str(host.pid))
    host.switch.ip(*link)
    host.switch.ip("link", "set", host.link, "up", "master", BRIDGE)
    host.run(["ip", "address", "add", f"{host.address}/24", "dev", "eth0"])
    host.run(["ip", "link", "set", "eth0", "up"])


@contextmanager
def _first_process(
    unshare: Sequence[str], script: str, settings: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Start a process that ends when its input is closed, which the kernel does when this process ends."""
    process = subprocess.Popen(
        [*unshare, "bash", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={"PATH": os.environ["PATH"], **settings},
        start_new_session=True,  # Ctrl-C reaches the test, which then ends the hosts
    )
    try:
        assert process.stdout
        ready = select.select([process.stdout], [], [], START_SECONDS)[0]
        said = process.stdout.readline() if ready else "nothing"
        if said != "ready\n":
            process.kill()
            raise AssertionError(f"a host does not start: {said}{process.stdout.read() if ready else ''}")
        yield process
    finally:
        process.kill()
        process.wait(10)
        for stream in (process.stdin, process.stdout):
            if stream:
                stream.close()


def _checked(command: Sequence[str], timeout: float = 60.0, **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, **options)
    assert done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}: {done.stderr or done.stdout}"
    return done.stdout


def until(check: Any, seconds: float, what: str, pause: float = 0.05) -> Any:
    """Return the first true value of ``check()``; an error if there is none within ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(pause)
