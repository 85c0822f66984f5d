"""Writers of one output, carried out one storage operation at a time in any order that a test asks for.

The code of the lease runs as it stands. Each writer is a thread that stops before every operation on the
storage; a test lets one of them go on, kill it before or after the operation, and looks at the storage in
between, as a reader at that moment would.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

Fate = Literal["go on", "die before", "die after", "lose the answer"]
"""What happens to a writer at an operation. Where the answer is lost, the operation is carried out, and again
one step later, as a library repeats a request."""
FILE_OPERATIONS = ("replace", "mkdir", "unlink", "rmdir", "link", "utime", "listdir", "scandir")
OBJECT_OPERATIONS = ("get", "put", "head", "list", "list_with_delimiter", "delete", "copy")
SECONDS = 20.0
"""Longest time for one operation; more means that a writer waits for another one."""


class KilledError(BaseException):
    """Ends a writer in the middle of its work."""


class Writer:
    """A program that is carried out operation by operation.

    Attributes
    ----------
    steps
        Operations carried out so far.
    ended
        Whether the program is over, by its end, an error or because it was killed.
    error
        The exception that ended it, if any.

    """

    def __init__(self, name: str, program: Callable[[str], None]) -> None:
        self.name, self.steps, self.ended = name, 0, False
        self.error: BaseException | None = None
        self.killed = False
        self._fate: Fate = "go on"
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._program = program
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._wait()

    def step(self, fate: Fate = "go on") -> None:
        """Carry out the next operation, or kill the writer before or after it."""
        self._fate = fate
        self.steps += 1
        self._go.release()
        self._wait()

    def run_to_end(self) -> None:
        """Carry out all that is left."""
        while not self.ended:
            self.step()

    def operation(self, carry_out: Callable[[], Any]) -> Any:
        """Stop, and then do what the test has decided. Called in the writer's thread."""
        if self.killed:
            raise KilledError
        self._stopped.release()
        self._go.acquire()
        self.killed = self._fate.startswith("die")
        if self._fate == "die before":
            raise KilledError
        if self._fate == "lose the answer":
            with suppress(Exception):
                carry_out()
            self._stopped.release()
            self._go.acquire()
        result = carry_out()
        if self.killed:
            raise KilledError
        return result

    def _wait(self) -> None:
        if not self._stopped.acquire(timeout=SECONDS):
            raise AssertionError(f"the writer {self.name} waits for something")

    def _run(self) -> None:
        WRITERS[threading.get_ident()] = self
        try:
            self._program(self.name)
        except BaseException as error:
            self.error = error
        del WRITERS[threading.get_ident()]
        self.ended = True
        self._stopped.release()


WRITERS: dict[int, Writer] = {}
"""Writers by the identity of their threads."""


def _stopping(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that stops before it is called by a writer."""

    @wraps(function)
    def stopped(*arguments: Any, **named: Any) -> Any:
        writer = WRITERS.get(threading.get_ident())
        if writer is None:
            return function(*arguments, **named)
        return writer.operation(lambda: function(*arguments, **named))

    return stopped


@contextmanager
def stops_of_files() -> Iterator[None]:
    """Let writers stop before they change or list files, and before they create a lease file."""
    plain_open = Path.open

    def opened(path: Path, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        plain = plain_open if mode != "x" else _stopping(plain_open)
        return plain(path, mode, *arguments, **named)

    patches = [patch.object(os, name, _stopping(getattr(os, name))) for name in FILE_OPERATIONS]
    with _all([*patches, patch.object(Path, "open", opened)]):
        yield


@contextmanager
def stops_of_objects() -> Iterator[None]:
    """Let writers stop before every request; a removal of several objects is several requests."""
    import obstore

    plain = obstore.delete

    def delete(store: Any, keys: Any) -> None:
        for key in [keys] if isinstance(keys, str) else keys:
            with suppress(FileNotFoundError):
                _stopping(plain)(store, key)

    found = {name: _stopping(_listed(getattr(obstore, name))) for name in OBJECT_OPERATIONS}
    found["delete"] = delete
    with _all([patch.object(obstore, name, function) for name, function in found.items()]):
        yield


def _listed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose listing is read at once: its pages are one operation."""
    if function.__name__ != "list":
        return function
    return lambda *arguments, **named: [list(chunk) for chunk in function(*arguments, **named)]


@contextmanager
def _all(patches: list[Any]) -> Iterator[None]:
    entered = []
    try:
        for one in patches:
            one.start()
            entered.append(one)
        yield
    finally:
        for one in reversed(entered):
            one.stop()
