"""A warning before the work begins: columns that tell the label on their own."""

from __future__ import annotations

import logging
from typing import ClassVar

from engine.core.errors import RowsieveError
from engine.plan.likely_leaks import leak_text, likely_leaks
from engine.runs.plugins.base import RunContext, RunPlugin
from operators.base import OperatorError

_log = logging.getLogger("rowsieve")


class Leaks(RunPlugin):
    """Looks at a bounded sample of the source, warns of likely leaks, and keeps them for the report."""

    name: ClassVar[str] = "leaks"

    def planned(self, run: RunContext) -> None:
        """Look for leaks. An error is ignored here, since the run itself reports what cannot be read."""
        try:
            run.leaks = likely_leaks(run.plan)
        except (RowsieveError, OperatorError, OSError):
            _log.debug("The source could not be searched for leaks", exc_info=True)
            return
        for leak in run.leaks:
            _log.warning("%s", leak_text(leak))
