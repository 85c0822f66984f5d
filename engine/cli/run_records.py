"""Records that ``run``, ``status`` and the commands on jobs print with ``--json``."""

from __future__ import annotations

from typing import Literal

from engine.cli.json_record import ExportRecord, LeakRecord, Object, Record


class RunRecord(Record):
    """The published version of a run, on one line; the last line with ``--log-format json``."""

    event: Literal["published"]
    """Tells this line from events of progress."""
    version: str
    """Name of the version."""
    path: str
    """Its folder, relative if it lies below the working directory."""
    already_published: bool
    """True where the version existed before and nothing was computed."""
    rows: int
    """Rows of the version."""
    groups: int
    """Inferred groups."""
    outliers: int
    """Rows that are marked as corrupt."""
    quarantined: int
    """Rows that were set aside."""
    oracle: bool
    """True where the groups are the recipe's true ones."""
    report: str | None
    """The HTML report."""
    mlflow_run_id: str | None
    """Run on MLflow."""
    incremental: Object | None
    """Decision of an incremental run: `base`, `outcome`, `why`, `drift` with each figure, and `shards`; null
    for a full run."""
    unread: dict[str, list[str]]
    """Columns of the source, by file, that the plan did not see."""
    training: Object | None
    """Record of the section `train`: `trained`, `why`, `scores`, `registered`, `promoted`."""
    exports: list[ExportRecord]
    """Tables of `output.export`."""
    parts_taken_over: int
    """Parts that are those of the base version."""
    likely_leaks: list[LeakRecord]
    """Columns that tell the label on their own."""
    warnings: list[str]
    """What operators warn of, such as near duplicates between training and test rows."""
    seconds: float
    """Duration of this run."""


class OperatorStatus(Record):
    """Progress of one operator."""

    operator: str
    """Name."""
    fingerprint: str
    """Folder of its results in the run store."""
    fitted: bool
    """Whether its state is stored."""
    committed: int
    """Finished shards."""
    total: int
    """Shards of the plan."""
    rows: int
    """Rows of the finished shards."""
    quarantined: int
    """Rows that it set aside."""
    skipped: int
    """Rows of files that could not be read."""
    seconds: float
    """Time of the workers."""
    rate: float | None
    """Rows per second."""
    eta_seconds: float | None
    """Time left at this rate, while a run goes on."""


class StatusRecord(Record):
    """State of a recipe's run, from the files of its output."""

    version: str
    """The version that the recipe publishes now."""
    published: bool
    """Whether it is published."""
    current: bool
    """Whether readers of the output get it."""
    withdrawn: str | None
    """Why it was withdrawn, or one of the same rows, operators and seed, so that a run is refused."""
    withdrawn_as: str | None
    """The version that was withdrawn for this reason."""
    withdrawn_bases: dict[str, str]
    """Withdrawn versions that it continues from, with their reasons."""
    running: bool
    """Whether a run is writing to the output."""
    writer: str | None
    """Host and process of that run."""
    died: bool
    """Whether the last run ended without releasing the output."""
    silent_seconds: float | None
    """Seconds since its last heartbeat."""
    step: Object | None
    """Latest event of the run."""
    last_error: Object | None
    """Why the last run failed: `error`, `at`."""
    unfinished_steps: list[Object]
    """Steps after publishing that failed or were interrupted: `name`, `status`, `error`."""
    dropped_exports: list[Object]
    """Failed exports that the recipe no longer names."""
    warnings: list[str]
    """What the operators that are fitted warn of."""
    operators: list[OperatorStatus]
    """The operators in their order."""


class JobRecord(Record):
    """A job of a Ray cluster."""

    id: str
    """Name of the job, for `status`, `logs` and `cancel`."""
    state: Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]
    """State; the last three are final."""
    message: str
    """The cluster's message, with the end of the output of a job that failed."""
    started: str | None
    """ISO time."""
    ended: str | None
    """ISO time."""
    exit_code: int | None
    """Exit code of `rowsieve run` in the job; null until it ends."""
    metadata: dict[str, str]
    """`recipe`, `version` that is to be published, `key`, `output`."""


class SubmittedJob(JobRecord):
    """The job of a recipe; with ``--wait`` after its end."""

    new: bool
    """False where the cluster had the job already."""
    address: str
    """Dashboard of the cluster."""


class CancelledJob(JobRecord):
    """A job after the request to stop it."""

    stopped: bool
    """False where it had ended before."""


class EventRecord(Record):
    """Progress of an operator, or of a step such as `plan` and `publish`: a line of ``--log-format json``."""

    kind: Literal["start", "fit", "progress", "finish", "reused"]
    """What happened."""
    operator: str
    """Operator or step."""
    rows: int
    """Processed rows."""
    total_rows: int
    """All rows."""
    shards: int
    """Processed shards."""
    total_shards: int
    """All shards."""
    seconds: float
    """Seconds since its start."""
    worked_rows: int
    """Rows that this run computed."""
    worked_seconds: float
    """Time of the workers for them."""
    fit_pass: int
    """Pass over the data in which a fit is; 0 before the first."""
    pieces: int
    """Finished pieces of this pass."""
    total_pieces: int
    """All pieces of this pass."""
    quarantined: int
    """Rows that it set aside."""
    unit: str
    """What `rows` and `total_rows` count: `rows`, of a training `epochs`, of a search `trainings`."""
    rows_per_second: float
    """Rate of the operator."""
    rows_per_worker_second: float
    """Rate of one worker while it computes."""


class ScheduleRecord(Record):
    """A line of ``rowsieve schedule --log-format json`` that is not one of the run's."""

    schedule: Object
    """`at`, `event`, and what belongs to the event."""
