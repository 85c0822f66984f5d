"""Descriptions of the groups of a published version in words."""

from __future__ import annotations

from contextlib import suppress
from typing import ClassVar

from engine.core.errors import InputError
from engine.core.json_files import write_json
from engine.runs.descriptions import describe, descriptions_file, read_descriptions
from engine.runs.plugins.base import RunContext, RunPlugin


class Descriptions(RunPlugin):
    """Writes ``reports/<version>.groups.json``, from which report, MLflow, API and CLI read."""

    name: ClassVar[str] = "descriptions"

    def published(self, run: RunContext) -> None:
        """Describe the groups, unless that has been done. A file that cannot be used is replaced."""
        plan, version = run.plan, run.publication
        with suppress(InputError):
            version.descriptions = read_descriptions(plan.output, plan.version)
        if version.descriptions is not None:
            return
        meter = run.meter(self.name)
        meter.emit("start")
        found = describe(plan, run.executor_for_step(self.name))
        write_json(descriptions_file(plan.output, plan.version), found, root=plan.output)
        version.descriptions = found
        meter.emit("finish")
