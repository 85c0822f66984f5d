"""The HTML report of a published version."""

from __future__ import annotations

from typing import ClassVar

from engine.plan.likely_leaks import leak_text
from engine.report import write_report
from engine.runs.plugins.base import RunContext, RunPlugin
from operators.base import Executor

MAX_SHARDS_IN_PROCESS = 64
"""This many shards are counted in this process in less time than Ray takes to start."""


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
        executor = executor_for_few_shards(run, self.name)
        write_report(plan, version.manifest, metrics, path, executor, version.descriptions, warnings)
        meter.emit("finish")
        version.report = path


def executor_for_few_shards(run: RunContext, step: str) -> Executor | None:
    """Return the run's executor; None, for this process, if Ray would be started for few shards alone."""
    if not run.executor_is_open() and len(run.plan.shards) <= MAX_SHARDS_IN_PROCESS:
        return None
    executor = run.executor()
    executor.operator = step
    return executor
