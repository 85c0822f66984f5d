"""Runs single operators of a plan: fit, apply to the shards that are missing, commit.

Committed work is never done twice. The runner and the comparison of methods share this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from connectors.base import ConnectorError
from engine.core.errors import InfeasibleError, InputError, is_out_of_memory, out_of_memory
from engine.core.events import Listener, Meter
from engine.core.policy import current_policy
from engine.execution.cluster import executor as open_executor
from engine.execution.job import Failure, Job, ShardExecutor
from engine.execution.large_numbers import large_numbers
from engine.execution.memory_limit import limited_memory
from engine.execution.progress_executor import ProgressExecutor
from engine.execution.quarantine import allowed_rows, check_budget
from engine.plan.model import Plan, PlannedOperator
from engine.publish.results import OperatorResult
from engine.recipe.recipe import RunSection
from engine.runs.base_reuse import delta_of, reuse_base_parts
from engine.runs.deadline import checked_after
from engine.storage.lease import Lease
from engine.storage.run_store import Commit
from engine.storage.state_files import check_state
from operators.base import CannotPredictError, Context, Executor, OperatorError, ResourceError


class OperatorRunner:
    """Runs operators of one or several plans over the same output. Ray starts at the first use.

    Parameters
    ----------
    section
        The recipe's section ``run``, which names the executor.
    listener
        Receives the events of every operator.
    stack
        Closes the executor.
    lease
        The output's lease, which is checked before every commit.
    verbose
        Show Ray's own output.

    """

    def __init__(
        self, section: RunSection, listener: Listener, stack: ExitStack, lease: Lease, *, verbose: bool
    ) -> None:
        self._section, self._listener, self._stack = section, listener, stack
        self._lease, self._verbose = lease, verbose
        self._results: dict[str, OperatorResult] = {}
        self._faulty: dict[str, int] = {}
        self.part_digests: dict[str, dict[int, str]] = {}
        """Fingerprint -> shard -> SHA-256 of the part that the operator has committed."""

    @cached_property
    def executor(self) -> ShardExecutor:
        """The recipe's executor, which is opened at the first use."""
        meter = Meter(self._listener, self._section.executor)
        meter.emit("start")
        opened = self._stack.enter_context(open_executor(self._section, verbose=self._verbose))
        meter.emit("finish")
        return opened

    @property
    def executor_is_open(self) -> bool:
        """Return whether the executor has been opened."""
        return "executor" in vars(self)

    def run(self, plan: Plan, planned: PlannedOperator) -> OperatorResult:
        """Fit and apply one operator. Committed work is not repeated.

        Raises
        ------
        RowsieveError
            The operator failed, or the quarantined rows of the plan exceed ``source.max_error_rate``.

        """
        if planned.fingerprint not in self._results:
            self._results[planned.fingerprint] = self._run(plan, planned)
        return self._results[planned.fingerprint]

    def meter(self, plan: Plan, name: str) -> Meter:
        """Return the meter of an operator or a step that counts the plan's rows and shards."""
        return Meter(self._listener, name, plan.n_rows, len(plan.shards))

    def start_meter(self, plan: Plan, name: str) -> Meter:
        """Open the executor, then start a meter, so that its clock does not count the start of Ray."""
        self.executor.operator = name
        meter = self.meter(plan, name)
        meter.emit("start")
        return meter

    def _run(self, plan: Plan, planned: PlannedOperator) -> OperatorResult:
        store = plan.store
        reuse_base_parts(plan, planned)
        done = store.committed(planned.fingerprint)
        missing = [shard.index for shard in plan.shards if shard.index not in done]
        fitted = store.fitted(planned.fingerprint)
        if fitted and not missing:
            self._record(plan, planned, done)
            self.meter(plan, planned.name).reused()
            return OperatorResult(planned.name, 0, len(done), 0.0, fitted["metrics"])
        with checked_after(current_policy().max_operator_seconds, partial(_too_long, plan, planned)):
            return self._compute(plan, planned, done, missing)

    def _compute(
        self, plan: Plan, planned: PlannedOperator, done: dict[int, Commit], missing: list[int]
    ) -> OperatorResult:
        """Fit the operator unless its state is stored, and apply it to the shards that are missing."""
        store, fitted = plan.store, plan.store.fitted(planned.fingerprint)
        meter = self.start_meter(plan, planned.name)
        store.sweep(planned.fingerprint)
        metrics = fitted["metrics"] if fitted else self._fit(plan, planned)
        quarantined = sum(commit.quarantined for commit in done.values())
        meter.add(sum(commit.rows for commit in done.values()), len(done), quarantined=quarantined)
        for commit in self._apply(plan, planned, missing):
            done[commit.shard] = commit
            meter.add(commit.rows, worked=commit.seconds, quarantined=commit.quarantined)
        self._record(plan, planned, done)
        meter.emit("finish")
        pace = meter.event("finish").rows_per_worker_second
        reused = len(done) - len(missing)
        return OperatorResult(planned.name, len(missing), reused, meter.seconds, metrics, pace)

    def _record(self, plan: Plan, planned: PlannedOperator, commits: dict[int, Commit]) -> None:
        """Record commits. Raises BudgetError if the quarantined rows exceed `max_error_rate`.

        Only operators of this plan count: a plan that was replaced after drift has fingerprints of its own,
        and so has every method of a comparison.
        """
        self.part_digests[planned.fingerprint] = {shard: commit.sha256 for shard, commit in commits.items()}
        self._faulty[planned.fingerprint] = sum(commit.quarantined for commit in commits.values())
        faulty = sum(self._faulty.get(operator.fingerprint, 0) for operator in plan.operators)
        check_budget(plan, faulty, planned.name)

    def _fit(self, plan: Plan, planned: PlannedOperator) -> dict[str, float]:
        meter = self.meter(plan, planned.name)
        meter.emit("fit")
        max_bytes = current_policy().max_operator_bytes
        with plan.store.fitting(planned.fingerprint, self._lease) as scratch:
            try:
                executor = ProgressExecutor(self.executor, meter.fit_progress)
                with limited_memory(max_bytes):
                    metrics = self._learn(plan, planned, scratch, executor)
            except CannotPredictError as error:
                if plan.increment is not None and plan.increment.undecided:
                    raise  # the planner decides about this increment
                raise InputError(f"operators.{planned.name}: {error}") from None
            except ResourceError as error:
                raise InfeasibleError(str(error)) from None
            except Exception as error:
                if is_out_of_memory(error):
                    given = large_numbers(planned.operator)
                    raise out_of_memory(error, f"operators.{planned.name}: ", given, max_bytes) from None
                if isinstance(error, OperatorError | ConnectorError):
                    raise InputError(str(error)) from None
                raise
        self._lease.check()
        plan.store.commit_fit(planned.fingerprint, metrics, meter.seconds)
        return metrics

    def _learn(
        self, plan: Plan, planned: PlannedOperator, state: Path, executor: Executor
    ) -> dict[str, float]:
        context = _context(plan, planned, state, fitting=not planned.operator.fits_on_all_rows)
        executor = plan.store.synced_executor(executor, planned.fingerprint, context)
        if planned.kept:
            return planned.operator.partial_fit(context, delta_of(plan, planned), executor)
        return planned.operator.fit(context, executor)

    def _apply(self, plan: Plan, planned: PlannedOperator, shards: list[int]) -> Iterator[Commit]:
        if not shards:
            return
        job = Job(
            planned.operator,
            _context(plan, planned, plan.store.state(planned.fingerprint)),
            plan.reader(planned),
            planned.fingerprint,
            self._lease,
            allowed_rows(plan),
            new_rows=bool(planned.kept),
            max_bytes=current_policy().max_operator_bytes,
        )
        for result in self.executor.apply(job, shards):
            if isinstance(result, Failure):
                raise result.raised()
            yield result


def _too_long(plan: Plan, planned: PlannedOperator) -> None:
    raise InputError(
        f"{plan.recipe.place}: operators.{planned.name}: it has taken longer than the "
        f"{current_policy().max_operator_seconds:,} seconds that this installation allows an operator. What "
        f"is committed is kept; the same command continues from there. Its administrator can raise "
        f"ROWSIEVE_MAX_OPERATOR_SECONDS."
    )


def _context(plan: Plan, planned: PlannedOperator, state: Path, *, fitting: bool = False) -> Context:
    states = {name: plan.store.state(plan.fingerprint_of(name)) for name in planned.operator.uses}
    for folder in (state, *states.values()):  # they lie in a shared output
        check_state(folder)
    reader = plan.reader(planned, fitting=fitting)
    everything = replace(reader, fitting=False) if fitting and reader.parts else None
    return Context(reader, state, states, plan.recipe.seed, everything)
