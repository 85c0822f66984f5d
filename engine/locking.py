"""One writer for each output: a lock file, released by the operating system even after a kill."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from engine.errors import InputError, LockedError


@contextmanager
def writer_lock(output: Path, recipe: str) -> Iterator[None]:
    """Hold the output for writing. Raises LockedError naming who has it and since when."""
    path = output / ".lock"
    try:
        output.mkdir(parents=True, exist_ok=True)
        handle = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"The output folder {output} cannot be written: {error.strerror or error}. "
            f"Choose another one with --set output.path=..., or mend its permissions."
        ) from None
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(_who(path, output)) from None
        since = datetime.now(UTC).isoformat(timespec="seconds")
        handle.truncate(0)
        handle.write(
            json.dumps({"recipe": recipe, "host": socket.gethostname(), "pid": os.getpid(), "since": since})
        )
        handle.flush()
        try:
            yield
        finally:
            handle.truncate(0)


def _who(path: Path, output: Path) -> str:
    try:
        holder = json.loads(path.read_text("utf-8"))
        who = f"{holder['recipe']} (process {holder['pid']} on {holder['host']}, since {holder['since']})"
    except (OSError, ValueError, KeyError):
        who = "another run"
    return f"{output} is being written by {who}. Wait for it, or give this run another output.path."
