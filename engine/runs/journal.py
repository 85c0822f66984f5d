"""What a run writes down while it goes, so that `rowsieve status` needs nothing but files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from connectors.storage import Place
from engine.core.errors import Exit, RowsieveError
from engine.core.events import Event, Listener
from engine.core.json_files import write_json
from engine.core.redaction import redact

PROGRESS, ERROR = "progress.json", "error.json"
EVERY_SECONDS = 1.0


class Journal:
    """A listener that keeps the latest event, and how the run ended if it ended badly.

    Nothing here may end a run: what cannot be written is left out.
    """

    def __init__(
        self, output: Place, version: str, listener: Listener, clock: Callable[[], float] = time.time
    ) -> None:
        self._folder, self.version = output / "runs", version
        self._listener, self._clock = listener, clock
        self._written = 0.0

    def __call__(self, event: Event) -> None:
        """Pass an event on; write it down if it is a new step, or a second has passed."""
        self._listener(event)
        now = self._clock()
        if event.kind != "progress" or now - self._written >= EVERY_SECONDS:
            self._written = now
            self._write(PROGRESS, asdict(event) | {"at": now})

    def failed(self, error: BaseException) -> None:
        """Keep why the run ends."""
        code = error.exit_code if isinstance(error, RowsieveError) else Exit.CRASH
        text = redact(str(error) or type(error).__name__)
        self._write(ERROR, {"error": text, "exit_code": int(code), "at": self._clock()})

    def succeeded(self) -> None:
        """Forget earlier errors."""
        with suppress(OSError):
            (self._folder / ERROR).unlink(missing_ok=True)

    def _write(self, name: str, record: dict[str, Any]) -> None:
        with suppress(OSError):
            write_json(self._folder / name, {"version": self.version} | record)


def read_journal(output: Place, name: str, version: str) -> dict[str, Any] | None:
    """The latest progress or error of a version's run; None where there is none."""
    try:
        found = json.loads((output / "runs" / name).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("version") == version else None
