"""A run: plan, fit and apply each operator, publish, record. Committed work is never done twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from engine.errors import InputError
from engine.events import Event, Listener, silent
from engine.execution.cluster import executor as open_executor
from engine.execution.worker import Failure, Job
from engine.locking import writer_lock
from engine.plan import Plan, PlannedOperator, make_plan
from engine.publish import is_published, point_to, publish, read_manifest, version_folder
from engine.quarantine import check_budget
from engine.recipe import Recipe
from engine.report import write_report
from engine.store import Commit, write_json
from engine.tracking import Tracker
from operators.base import Context, OperatorError


@dataclass(frozen=True)
class OperatorResult:
    """What one operator did in a run."""

    name: str
    computed: int
    reused: int
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RunResult:
    """What a run leaves."""

    version: str
    path: Path
    reused: bool
    """Whether everything had been computed and published before."""
    operators: tuple[OperatorResult, ...]
    manifest: dict[str, Any]
    report: Path | None
    mlflow_run_id: str | None
    seconds: float


def run(recipe: Recipe, *, listener: Listener = silent, verbose: bool = False) -> RunResult:
    """Carry a recipe out. Raises WinnowError; what was committed until then is kept and reused."""
    started = time.perf_counter()
    listener(Event("start", "plan"))
    plan = make_plan(recipe)
    listener(Event("finish", "plan", plan.n_rows, plan.n_rows, len(plan.shards), len(plan.shards), _since(started)))
    output = Path(recipe.output.path)
    with writer_lock(output, recipe.name), Tracker.open(plan) as tracker, ExitStack() as stack:
        session = Session(plan, listener, stack, verbose)
        results = tuple(session.operator(planned) for planned in plan.operators)
        reused = session.publish()
        manifest = read_manifest(version_folder(output, plan.version))
        report = session.report(manifest, results)
        tracker.finish(manifest, results, report)
        point_to(output, plan.version)
        path = version_folder(output, plan.version)
        seconds = _since(started)
        record = {"version": plan.version, "mlflow_run_id": tracker.run_id, "seconds": seconds}
        write_json(output / "runs" / f"{plan.version}.json", record)
        return RunResult(plan.version, path, reused, results, manifest, report, tracker.run_id, seconds)


class Session:
    """The steps of one run. Ray starts only when something is left to compute."""

    def __init__(self, plan: Plan, listener: Listener, stack: ExitStack, verbose: bool) -> None:
        self.plan, self.listener, self._stack, self._verbose = plan, listener, stack, verbose
        self._reader = plan.reader()

    @cached_property
    def executor(self) -> Any:
        """The recipe's executor, opened at first use."""
        spec = self.plan.recipe.run
        if spec.executor == "ray":
            self.listener(Event("note", "ray", text="starting Ray"))
        opened: AbstractContextManager[Any] = open_executor(spec, verbose=self._verbose)
        return self._stack.enter_context(opened)

    def operator(self, planned: PlannedOperator) -> OperatorResult:
        """Fit and apply one operator, except what is committed already."""
        plan, store = self.plan, self.plan.store
        done = store.committed(planned.fingerprint)
        missing = [shard.index for shard in plan.shards if shard.index not in done]
        fitted = store.fitted(planned.fingerprint)
        total = {"total_rows": plan.n_rows, "total_shards": len(plan.shards)}
        if fitted and not missing:
            check_budget_of(planned, plan, done)
            self.listener(Event("reused", planned.name, plan.n_rows, shards=len(done), **total))
            return OperatorResult(planned.name, 0, len(done), 0.0, fitted["metrics"])
        started = time.perf_counter()
        self.listener(Event("start", planned.name, **total))
        metrics = fitted["metrics"] if fitted else self._fit(planned)
        n_rows = sum(commit.rows for commit in done.values())
        for commit in self._apply(planned, missing):
            done[commit.shard] = commit
            n_rows += commit.rows
            self.listener(Event("progress", planned.name, n_rows, shards=len(done), seconds=_since(started), **total))
        check_budget_of(planned, plan, done)
        seconds = _since(started)
        self.listener(Event("finish", planned.name, n_rows, shards=len(done), seconds=seconds, **total))
        return OperatorResult(planned.name, len(missing), len(done) - len(missing), seconds, metrics)

    def publish(self) -> bool:
        """Publish the version unless it is there; return whether it was."""
        plan = self.plan
        total = {"total_rows": plan.n_rows, "total_shards": len(plan.shards)}
        if is_published(Path(plan.recipe.output.path), plan.version):
            self.listener(Event("reused", "publish", plan.n_rows, shards=len(plan.shards), **total))
            return True
        started = time.perf_counter()
        n_rows = n_parts = 0
        self.listener(Event("start", "publish", **total))
        for part in publish(plan, self.executor):
            n_rows, n_parts = n_rows + part["rows"], n_parts + 1
            event = Event("progress", "publish", n_rows, shards=n_parts, seconds=_since(started), **total)
            self.listener(event)
        self.listener(Event("finish", "publish", n_rows, shards=n_parts, seconds=_since(started), **total))
        return False

    def report(self, manifest: dict[str, Any], results: tuple[OperatorResult, ...]) -> Path | None:
        """Draw the report of this version."""
        path = Path(self.plan.recipe.output.path) / "reports" / f"{self.plan.version}.html"
        started = time.perf_counter()
        self.listener(Event("start", "report"))
        write_report(self.plan, manifest, {result.name: result.metrics for result in results}, path)
        self.listener(Event("finish", "report", seconds=_since(started)))
        return path

    def _fit(self, planned: PlannedOperator) -> dict[str, float]:
        started = time.perf_counter()
        self.listener(Event("fit", planned.name, total_rows=self.plan.n_rows))
        store = self.plan.store
        with store.fitting(planned.fingerprint) as scratch:
            try:
                metrics = planned.operator.fit(self._context(planned, scratch), self.executor)
            except OperatorError as error:
                raise InputError(str(error)) from None
        store.commit_fit(planned.fingerprint, metrics, _since(started))
        return metrics

    def _apply(self, planned: PlannedOperator, shards: list[int]) -> Iterator[Commit]:
        if not shards:
            return
        context = self._context(planned, self.plan.store.state(planned.fingerprint))
        job = Job(planned.operator, context, self._reader, planned.fingerprint)
        for result in self.executor.apply(job, shards):
            if isinstance(result, Failure):
                raise result.raised()
            yield result

    def _context(self, planned: PlannedOperator, state: Path) -> Context:
        plan = self.plan
        states = {name: plan.store.state(plan.fingerprint_of(name)) for name in planned.operator.uses}
        return Context(self._reader, state, states, plan.recipe.seed)


def check_budget_of(planned: PlannedOperator, plan: Plan, commits: dict[int, Commit]) -> None:
    """After ingest, whether it was reused or not: too many faulty rows end the run."""
    if planned.name == "ingest":
        check_budget(plan, commits.values())


def _since(started: float) -> float:
    return time.perf_counter() - started
