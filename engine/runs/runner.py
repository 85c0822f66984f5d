"""The runner: plans once, runs the operators, publishes the version, and calls the plugins at fixed moments.

The order is: plan, operators, publish, point CURRENT to the version, then the plugins' work on the published
version (cleanup, report, exports, training, tracking). What fails after publishing never keeps CURRENT from
moving: it is recorded in ``runs/<version>.json``, ends the command with an error, and is done by the same
command run again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from connectors.base import ConnectorError
from connectors.storage import Place
from engine.core.alarm import errors_of_checks
from engine.core.errors import InputError, RowsieveError, system_error
from engine.core.events import Event, Kind, Listener, Meter, silent
from engine.core.output_layout import output_of, version_folder
from engine.core.policy import current_policy
from engine.core.redaction import redact
from engine.plan.executor_choice import resolved_section
from engine.plan.model import Plan, PlannedOperator
from engine.plan.planner import make_plan
from engine.publish.publisher import make_current, publish
from engine.publish.results import RunResult
from engine.recipe.errors_of_file import errors_of_file
from engine.recipe.recipe import Recipe
from engine.runs.deadline import checked_after
from engine.runs.drift import measure
from engine.runs.operator_runner import OperatorRunner
from engine.runs.plugins import PLUGINS, Publication, RunContext, RunPlugin
from engine.runs.run_record import (
    DONE,
    Step,
    as_known,
    dropped_exports,
    mark_failed,
    read_record,
    run_values,
    step_error,
    write_record,
)
from engine.storage.lease import Lease, hold_lease
from engine.storage.manifest import (
    check_parts,
    is_published,
    pointed_version,
    published_versions,
    read_manifest,
)
from engine.storage.stores import store_of
from engine.storage.withdrawals import check_publishable, recorded_withdrawals, withdrawn_within

_log = logging.getLogger("rowsieve")
MOMENTS: dict[Kind, str] = {
    "start": "operator_started",
    "fit": "operator_progressed",
    "progress": "operator_progressed",
    "finish": "operator_finished",
    "reused": "operator_finished",
}


def run(
    recipe: Recipe,
    *,
    listener: Listener = silent,
    verbose: bool = False,
    plugins: Sequence[RunPlugin] | None = None,
) -> RunResult:
    """Run a recipe and publish a version. Work that earlier runs committed is reused.

    Parameters
    ----------
    recipe
        The checked recipe.
    listener
        Receives every event of the run. An exception that it raises ends the run.
    verbose
        Show Ray's own output.
    plugins
        Called at the moments of :class:`engine.runs.plugins.RunPlugin`; default: all of ``PLUGINS``.

    Returns
    -------
    What the run has published.

    Raises
    ------
    RowsieveError
        The run cannot be carried out; or the version is published and current, but a step after publishing
        failed.

    """
    used = [kind() for kind in PLUGINS] if plugins is None else list(plugins)
    with errors_of_file(recipe), ExitStack() as stack:
        runner = _Runner(recipe, listener, used, stack, verbose=verbose)
        try:
            with errors_of_checks(), checked_after(runner.max_seconds, runner.check_time):
                return runner.run()
        except OSError as error:
            if not runner.holds_lease:
                runner.failed(error)
                raise
            known = system_error(error, str(output_of(recipe.output.path)))
            runner.failed(known)
            raise known from error
        except BaseException as error:
            runner.failed(error)
            raise
        finally:
            runner.closed()


class _OutputChangedError(Exception):
    """Another command has changed the output since planning began."""


def _state_of(output: Place) -> tuple[object, ...]:
    """Return the state that a plan depends on and other commands change: versions, withdrawals, replays.

    A record that cannot be read counts as the text of its error, which planning reports where it matters.
    """
    found: list[object] = []
    for read in (pointed_version, published_versions, recorded_withdrawals, _replays):
        try:
            found.append(read(output))
        except (RowsieveError, ConnectorError, OSError) as error:
            found.append(str(error))
    return tuple(found)


def _replays(output: Place) -> dict[str, int]:
    return store_of(output).replays()


class _Runner:
    """One run. It takes the output's lease when it first has to write, which may be while planning."""

    def __init__(
        self,
        recipe: Recipe,
        listener: Listener,
        plugins: Sequence[RunPlugin],
        stack: ExitStack,
        *,
        verbose: bool,
    ) -> None:
        self._recipe, self._listener, self._plugins = recipe, listener, plugins
        self._stack, self._verbose = stack, verbose
        self._planning = Meter(listener, "plan")
        self._started = time.perf_counter()
        self.max_seconds = current_policy().max_seconds
        self._planned = False
        self._state_when_planned: tuple[object, ...] = ()
        self._parts_taken_over = 0
        self._lease: Lease | None = None
        self._context: RunContext | None = None
        self._operators: OperatorRunner | None = None

    @property
    def holds_lease(self) -> bool:
        """Return whether this run has taken the output's lease."""
        return self._lease is not None

    def run(self) -> RunResult:
        """Plan, compute, publish, and let the plugins work on the published version."""
        self._planning.emit("start")
        plan, context, operators = self._plan()
        self._call("planned")
        results = tuple(operators.run(plan, planned) for planned in plan.operators)
        reused = self._publish(plan, context, operators)
        make_current(plan.output, plan.version, context.lease)
        path = version_folder(plan.output, plan.version)
        version = context.version = Publication(read_manifest(path), results)
        seconds = self._after_publishing(
            context, version, read_record(plan.output, plan.version) if reused else {}
        )
        return RunResult(
            version=plan.version,
            path=path,
            reused=reused,
            operators=results,
            manifest=version.manifest,
            report=version.report,
            mlflow_run_id=context.mlflow_run_id,
            seconds=seconds,
            exports=version.exports,
            training=version.training,
            parts_taken_over=self._parts_taken_over,
            leaks=context.leaks,
        )

    def place_new_rows(self, plan: Plan, operators: Sequence[PlannedOperator]) -> None:
        """Run operators of an undecided plan; see :class:`engine.plan.decisions.DecisionProbe`."""
        _, runner = self._start(plan)
        for planned in operators:
            runner.run(plan, planned)

    def measure_drift(self, plan: Plan) -> list[dict[str, Any]]:
        """Measure the drift of the new rows; see :class:`engine.plan.decisions.DecisionProbe`."""
        _, runner = self._start(plan)
        return measure(plan, runner.executor)

    def failed(self, error: BaseException) -> None:
        """Tell the plugins why the run ends; without a plan, they get the recipe."""
        if self._context is None:
            self._tell("planning_failed", self._recipe, error)
        else:
            self._call("failed", error)

    def closed(self) -> None:
        """Tell the plugins that the run is over."""
        self._call("closed")

    def _plan(self) -> tuple[Plan, RunContext, OperatorRunner]:
        """Return the plan, made again under the lease if another command has changed the output meanwhile."""
        self._state_when_planned = _state_of(output_of(self._recipe.output.path))
        try:
            plan = make_plan(self._recipe, self)
            return plan, *self._start(plan)
        except _OutputChangedError:
            _log.warning(
                "Another command has changed %s while this run was planned: it is planned again.",
                redact(self._recipe.output.path),
            )
        self._planned = False
        plan = make_plan(self._recipe, self)
        return plan, *self._start(plan)

    def _start(self, plan: Plan) -> tuple[RunContext, OperatorRunner]:
        """Take the lease unless it is held, and make ``plan`` the plan that the plugins see.

        Raises _OutputChangedError if the output is another one than when planning began, and InputError
        before anything is computed if the plan would publish what was withdrawn.
        """
        if not self._planned:
            self._planned = True
            self._planning.rows, self._planning.shards = plan.n_rows, len(plan.shards)
            self._planning.emit("finish")
        check_publishable(plan.output, plan.version, plan.inputs, plan.store.replays())
        lease = self._lease or self._take_lease(plan)
        if self._context is None or self._operators is None:
            for name, why in withdrawn_within(plan.output, plan.version, plan.inputs).items():
                _log.warning(
                    "The source holds all rows of the version %s, which was withdrawn: %s. They are "
                    "published again, by another recipe or together with other rows.",
                    name,
                    why.rstrip("."),
                )
            self._operators = operators = OperatorRunner(
                resolved_section(plan), self._dispatch, self._stack, lease, verbose=self._verbose
            )
            self._context = RunContext(
                plan,
                lease,
                self._dispatch,
                lambda: operators.executor,
                lambda: operators.executor_is_open,
            )
        self._context.plan = plan
        return self._context, self._operators

    def _take_lease(self, plan: Plan) -> Lease:
        """Take the lease. Raises _OutputChangedError, and keeps it, if the output has changed."""
        seconds = resolved_section(plan).lease_seconds
        held = hold_lease(plan.output, self._recipe.name, stale_seconds=seconds)
        self._lease = self._stack.enter_context(held)
        if _state_of(plan.output) != self._state_when_planned:
            raise _OutputChangedError
        return self._lease

    def _publish(self, plan: Plan, context: RunContext, operators: OperatorRunner) -> bool:
        """Publish the version unless it is published already; return whether it was."""
        if is_published(plan.output, plan.version):
            folder = version_folder(plan.output, plan.version)
            check_parts(folder, read_manifest(folder))
            operators.meter(plan, "publish").reused()
            return True
        meter = operators.start_meter(plan, "publish")
        try:
            for part in publish(plan, operators.executor, context.lease, operators.part_digests):
                meter.add(part["rows"])
                self._parts_taken_over += part["taken_over"]
        except ConnectorError as error:  # a file of the source has changed or is gone
            raise InputError(str(error)) from None
        meter.emit("finish")
        return False

    def _after_publishing(
        self, context: RunContext, version: Publication, earlier: Mapping[str, Any]
    ) -> float:
        """Call ``published`` of every plugin and keep the record. Raises an error if a step failed.

        ``earlier`` is the record of the run that published the version, if that was not this one. Returns the
        seconds since the run started.
        """
        work = [plugin for plugin in self._plugins if type(plugin).published is not RunPlugin.published]
        steps = [Step(plugin.name) for plugin in work]
        errors: list[Exception] = []
        self._write_record(context, version, steps, earlier)
        for plugin, step in zip(work, steps, strict=True):
            try:
                plugin.published(context)
                step.status, step.at = DONE, time.time()
            except Exception as error:
                known = as_known(error)
                _log.debug("%s failed after publishing", step.name, exc_info=True)
                mark_failed(step, known)
                errors.append(known)
            self._write_record(context, version, steps, earlier)
        if errors:
            raise step_error(context.plan.version, [s for s in steps if s.error], errors) from errors[0]
        return time.perf_counter() - self._started

    def _write_record(
        self,
        context: RunContext,
        version: Publication,
        steps: Sequence[Step],
        earlier: Mapping[str, Any],
    ) -> None:
        outcome = {
            "mlflow_run_id": context.mlflow_run_id,
            "mlflow_server": context.mlflow_server,
            "seconds": time.perf_counter() - self._started,
            "parts_taken_over": self._parts_taken_over,
        }
        asked_for = [(table.format, table.path) for table in context.plan.recipe.output.export]
        write_record(
            context.plan.output,
            context.plan.version,
            steps,
            **run_values(outcome, earlier, time.time()),
            exports=[asdict(one) for one in version.exports],
            failed_exports=[*version.failed_exports, *dropped_exports(earlier, asked_for)],
        )

    def _dispatch(self, event: Event) -> None:
        """Pass an event to the listener and to the plugins."""
        self.check_time()
        self._listener(event)
        self._call(MOMENTS[event.kind], event)

    def check_time(self) -> None:
        """Raise InputError if the run has taken longer than the administrator's policy allows."""
        most, published = self.max_seconds, self._context is not None and self._context.version is not None
        if most is not None and not published and time.perf_counter() - self._started > most:
            raise InputError(
                f"{self._recipe.place}: the run has taken longer than the {most:,} seconds that this "
                f"installation allows. Committed work is kept; the same command continues from there. Its "
                f"administrator can raise ROWSIEVE_MAX_SECONDS."
            )

    def _call(self, moment: str, *values: Any) -> None:
        """Call one moment of every plugin. A plugin that raises is reported and never ends the run."""
        if self._context is not None:
            self._tell(moment, self._context, *values)

    def _tell(self, moment: str, *values: Any) -> None:
        for plugin in self._plugins:
            method: Callable[..., None] = getattr(plugin, moment)
            try:
                method(*values)
            except Exception as error:
                reason = redact(f"{type(error).__name__}: {error}")
                _log.warning("The plugin %s failed at %s: %s. The run goes on.", plugin.name, moment, reason)
