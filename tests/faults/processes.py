"""Runs in processes of their own, to be stopped and killed from outside.

They are forked from a server that has imported everything already: a run then starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import yaml

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.faults.preload"])
PATIENCE = 280.0
"""Seconds before a test gives a process up."""


def start(fn: Callable[..., Any], *args: Any) -> BaseProcess:
    """``fn(*args)`` in a process of its own."""
    process = CONTEXT.Process(target=fn, args=args, daemon=True)
    process.start()
    return process


def rowsieve(arguments: Sequence[str], log: str, environment: dict[str, str] | None = None) -> None:
    """The command line; its output goes to the file ``log``, its exit code is the process's."""
    from engine.cli.app import app

    os.environ.update(environment or {})
    with open(log, "w", buffering=1) as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
        with contextlib.suppress(BrokenPipeError):
            sys.exit(app(list(arguments)))


def run_recipe(folder: Path, recipe: dict[str, Any], *options: str, name: str = "recipe") -> BaseProcess:
    """``rowsieve run`` on the recipe; what it says goes to ``<folder>/<name>.log``."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))
    return start(rowsieve, ["run", str(path), *options], str(folder / f"{name}.log"))


def finish(process: BaseProcess) -> int:
    """Exit code; negative: the signal that ended it."""
    process.join(PATIENCE)
    assert process.exitcode is not None, "the process did not end"
    return process.exitcode


def until(condition: Callable[[], Any], process: BaseProcess | None = None, every: float = 0.002) -> bool:
    """Wait for a condition; False if the process ended first."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process is not None and process.exitcode is not None:
            return bool(condition())
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(every)
    return True
