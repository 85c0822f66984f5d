"""Exports of a published version to the tables of `output.export`."""

from __future__ import annotations

from typing import ClassVar

from connectors.tables.export import Export
from engine.core.errors import InputError
from engine.core.output_layout import version_folder
from engine.core.redaction import redact
from engine.plan.exports import open_exports
from engine.publish.export import ExportResult, export
from engine.runs.plugins.base import RunContext, RunPlugin


class Exports(RunPlugin):
    """Writes the version into every table that does not have it yet."""

    name: ClassVar[str] = "exports"

    def published(self, run: RunContext) -> None:
        """Write to every table, then raise InputError for those that failed."""
        sections = run.plan.recipe.output.export
        done: list[ExportResult] = []
        failed: list[dict[str, str]] = []
        errors: list[InputError] = []
        for section, table in zip(sections, open_exports(sections, run.plan.output), strict=True):
            try:
                done.append(_export(run, table))
            except InputError as error:
                errors.append(error)
                failed.append({"format": section.format, "path": section.path, "error": redact(str(error))})
        run.publication.exports, run.publication.failed_exports = tuple(done), tuple(failed)
        if errors:
            raise InputError(" ".join(str(error) for error in errors)) from errors[0]


def _export(run: RunContext, table: Export) -> ExportResult:
    meter = run.meter(f"export to {table.format}")
    meter.emit("start")
    folder = version_folder(run.plan.output, run.plan.version)
    exported = export(folder, run.publication.manifest, table, run.executor)
    meter.emit("finish")
    return exported
