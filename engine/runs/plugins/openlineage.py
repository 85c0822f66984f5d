"""OpenLineage events of a run; see engine.publish.lineage_events."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import ClassVar

from connectors.storage import Place
from engine.core.events import Event
from engine.core.output_layout import output_of
from engine.plan.model import Plan
from engine.publish.lineage_events import Datasets, LineageRun, begin, finish
from engine.publish.lineage_facets import (
    drift_tests,
    manifest_facets,
    output_name,
    schema_facet,
    source_name,
    statistics_facet,
    version_lineage,
)
from engine.publish.lineage_outbox import is_configured
from engine.recipe.recipe import Recipe
from engine.runs.plugins.base import RunContext, RunPlugin


class OpenLineage(RunPlugin):
    """Reports a run to the endpoint that the environment configures for OpenLineage; else it does nothing.

    An endpoint that is away or slow never delays or fails the run: its events wait in the output.
    """

    name: ClassVar[str] = "openlineage"

    def __init__(self) -> None:
        self._made = datetime.now(UTC)
        self._run: LineageRun | None = None
        self._begun = False
        self._error: BaseException | None = None

    def planned(self, run: RunContext) -> None:
        """Report the start, unless operators have run before the plan was final."""
        self._start(run)

    def operator_started(self, run: RunContext, event: Event) -> None:
        """Report the operator that is running now."""
        self._at_operator(run, event, "started")

    def operator_finished(self, run: RunContext, event: Event) -> None:
        """Report an operator that has nothing left to do."""
        self._at_operator(run, event, "reused" if event.kind == "reused" else "finished")

    def failed(self, run: RunContext, error: BaseException) -> None:
        """Keep why the run ends."""
        self._error = error

    def planning_failed(self, recipe: Recipe, error: BaseException) -> None:
        """Report the start, at its own time, and the end of a run that has no plan."""
        if not is_configured():
            return
        output = output_of(recipe.output.path)
        started = begin(output, recipe.name, "RUN")
        if started is not None:
            source = source_name(recipe.source.path, recipe.source.options or {})
            started.start(_named(source, output), at=self._made)
            finish(started, error, None)

    def closed(self, run: RunContext) -> None:
        """Report the end of the run."""
        self._start(run)
        if self._run is not None:
            found = None
            with suppress(Exception):  # the run has ended, also where its datasets cannot be described
                found = datasets_of(run)
            finish(self._run, self._error, found)

    def _start(self, run: RunContext) -> None:
        if self._begun:
            return
        self._begun = True
        started = begin(run.plan.output, run.plan.recipe.name, "RUN")
        if started is not None:
            started.start(datasets_of(run))
            self._run = started

    def _at_operator(self, run: RunContext, event: Event, state: str) -> None:
        if event.operator not in {planned.name for planned in run.plan.operators}:
            return
        self._start(run)
        if self._run is not None:
            self._run.running(event.operator, state)


def _named(source: tuple[str, str], output: Place) -> Datasets:
    """Return source and output of a run, of which nothing is known but their names."""
    from openlineage.client import event_v2

    return Datasets([event_v2.InputDataset(*source)], [event_v2.OutputDataset(*output_name(output))])


def datasets_of(run: RunContext) -> Datasets:
    """Return source, version and drift checks of a run; without facets of the version before it exists."""
    from openlineage.client import event_v2
    from openlineage.client.facet_v2 import data_quality_metrics_input_dataset, dataset_version_dataset

    plan = run.plan
    source = source_name(plan.recipe.source.path, plan.recipe.source.options or {})
    columns = [{"name": column.name, "type": str(column.type)} for column in plan.listing.schema]
    rows = data_quality_metrics_input_dataset.DataQualityMetricsInputDatasetFacet({}, rowCount=plan.n_rows)
    inputs = [
        event_v2.InputDataset(
            *source, facets={"schema": schema_facet(columns)}, inputFacets={"dataQualityMetrics": rows}
        )
    ]
    version = dataset_version_dataset.DatasetVersionDatasetFacet(plan.version)
    facets, written = {"version": version}, {}
    tests = []
    if run.version is not None:
        manifest = run.version.manifest
        lineage = version_lineage(source, manifest, columns_added(plan))
        facets = {**manifest_facets(manifest), "columnLineage": lineage}
        sizes = [part["bytes"] for part in manifest["parts"]]
        written = statistics_facet(manifest["rows"], sum(sizes), len(sizes))
        tests = drift_tests(manifest)
    return Datasets(
        inputs,
        [event_v2.OutputDataset(*output_name(plan.output), facets=facets, outputFacets=written)],
        tests,
    )


def columns_added(plan: Plan) -> dict[str, str]:
    """Return the operator that adds each column of the run store."""
    return {field.name: planned.name for planned in plan.operators for field in planned.operator.adds}
