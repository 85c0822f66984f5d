"""Events of OpenLineage: START, RUNNING at operators, and exactly one of COMPLETE, FAIL and ABORT.

:class:`LineageRun` is one run, training or export. The plugin :mod:`engine.runs.plugins.openlineage` reports
runs; :func:`recorded_job` reports what `rowsieve retrain` and `rowsieve export` do, and the trainings and
exports within a run, as its children. Nothing here raises for an event that cannot be made or sent.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from connectors.storage import Place
from engine.core.output_layout import version_folder
from engine.core.redaction import redact
from engine.publish.lineage_facets import (
    PRODUCER,
    engine_facet,
    error_facet,
    job_type_facet,
    operator_facet,
    output_name,
    parent_facet,
    tests_facet,
)
from engine.publish.lineage_outbox import (
    LAST_NUMBER,
    Sender,
    abort_killed,
    forget_open,
    is_configured,
    keep,
    keep_open,
)
from engine.storage.manifest import published_versions, read_manifest

_log = logging.getLogger("rowsieve")
_current: ContextVar[LineageRun | None] = ContextVar("lineage_run", default=None)


@dataclass
class Datasets:
    """The inputs and outputs of a run as far as they are known, and its checks."""

    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    tests: list[Any] = field(default_factory=list)


class LineageRun:
    """One run of a job, whose events are kept in the output's outbox and delivered by a thread.

    Parameters
    ----------
    output
        The output in whose outbox the events wait.
    job
        Name of the job: the recipe, or ``<recipe>.export.<format>``.
    kind
        RUN, TRAINING or EXPORT.

    """

    def __init__(self, output: Place, job: str, kind: str) -> None:
        from openlineage.client.uuid import generate_new_uuid, generate_static_uuid

        now, self._parent = datetime.now(UTC), _current.get()
        parent = self._parent
        self.namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or "default"
        self.job, self._output, self._number = job, output, 0
        self.run_id: str = str(
            generate_new_uuid(now)
            if parent is None
            else generate_static_uuid(now, f"{parent.run_id} {parent.next_child()} {job}".encode())
        )
        shared = parent is not None and parent._output == output
        self._sender: Sender = parent._sender if parent is not None and shared else Sender(output)
        self._owns_sender = not shared
        self._run_facets = {"processing_engine": engine_facet(), **self._parent_facets()}
        self._job_facets = {"jobType": job_type_facet(kind)}
        self._children, self._ended = 0, False
        self._held: int | None = None
        self._datasets = Datasets()

    def start(self, datasets: Datasets, at: datetime | None = None) -> None:
        """Report the start, after the events that earlier runs have left in the outbox.

        ``at`` is the time of the start, by default the present.
        """
        if self._owns_sender:
            abort_killed(self._output)
        self._datasets = datasets
        abort = self._event("ABORT", {"errorMessage": error_facet("The process of the run has ended.")})
        self._held = keep_open(self._output, abort)
        self._send("START", at=at)

    def running(self, operator: str, state: str) -> None:
        """Report that the run is at an operator."""
        self._send("RUNNING", {"executionParameters": operator_facet(operator, state)})

    def end(self, error: BaseException | None, datasets: Datasets | None = None) -> None:
        """Report the end: COMPLETE, FAIL with its error, or ABORT if a signal ended the run."""
        if self._ended:
            return
        self._ended = True
        self._datasets = datasets or self._datasets
        facets = tests_facet(self._datasets.tests)
        if error is None:
            kind = "COMPLETE"
        else:
            kind = "FAIL" if isinstance(error, Exception) else "ABORT"
            facets["errorMessage"] = error_facet(redact(str(error) or type(error).__name__))
        self._send(kind, facets, number=LAST_NUMBER)
        forget_open(self._output, self.run_id, self._held)
        if self._owns_sender:
            self._sender.close()

    def next_child(self) -> int:
        """Return the number of the next training or export within this run, from 1."""
        self._children += 1
        return self._children

    def root(self) -> tuple[str, str, str]:
        """Return namespace, job and run id of the outermost run."""
        return self._parent.root() if self._parent else _root_of_environment() or self.identity()

    def identity(self) -> tuple[str, str, str]:
        """Return namespace, job and run id."""
        return self.namespace, self.job, self.run_id

    def _parent_facets(self) -> dict[str, Any]:
        """Return the facet ``parent``: the run around this one, else the orchestrator's."""
        if self._parent is not None:
            return {"parent": parent_facet(*self._parent.identity(), self._parent.root())}
        named = _identity_of("OPENLINEAGE_PARENT_ID")
        return {"parent": parent_facet(*named, _root_of_environment() or named)} if named else {}

    def _send(
        self,
        kind: str,
        facets: dict[str, Any] | None = None,
        *,
        number: int | None = None,
        at: datetime | None = None,
    ) -> None:
        self._number += 1
        keep(self._output, self._event(kind, facets or {}, at), self._number if number is None else number)
        self._sender.notify()

    def _event(self, kind: str, facets: dict[str, Any], at: datetime | None = None) -> dict[str, Any]:
        from openlineage.client import event_v2
        from openlineage.client.serde import Serde

        found: dict[str, Any] = Serde.to_dict(
            event_v2.RunEvent(
                eventType=event_v2.RunState(kind),
                eventTime=(at or datetime.now(UTC)).isoformat(),
                run=event_v2.Run(self.run_id, {**self._run_facets, **facets}),
                job=event_v2.Job(self.namespace, self.job, dict(self._job_facets)),
                inputs=self._datasets.inputs,
                outputs=self._datasets.outputs,
                producer=PRODUCER,
            )
        )
        _set_producer(found)
        return found


def _set_producer(value: Any) -> None:
    """Name Rowsieve as the producer of every facet; the client's classes name the client."""
    if isinstance(value, dict):
        if "_producer" in value:
            value["_producer"] = PRODUCER
        for entry in value.values():
            _set_producer(entry)
    elif isinstance(value, list):
        for entry in value:
            _set_producer(entry)


def _identity_of(name: str) -> tuple[str, str, str] | None:
    """Return namespace, job and run id of a variable ``NAMESPACE/JOB/RUN``, as orchestrators set it."""
    parts = os.environ.get(name, "").rsplit("/", 2)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and all(parts) else None


def _root_of_environment() -> tuple[str, str, str] | None:
    return _identity_of("OPENLINEAGE_ROOT_PARENT_ID") or _identity_of("OPENLINEAGE_PARENT_ID")


def begin(output: Place, job: str, kind: str) -> LineageRun | None:
    """Begin to report a run. Until :func:`finish` it is the parent of other runs that begin in this context.

    Returns None if OpenLineage is not configured, or its client cannot be used.
    """
    if not is_configured():
        return None
    try:
        run = LineageRun(output, job, kind)
    except Exception as error:
        _warn(error)
        return None
    _current.set(run)
    return run


def finish(run: LineageRun, error: BaseException | None, datasets: Datasets | None) -> None:
    """Report the end of a run, and make its parent the parent of further runs."""
    _current.set(run._parent)
    run.end(error, datasets)


@dataclass
class JobOutcome:
    """Receives the result of a job within :func:`recorded_job`."""

    value: Any = None


@contextmanager
def recorded_job(
    output: Place, job: str, kind: str, datasets: Callable[[Any], Datasets]
) -> Iterator[JobOutcome]:
    """Report the start and the end of the body as a job, if OpenLineage is configured.

    Parameters
    ----------
    datasets
        Returns the datasets for the value of the yielded outcome, which is None at the start and
        after an error.

    """
    outcome = JobOutcome()
    run = begin(output, job, kind)
    if run is None:
        yield outcome
        return
    failure: BaseException | None = None
    try:
        with _reported():
            run.start(datasets(None))
        yield outcome
    except BaseException as error:
        failure = error
        raise
    finally:
        with _reported():
            found = None
            with suppress(Exception):
                found = datasets(outcome.value)
            finish(run, failure, found)


@contextmanager
def refusals_recorded(output: Place, job: str, kind: str) -> Iterator[None]:
    """Report a job that fails before it has a version to read: START and FAIL, with the error of the body.

    Nothing is reported if the body raises nothing, or in a folder that holds no published version.

    Parameters
    ----------
    job
        What follows the recipe's name in the name of the job, such as ``export.delta``.

    """
    try:
        yield
    except Exception as error:
        with _reported():
            _record_refusal(output, job, kind, error)
        raise


def _record_refusal(output: Place, job: str, kind: str, error: Exception) -> None:
    names = published_versions(output) if is_configured() else []
    recipe = read_manifest(version_folder(output, names[-1]))["recipe"] if names else ""
    run = begin(output, f"{recipe}.{job}", kind) if names else None
    if run is not None:
        from openlineage.client import event_v2

        run.start(Datasets([event_v2.InputDataset(*output_name(output))]))
        finish(run, error, None)


@contextmanager
def _reported() -> Iterator[None]:
    """Log an exception instead of raising it."""
    try:
        yield
    except Exception as error:
        _warn(error)


def _warn(error: Exception) -> None:
    reason = redact(f"{type(error).__name__}: {error}"[:300])
    _log.warning("An OpenLineage event could not be made: %s. The work goes on.", reason)
