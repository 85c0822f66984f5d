"""One target under atheris: ``python -m tests.fuzz.one NAME CORPUS... [libFuzzer's options]``."""

from __future__ import annotations

import socket
import sys
from importlib import import_module
from typing import Any

import atheris


def _no_lookup(*_: Any, **__: Any) -> Any:
    raise OSError("no names are looked up while fuzzing")


def main() -> None:
    name = sys.argv.pop(1)
    # Torch, pyarrow and the like are imported first: only the project's own modules are instrumented.
    for module in ("pyarrow.dataset", "pydantic", "yaml"):
        import_module(module)
    if name in ("models", "states", "images"):
        import_module("torch")
    with atheris.instrument_imports(include=["connectors", "engine", "operators"]):
        from tests.fuzz.targets import TARGETS, run

        TARGETS[name](b"")  # imports what the target needs, which takes longer than any input may
    socket.getaddrinfo = _no_lookup  # type: ignore[assignment]
    atheris.Setup(sys.argv, lambda data: run(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
