"""A run: plan, fit and apply each operator, publish, record. Committed work is never done twice."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from connectors.storage import Place
from engine.core.errors import InfeasibleError, InputError, system_error
from engine.core.events import Listener, Meter, silent
from engine.core.json_files import write_json
from engine.core.output_layout import version_folder
from engine.execution.cluster import executor as open_executor
from engine.execution.job import Failure, Job, ShardExecutor
from engine.execution.progress_executor import ProgressExecutor
from engine.execution.quarantine import allowed_rows, check_budget
from engine.plan.exports import open_exports
from engine.plan.model import Plan, PlannedOperator
from engine.plan.planner import make_plan
from engine.publish.export import Exported, export
from engine.publish.publisher import point_to, publish
from engine.publish.results import OperatorResult, RunResult
from engine.publish.tracking import Tracker
from engine.recipe.recipe import Recipe
from engine.report import write_report
from engine.runs.base_reuse import adopt, delta_of
from engine.runs.increment_decision import settle
from engine.runs.journal import Journal
from engine.runs.prometheus import Gauges
from engine.runs.training_after_run import after_publish
from engine.storage.lease import Lease, writing
from engine.storage.manifest import is_published, read_manifest
from engine.storage.run_store import Commit, sweep
from operators.base import CannotPredictError, Context, Executor, OperatorError, ResourceError

_log = logging.getLogger("rowsieve")
FEW_SHARDS = 64
"""So many are counted for a report in less time than Ray takes to start."""


def run(recipe: Recipe, *, listener: Listener = silent, verbose: bool = False) -> RunResult:
    """Carry a recipe out. Raises RowsieveError; what was committed until then is kept and reused."""
    meter = Meter(listener, "plan")
    meter.tell("start")
    plan = make_plan(recipe)
    meter.rows, meter.shards = plan.n_rows, len(plan.shards)
    meter.tell("finish")
    output = plan.output
    journal = Journal(output, plan.version, Gauges(listener, recipe.name, plan.version))
    held = writing(output, recipe.name, stale_seconds=recipe.run.lease_seconds)
    with held as lease, ExitStack() as stack:
        session = Session(plan, journal, stack, verbose, lease)
        try:
            plan = session.plan = settle(session)
            journal.version = plan.version
            with Tracker.open(plan) as tracker:
                result = _carry_out(plan, session, tracker, meter)
                result = replace(result, training=session.train(result.manifest))
                tracker.note(result.training)
        except OSError as error:
            known = system_error(error)
            journal.failed(known)
            raise known from error
        except BaseException as error:
            journal.failed(error)
            raise
        journal.succeeded()
        return result


def _carry_out(plan: Plan, session: Session, tracker: Tracker, meter: Meter) -> RunResult:
    results = tuple(session.operator(planned) for planned in plan.operators)
    reused = session.publish()
    path = version_folder(plan.output, plan.version)
    manifest = read_manifest(path)
    report = session.report(manifest, results)
    tracker.finish(manifest, results, report)
    session.point()
    session.sweep_versions()
    exports = session.export(manifest)
    for planned in plan.operators:  # workers of a killed driver may have gone on for seconds
        plan.store.sweep(planned.fingerprint)
    for name in ("runs", "reports"):
        sweep(plan.output / name)
    seconds = meter.seconds
    record = {
        "version": plan.version,
        "mlflow_run_id": tracker.run_id,
        "seconds": seconds,
        "exports": [asdict(one) for one in exports],
        "parts_taken_over": session.taken_over,
    }
    write_json(plan.output / "runs" / f"{plan.version}.json", record)
    return RunResult(
        plan.version,
        path,
        reused,
        results,
        manifest,
        report,
        tracker.run_id,
        seconds,
        exports=exports,
        parts_taken_over=session.taken_over,
    )


class Session:
    """The steps of one run. Ray starts only when something is left to compute."""

    def __init__(self, plan: Plan, listener: Listener, stack: ExitStack, verbose: bool, lease: Lease) -> None:
        self.plan, self.listener, self._stack = plan, listener, stack
        self._verbose, self._lease = verbose, lease
        self._faulty: dict[str, int] = {}
        self._done: dict[str, OperatorResult] = {}
        self._sums: dict[str, dict[int, str]] = {}
        self.taken_over = 0
        """Parts of the version that are the base version's."""

    @cached_property
    def executor(self) -> ShardExecutor:
        """The recipe's executor, opened at first use."""
        spec = self.plan.recipe.run
        meter = Meter(self.listener, spec.executor)
        meter.tell("start")
        opened = self._stack.enter_context(open_executor(spec, verbose=self._verbose))
        meter.tell("finish")
        return opened

    def operator(self, planned: PlannedOperator) -> OperatorResult:
        """Fit and apply one operator, except what is committed already; in one session only once."""
        if planned.fingerprint not in self._done:
            self._done[planned.fingerprint] = self._operator(planned)
        return self._done[planned.fingerprint]

    def _operator(self, planned: PlannedOperator) -> OperatorResult:
        store = self.plan.store
        adopt(self.plan, planned)
        done = store.committed(planned.fingerprint)
        missing = [shard.index for shard in self.plan.shards if shard.index not in done]
        fitted = store.fitted(planned.fingerprint)
        if fitted and not missing:
            self._note(planned, done)
            self._meter(planned.name).reused()
            return OperatorResult(planned.name, 0, len(done), 0.0, fitted["metrics"])
        meter = self._begin(planned.name)
        store.sweep(planned.fingerprint)
        metrics = fitted["metrics"] if fitted else self._fit(planned)
        set_aside = sum(commit.quarantined for commit in done.values())
        meter.add(sum(commit.rows for commit in done.values()), len(done), quarantined=set_aside)
        for commit in self._apply(planned, missing):
            done[commit.shard] = commit
            meter.add(commit.rows, worked=commit.seconds, quarantined=commit.quarantined)
        self._note(planned, done)
        meter.tell("finish")
        pace = meter.event("finish").rows_per_worker_second
        return OperatorResult(
            planned.name, len(missing), len(done) - len(missing), meter.seconds, metrics, pace
        )

    def publish(self) -> bool:
        """Publish the version unless it is there; return whether it was."""
        if is_published(self.plan.output, self.plan.version):
            self._meter("publish").reused()
            return True
        meter = self._begin("publish")
        for part in publish(self.plan, self.executor, self._lease, self._sums):
            meter.add(part["rows"])
            self.taken_over += part["taken_over"]
        meter.tell("finish")
        return False

    def point(self) -> None:
        """Make the version the current one."""
        point_to(self.plan.output, self.plan.version, self._lease)

    def sweep_versions(self) -> None:
        """Remove parts of versions that other runs had begun and never finished."""
        gone = self._lease.sweep_versions(self.plan.output / "versions", self.plan.version)
        if gone:
            _log.info("Removed unfinished versions: %s", ", ".join(gone))

    def train(self, manifest: dict[str, Any]) -> dict[str, Any] | None:
        """What the recipe's section ``train`` asks for, once the version is current."""
        if self.plan.recipe.train is None:
            return None
        meter = self._meter("train")
        meter.tell("start")
        found = after_publish(self.plan.recipe, self.plan.output, manifest, lambda: self.executor)
        meter.tell("finish")
        return found

    def export(self, manifest: dict[str, Any]) -> tuple[Exported, ...]:
        """Write the version into the recipe's tables, those that have not got it."""
        done = []
        folder = version_folder(self.plan.output, self.plan.version)
        for table in open_exports(self.plan.recipe.output.export):
            meter = self._meter(f"export to {table.format}")
            meter.tell("start")
            done.append(export(folder, manifest, table, lambda: self.executor))
            meter.tell("finish")
        return tuple(done)

    def report(self, manifest: dict[str, Any], results: tuple[OperatorResult, ...]) -> Place | None:
        """Draw the report of this version, unless the recipe does without."""
        if not self.plan.recipe.report.enabled:
            return None
        path = self.plan.output / "reports" / f"{self.plan.version}.html"
        meter = Meter(self.listener, "report")
        meter.tell("start")
        metrics = {result.name: result.metrics for result in results}
        write_report(self.plan, manifest, metrics, path, self._report_executor())
        meter.tell("finish")
        return path

    def _report_executor(self) -> Executor | None:
        """None, for this process, where Ray would be started for a few shards alone."""
        if "executor" not in vars(self) and len(self.plan.shards) <= FEW_SHARDS:
            return None
        self.executor.operator = "report"
        return self.executor

    def _note(self, planned: PlannedOperator, commits: dict[int, Commit]) -> None:
        """Keep what was committed, reused or not: too many rows set aside by all of them end the run."""
        self._sums[planned.fingerprint] = {shard: commit.sha256 for shard, commit in commits.items()}
        self._faulty[planned.fingerprint] = sum(commit.quarantined for commit in commits.values())
        check_budget(self.plan, sum(self._faulty.values()), planned.name)

    def _begin(self, name: str) -> Meter:
        self.executor.operator = name  # opened before the clock starts: Ray takes seconds
        meter = self._meter(name)
        meter.tell("start")
        return meter

    def _meter(self, name: str) -> Meter:
        return Meter(self.listener, name, self.plan.n_rows, len(self.plan.shards))

    def _fit(self, planned: PlannedOperator) -> dict[str, float]:
        meter = self._meter(planned.name)
        meter.tell("fit")
        store = self.plan.store
        with store.fitting(planned.fingerprint) as scratch:
            try:
                watched = ProgressExecutor(self.executor, meter.fitting)
                metrics = self._learn(planned, scratch, watched)
            except CannotPredictError as error:
                if self.plan.increment is not None and self.plan.increment.undecided:
                    raise  # this decides it
                raise InputError(f"operators.{planned.name}: {error}") from None
            except ResourceError as error:
                raise InfeasibleError(str(error)) from None
            except OperatorError as error:
                raise InputError(str(error)) from None
        self._lease.check()
        store.commit_fit(planned.fingerprint, metrics, meter.seconds)
        return metrics

    def _learn(self, planned: PlannedOperator, state: Path, executor: Executor) -> dict[str, float]:
        context = self._context(planned, state)
        executor = self.plan.store.carrying(executor, planned.fingerprint, context)
        if planned.kept:
            return planned.operator.partial_fit(context, delta_of(self.plan, planned), executor)
        return planned.operator.fit(context, executor)

    def _apply(self, planned: PlannedOperator, shards: list[int]) -> Iterator[Commit]:
        if not shards:
            return
        context = self._context(planned, self.plan.store.state(planned.fingerprint))
        job = Job(
            planned.operator,
            context,
            self.plan.reader(planned),
            planned.fingerprint,
            self._lease,
            allowed_rows(self.plan),
            new_rows=bool(planned.kept),
        )
        for result in self.executor.apply(job, shards):
            if isinstance(result, Failure):
                raise result.raised()
            yield result

    def _context(self, planned: PlannedOperator, state: Path) -> Context:
        plan = self.plan
        states = {name: plan.store.state(plan.fingerprint_of(name)) for name in planned.operator.uses}
        return Context(plan.reader(planned), state, states, plan.recipe.seed)
