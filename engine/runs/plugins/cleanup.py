"""Removal of files that killed writers left in the output."""

from __future__ import annotations

import logging
from typing import ClassVar

from engine.runs.plugins.base import RunContext, RunPlugin
from engine.storage.run_store import sweep

_log = logging.getLogger("rowsieve")


class Cleanup(RunPlugin):
    """Removes temporary files and parts of versions that other runs began and never finished."""

    name: ClassVar[str] = "cleanup"

    def published(self, run: RunContext) -> None:
        """Remove the files. Workers of a killed driver may have gone on writing for some seconds."""
        plan = run.plan
        removed = run.lease.remove_unfinished_versions(plan.output / "versions", plan.version)
        if removed:
            _log.info("Removed unfinished versions: %s", ", ".join(removed))
        for planned in plan.operators:
            plan.store.sweep(planned.fingerprint)
        for name in ("runs", "reports"):
            sweep(plan.output / name, root=plan.output)
