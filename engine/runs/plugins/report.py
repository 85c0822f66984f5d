"""The HTML report of a published version."""

from __future__ import annotations

from typing import ClassVar

from engine.plan.likely_leaks import leak_text
from engine.report import write_report
from engine.runs.plugins.base import RunContext, RunPlugin


class Report(RunPlugin):
    """Writes ``reports/<version>.html``, unless the recipe disables the report."""

    name: ClassVar[str] = "report"

    def published(self, run: RunContext) -> None:
        """Write the report of the published version."""
        plan, version = run.plan, run.publication
        if not plan.recipe.report.enabled:
            return
        path = plan.output / "reports" / f"{plan.version}.html"
        meter = run.meter("report")
        meter.emit("start")
        metrics = {result.name: result.metrics for result in version.results}
        warnings = [f"{text[0].upper()}{text[1:]}" for text in map(leak_text, run.leaks)]
        executor = run.executor_for_step(self.name)
        write_report(plan, version.manifest, metrics, path, executor, version.descriptions, warnings)
        meter.emit("finish")
        version.report = path
