"""Progress of a training: a worker notes it in a small file, which the process that started it reads.

The file lies beside the model, so that a worker on any host can write it. It is a note alone: a training that
cannot write it goes on, and what it does not hold comes from the record of the training in the end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter

from connectors.base import ConnectorError
from connectors.storage import Place, remove_file
from engine.core.json_files import read_json, write_json
from engine.training.fit.callbacks import EpochEnd, PhaseEnd, StepEnd

PROGRESS = ".progress.json"
WRITE_SECONDS, READ_SECONDS = 0.5, 1.0
_EPOCHS = TypeAdapter(list[EpochEnd])
Listener = Callable[[list[EpochEnd]], None]
"""Gets epochs that have ended, each once, in order."""


class ProgressFile:
    """A callback that writes the epochs so far to a file, at most twice a second."""

    def __init__(self, path: Place, root: Place) -> None:
        self._path, self._root = path, root
        self._epochs: list[EpochEnd] = []
        self._written = 0.0

    def on_step(self, event: StepEnd) -> None:
        """Implement the method of :class:`engine.training.fit.callbacks.Callback`."""

    def on_phase_end(self, event: PhaseEnd) -> None:
        """Implement the method of :class:`engine.training.fit.callbacks.Callback`."""

    def on_epoch(self, event: EpochEnd) -> None:
        """Add an epoch; write the file unless it was written just now."""
        self._epochs.append(event)
        if time.monotonic() - self._written < WRITE_SECONDS:
            return
        with suppress(OSError, ConnectorError):
            notes = [asdict(epoch) for epoch in self._epochs]
            write_json(self._path, notes, durable=False, root=self._root)
        self._written = time.monotonic()


class ProgressReader:
    """Reads a progress file and tells a listener of the epochs that are new."""

    def __init__(self, path: Place, root: Place, listener: Listener) -> None:
        self._path, self._root, self._listener = path, root, listener
        self._last = 0

    def read(self) -> None:
        """Tell of the epochs since the last call; a file that cannot be read has none."""
        try:
            found = _EPOCHS.validate_python(read_json(self._path, root=self._root))
        except (OSError, ValueError, ConnectorError):
            return
        new = [epoch for epoch in found if epoch.number > self._last]
        if new:
            self._last = new[-1].number
            self._listener(new)


@contextmanager
def progress_read(folder: Place, root: Place, listener: Listener) -> Iterator[None]:
    """Tell a listener of a training's epochs, from a thread, while the block goes on."""
    path, done = folder / PROGRESS, threading.Event()
    reader = ProgressReader(path, root, listener)

    def poll() -> None:
        while not done.wait(READ_SECONDS):
            reader.read()

    _remove(path, root)  # of a training that was killed
    thread = threading.Thread(target=poll, name="rowsieve-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        reader.read()
        _remove(path, root)


def _remove(path: Place, root: Place) -> None:
    if isinstance(path, Path) and not path.parent.exists():
        return
    with suppress(OSError, ConnectorError):
        remove_file(path, root=root)
