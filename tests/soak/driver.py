"""One process that carries out all commands of all nights, and says what it holds after each.

It reads a line of JSON for each command, a list of words, and answers with a line: exit code, seconds, open
handles, threads and peak of memory. What the commands print goes to standard error.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

COMMAND_SECONDS = 600.0


@dataclass(frozen=True)
class Answer:
    """The outcome of one command, and what the process holds after it."""

    code: int
    seconds: float
    handles: int
    threads: int
    peak_mib: float
    """Most memory during the command."""
    mib: float
    """Memory after it."""
    cpu_seconds: float
    """Time of the processor, of all threads; other work on the machine changes it little."""


def carry_out(words: Sequence[str]) -> int:
    """Carry out one command of ``rowsieve`` in this process and return its exit code."""
    from engine.cli.app import app

    try:
        app(list(words))
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def serve(messages: IO[str], answers: IO[str]) -> None:
    """Answer commands until the input ends."""
    for line in messages:
        # The kernel then counts the peak from here on.
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        started, cpu = time.perf_counter(), time.process_time()
        code = carry_out(json.loads(line))
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        gc.collect()
        found = _status()
        handles = len(os.listdir("/proc/self/fd")) - 1
        answer = [code, seconds, handles, threading.active_count(), found["VmHWM"], found["VmRSS"], cpu]
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _status() -> dict[str, float]:
    """Return the figures of this process's memory in MiB."""
    entries = (line.partition(":") for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(rest.split()[0]) / 1024 for name, _, rest in entries if "kB" in rest}


class Driver:
    """The process, as its parent sees it."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """Start it; its output goes to ``driver.log`` in the folder."""
        self.log = folder / "driver.log"
        with self.log.open("ab") as log:
            self._process: subprocess.Popen[Any] = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.driver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=dict(environment),
            )

    def run(self, *words: str, codes: Sequence[int] = (0,)) -> Answer:
        """Carry out a command, which must end with one of the exit codes."""
        to, back = self._process.stdin, self._process.stdout
        assert to
        assert back
        to.write(json.dumps(words) + "\n")
        to.flush()
        answer = Answer(*json.loads(back.readline()))
        assert answer.code in codes, f"{' '.join(words)}: exit {answer.code}\n{self.tail()}"
        return answer

    def tail(self) -> str:
        """Return the end of what the commands have printed."""
        return self.log.read_text("utf-8", "replace")[-4000:]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


if __name__ == "__main__":
    _answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, _answers)
