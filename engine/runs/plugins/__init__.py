"""The plugins of a run, in the order in which the runner calls them."""

from engine.runs.plugins.base import Publication, RunContext, RunPlugin
from engine.runs.plugins.cleanup import Cleanup
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
)
"""The plugins of every run, in the order in which the runner calls them. Tracking is last, since it records
the results of the others."""

__all__ = [
    "PLUGINS",
    "Cleanup",
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
