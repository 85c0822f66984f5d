"""The interface of run plugins, which the runner calls at fixed moments of a run.

The moments of a run, in order: ``planned``, then for each operator or step ``operator_started``,
``operator_progressed`` and ``operator_finished``, then ``published``, then ``closed``. ``failed`` comes
before ``closed`` if the run ends with an error; if it ends before there is a plan, ``planning_failed`` is the
only one. While an incremental run takes its decision, the operators
run before ``planned`` is called, and ``run.plan`` is the undecided plan.

An exception that a plugin raises never changes the data: at ``published`` the version is already the
current one, and the runner records the failure in ``runs/<version>.json`` and ends with an error after all
plugins had their turn. Running the same command again does what is missing. At every other moment the
runner logs the exception and goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from connectors.storage import Place
from engine.core.events import Event, Listener, Meter
from engine.execution.job import ShardExecutor
from engine.execution.local_executor import LocalExecutor
from engine.plan.model import Plan
from engine.publish.export import ExportResult
from engine.publish.results import OperatorResult
from engine.recipe.recipe import Recipe
from engine.storage.lease import Lease
from operators.base import Executor
from operators.leaks import Leak

MAX_SHARDS_IN_PROCESS = 64
"""Number of shards that are counted in this process in less time than Ray takes to start."""
MAX_ROWS_IN_PROCESS = 100_000
"""Number of rows that are counted in this process in less time than Ray takes to give its tasks out."""


@dataclass
class Publication:
    """A published version, and the results of the plugins."""

    manifest: dict[str, Any]
    results: tuple[OperatorResult, ...]
    descriptions: dict[str, Any] | None = None
    """The groups in words; see ``engine.runs.descriptions``."""
    report: Place | None = None
    exports: tuple[ExportResult, ...] = ()
    failed_exports: tuple[dict[str, str], ...] = ()
    """``format``, ``path`` and ``error`` of every table that could not be written."""
    training: dict[str, Any] | None = None


@dataclass
class RunContext:
    """The parts of a run that a plugin may use. The first call of ``executor`` opens the executor."""

    plan: Plan
    lease: Lease
    listener: Listener
    executor: Callable[[], ShardExecutor]
    executor_is_open: Callable[[], bool]
    version: Publication | None = None
    """The published version; None before ``published``."""
    mlflow_run_id: str | None = None
    leaks: tuple[Leak, ...] = ()
    """Columns that tell the label on their own in a sample of the source."""
    mlflow_server: str | None = None
    """Digest of the address of the MLflow server that has the run."""

    def executor_for_step(self, step: str) -> Executor:
        """Return the run's executor; one in this process if Ray would cost more time than it saves."""
        few_rows = self.plan.n_rows <= MAX_ROWS_IN_PROCESS or not self.executor_is_open()
        if few_rows and len(self.plan.shards) <= MAX_SHARDS_IN_PROCESS:
            return LocalExecutor()
        opened = self.executor()
        opened.operator = step
        return opened

    def meter(self, step: str) -> Meter:
        """Return a meter for one step of a plugin; it counts against all rows and shards of the plan."""
        return Meter(self.listener, step, self.plan.n_rows, len(self.plan.shards))

    @property
    def publication(self) -> Publication:
        """The published version. Raises RuntimeError before ``published``."""
        if self.version is None:
            raise RuntimeError("The run has not published its version yet.")
        return self.version


class RunPlugin:
    """Base class of plugins. Every method does nothing by default."""

    name: ClassVar[str] = "plugin"
    """Name of the plugin's step in ``runs/<version>.json`` and in errors."""

    def planned(self, run: RunContext) -> None:
        """React to the final plan. The caller holds the output's lease."""

    def operator_started(self, run: RunContext, event: Event) -> None:
        """React to the start of an operator or of another step."""

    def operator_progressed(self, run: RunContext, event: Event) -> None:
        """React to progress: shards that were committed, or a pass of a fit."""

    def operator_finished(self, run: RunContext, event: Event) -> None:
        """React to the end of an operator or of another step."""

    def published(self, run: RunContext) -> None:
        """Work with the version, which is published and current. Must be safe to repeat."""

    def failed(self, run: RunContext, error: BaseException) -> None:
        """React to the error that ends the run."""

    def planning_failed(self, recipe: Recipe, error: BaseException) -> None:
        """React to the error that ends a run before it has a plan. No lease is held."""

    def closed(self, run: RunContext) -> None:
        """Finish. The runner calls this exactly once, whether the run failed or not."""
