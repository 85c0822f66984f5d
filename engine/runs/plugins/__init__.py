"""The plugins of a run, in the order in which the runner calls them."""

from engine.runs.plugins.base import Publication, RunContext, RunPlugin
from engine.runs.plugins.cleanup import Cleanup
from engine.runs.plugins.dagster_pipes import DagsterPipes
from engine.runs.plugins.descriptions import Descriptions
from engine.runs.plugins.exports import Exports
from engine.runs.plugins.journal import Journal
from engine.runs.plugins.leaks import Leaks
from engine.runs.plugins.openlineage import OpenLineage
from engine.runs.plugins.prometheus import Prometheus
from engine.runs.plugins.report import Report
from engine.runs.plugins.tracking import Tracking
from engine.runs.plugins.training import Training

PLUGINS: tuple[type[RunPlugin], ...] = (
    Journal,
    OpenLineage,
    Prometheus,
    Leaks,
    Cleanup,
    Descriptions,
    Report,
    Exports,
    Training,
    Tracking,
    DagsterPipes,
)
"""The plugins of every run, in the order in which the runner calls them. Tracking comes after those whose
results it records, and the report to Dagster names the run that Tracking made."""

__all__ = [
    "PLUGINS",
    "Cleanup",
    "DagsterPipes",
    "Descriptions",
    "Exports",
    "Journal",
    "Leaks",
    "OpenLineage",
    "Prometheus",
    "Publication",
    "Report",
    "RunContext",
    "RunPlugin",
    "Tracking",
    "Training",
]
