"""One target under atheris: ``python -m tests.fuzz.one NAME CORPUS... [libFuzzer's options]``.

An input for which the target raises is written to ``PREFIX``crash-HASH (``-artifact_prefix=PREFIX``): atheris
itself writes none where libFuzzer was built without a sanitizer.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import shlex
import socket
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any

import atheris

CPU_SECONDS = "-cpu_seconds="
"""Our own option: CPU time after which the process ends. libFuzzer knows wall time alone."""


def _no_lookup(*_: Any, **__: Any) -> Any:
    raise OSError("no names are looked up while fuzzing")


def _keep(data: bytes, options: Sequence[str]) -> None:
    prefix = next((text.partition("=")[2] for text in options if text.startswith("-artifact_prefix=")), "")
    Path(f"{prefix}crash-{hashlib.sha256(data).hexdigest()[:16]}").write_bytes(data)


def main() -> None:
    name = sys.argv.pop(1)
    # Torch, pyarrow and the like are imported first: only the project's own modules are instrumented.
    for module in ("pyarrow.dataset", "pydantic", "yaml"):
        import_module(module)
    if name in ("models", "states", "images", "trees"):
        import_module("torch")
    with atheris.instrument_imports(include=["connectors", "engine", "operators"]):
        from tests.fuzz.targets import TARGETS, run

        logging.getLogger("rowsieve").setLevel(logging.CRITICAL)
        TARGETS[name](b"")  # imports what the target needs, which takes longer than any input may
    socket.getaddrinfo = _no_lookup  # type: ignore[assignment]

    # libFuzzer starts its first argument by a shell, for every merge.
    sys.argv[0] = f"{shlex.quote(sys.executable)} -m tests.fuzz.one {name}"
    options = list(sys.argv)
    sys.argv = [text for text in options if not text.startswith(CPU_SECONDS)]
    seconds = next((float(text.removeprefix(CPU_SECONDS)) for text in options if text not in sys.argv), inf)
    end, count = time.process_time() + seconds, itertools.count()

    def one(data: bytes) -> None:
        if time.process_time() > end:
            print(f"stat::number_of_executed_units: {next(count)}", file=sys.stderr, flush=True)
            os._exit(0)
        next(count)
        try:
            run(name, data)
        except Exception:
            _keep(data, options)
            raise

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
