"""The journal: files from which `rowsieve status` reads how far a run is and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, ClassVar

from connectors.storage import Place, remove_file
from engine.core.errors import Exit, LockedError, RowsieveError
from engine.core.events import Event
from engine.core.json_files import read_json, write_json
from engine.core.redaction import redact
from engine.runs.plugins.base import RunContext, RunPlugin

PROGRESS, ERROR = "progress.json", "error.json"
SECONDS_BETWEEN_WRITES = 1.0
_NUMBER = (int, float)
FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    PROGRESS: {
        name: str if isinstance(value, str) else _NUMBER
        for name, value in (asdict(Event("start", "")) | {"at": 0.0}).items()
    },
    ERROR: {"error": str, "exit_code": int, "at": _NUMBER},
}
"""Fields of each file, and their types. A file without one of them was damaged and counts as missing."""


class Journal(RunPlugin):
    """Keeps the latest event in ``runs/progress.json`` and the error of a failed run in ``runs/error.json``.

    A file that cannot be written is left out; it never ends the run.
    """

    name: ClassVar[str] = "journal"

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._written = 0.0
        self._failed = False

    def operator_started(self, run: RunContext, event: Event) -> None:
        """Write the event into the journal."""
        self._note(run, event)

    def operator_progressed(self, run: RunContext, event: Event) -> None:
        """Write the event of a fit, and other events at most once per second."""
        if event.kind != "progress" or self._clock() - self._written >= SECONDS_BETWEEN_WRITES:
            self._note(run, event)

    def operator_finished(self, run: RunContext, event: Event) -> None:
        """Write the event into the journal."""
        self._note(run, event)

    def failed(self, run: RunContext, error: BaseException) -> None:
        """Write why the run ends, unless the output belongs to another run by now."""
        self._failed = True
        if isinstance(error, LockedError) and not _holds_lease(run):
            return
        code = error.exit_code if isinstance(error, RowsieveError) else Exit.CRASH
        stopped = isinstance(error, KeyboardInterrupt)  # by Ctrl-C or SIGTERM
        text = "stopped" if stopped else redact(str(error) or type(error).__name__)
        _write(run, ERROR, {"error": text, "exit_code": int(code), "at": self._clock()})

    def closed(self, run: RunContext) -> None:
        """Remove the error of an earlier run if this one succeeded."""
        if not self._failed:
            with suppress(OSError):
                remove_file(run.plan.output / "runs" / ERROR, root=run.plan.output)

    def _note(self, run: RunContext, event: Event) -> None:
        self._written = self._clock()
        _write(run, PROGRESS, asdict(event) | {"at": self._written})


def _holds_lease(run: RunContext) -> bool:
    try:
        run.lease.check()
    except LockedError:
        return False
    return True


def _write(run: RunContext, name: str, record: dict[str, Any]) -> None:
    with suppress(OSError):
        place = run.plan.output / "runs" / name
        record = {"version": run.plan.version} | record
        write_json(place, record, durable=name == ERROR, root=run.plan.output)


def read_journal(output: Place, name: str, version: str) -> dict[str, Any] | None:
    """Return the latest progress or error of a version's run; None if there is none that can be read."""
    try:
        found = read_json(output / "runs" / name)
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.get("version") != version:
        return None
    whole = all(isinstance(found.get(key), kinds) for key, kinds in FIELDS[name].items())
    return found if whole else None
