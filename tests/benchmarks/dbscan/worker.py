"""A peer in a process of its own: its own interpreter, threads, memory limit, CPU limit and peak.

``python -m tests.benchmarks.dbscan.worker FUNCTION FOLDER LIMITS SETTING`` loads ``FOLDER/rows.npy`` and runs
a function of `peers` once per line on its standard input; it answers in lines of JSON.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.dbscan import peers
from tests.benchmarks.harness import Spent

ROOT = Path(__file__).parents[3]
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PARLAY_NUM_THREADS")
PATIENCE = 8  # wall seconds per CPU second allowed: the machine may be shared
STARTUP = 600  # wall seconds for libraries to load, ten processes at once
WARM_UP = 200  # rows of a first run that is not timed: libraries load and tune themselves


@dataclass(frozen=True)
class Limits:
    """Most CPU seconds a run may take, and most bytes of memory its process may hold."""

    seconds: float
    memory: int


@dataclass(frozen=True)
class Outcome:
    """Result of a run: labels, wall seconds and peak bytes; or the reason for which it has none."""

    labels: Any = None
    wall: float = 0.0
    peak: int = 0
    failure: str = ""


class Worker:
    """The caller's side: `wait` once, then `run` is what `measure` times."""

    def __init__(
        self,
        function: str,
        folder: Path,
        setting: peers.Setting,
        limits: Limits,
        *,
        python: str = sys.executable,
        threads: int = 1,
    ) -> None:
        self._answer, self._limits = folder / f"{function}.npy", limits
        arguments = [function, str(folder), json.dumps(asdict(limits)), json.dumps(asdict(setting))]
        command = [python, "-m", "tests.benchmarks.dbscan.worker", *arguments]
        environment = dict(os.environ) | dict.fromkeys(THREADS, str(threads))
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe)
        self._failure = ""

    def wait(self) -> None:
        """Until the libraries are loaded and warm."""
        self._failure = str(self._read(STARTUP).get("failure", ""))

    def run(self) -> Spent:
        """Run once; infinite seconds if that failed, so that nobody waits for it again."""
        if not self._failure:
            assert self._process.stdin is not None
            self._process.stdin.write(b"run\n")
            self._process.stdin.flush()
            found = self._read(60 + PATIENCE * self._limits.seconds)
            self._failure = str(found.get("failure", ""))
        if self._failure:
            return Spent(float("inf"), Outcome(failure=self._failure))
        labels = np.load(self._answer) if self._answer.exists() else None
        return Spent(found["cpu"], Outcome(labels, found["wall"], found["peak"]))

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _read(self, seconds: float) -> Mapping[str, Any]:
        out = self._process.stdout
        assert out is not None
        if not select.select([out], [], [], seconds)[0]:
            self._process.kill()
            return {"failure": f"time (> {seconds:.0f} s wall)"}
        if line := out.readline():
            return dict(json.loads(line))
        code = self._process.wait()
        if code == -signal.SIGXCPU:
            return {"failure": f"time (> {self._limits.seconds:.0f} s)"}
        return {"failure": "memory" if code == -signal.SIGKILL else f"died ({code})"}


def serve(function: str, folder: Path, limits: Limits, setting: peers.Setting) -> None:
    """The process's side."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not mix with the answers
    resource.setrlimit(resource.RLIMIT_DATA, (limits.memory, limits.memory))
    run = getattr(peers, function)
    rows = np.load(folder / "rows.npy")
    failure = _attempt(lambda: run(rows[:WARM_UP], setting))[1]
    print(json.dumps({"failure": failure}), file=out, flush=True)
    for _ in sys.stdin:
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + limits.seconds) + 1, hard))
        cpu, wall = time.process_time(), time.perf_counter()
        labels, failure = _attempt(lambda: run(rows, setting))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        if labels is not None:
            np.save(folder / f"{function}.npy", labels)
        found = {"failure": failure, "cpu": cpu, "wall": wall, "peak": _peak()}
        del labels
        _give_back()
        print(json.dumps(found), file=out, flush=True)


def _peak() -> int:
    """Most bytes resident so far; getrusage would count the parent's from before exec."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _give_back() -> None:
    """Return freed memory to the system: a peer that waits for its turn must not hold what others need."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def _attempt(run: Any) -> tuple[Any, str]:
    """Return the result of a run, and why it failed: libraries report a lack of memory in many ways."""
    try:
        return run(), ""
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        lacking = any(word in text.lower() for word in ("memory", "alloc"))
        print(text, file=sys.stderr)
        return None, "memory" if lacking else type(error).__name__


if __name__ == "__main__":
    name, place, limits_, setting_ = sys.argv[1:]
    serve(name, Path(place), Limits(**json.loads(limits_)), peers.Setting(**json.loads(setting_)))
