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
    """The version's folder, relative if it lies below the working directory."""
    already_published: bool
    """True where the version existed before and nothing was computed."""
    rows: int
    """Number of rows of the version."""
    groups: int
    """Number of inferred groups."""
    outliers: int
    """Number of rows that are marked as corrupt."""
    quarantined: int
    """Number of rows that were set aside."""
    oracle: bool
    """True where the groups are the recipe's true ones."""
    report: str | None
    """Path of the HTML report."""
    mlflow_run_id: str | None
    """Id of the run on MLflow."""
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
    """Number of parts that are those of the base version."""
    likely_leaks: list[LeakRecord]
    """Columns that tell the label on their own."""
    warnings: list[str]
    """Warnings of operators, such as near duplicates between training and test rows."""
    seconds: float
    """Duration of this run."""


class OperatorStatus(Record):
    """Progress of one operator."""

    operator: str
    """Name of the operator."""
    fingerprint: str
    """Folder of its results in the run store."""
    fitted: bool
    """Whether the operator's state is stored."""
    committed: int
    """Number of finished shards."""
    total: int
    """Number of shards of the plan."""
    rows: int
    """Number of rows of the finished shards."""
    quarantined: int
    """Number of rows that the operator set aside."""
    skipped: int
    """Number of rows of files that could not be read."""
    seconds: float
    """Computing time of the workers, added up."""
    rate: float | None
    """Rows per second between the first and last shard of the last run; null below two of them."""
    eta_seconds: float | None
    """Time left at this rate, while a run goes on."""


class StatusRecord(Record):
    """State of a recipe's run, from the files of its output."""

    version: str
    """The version that the recipe publishes now."""
    published: bool
    """Whether this version is published."""
    current: bool
    """Whether readers of the output get this version."""
    withdrawn: str | None
    """The reason given when `withdrawn_as` was withdrawn, for which a run is refused; null where none was."""
    withdrawn_as: str | None
    """The withdrawn version: this one, or one of the same rows, operators and seed."""
    withdrawn_bases: dict[str, str]
    """Withdrawn versions that it continues from, with their reasons."""
    running: bool
    """Whether a run is writing to the output."""
    writer: str | None
    """Host and process of that run."""
    died: bool
    """Whether the last run ended without releasing the output."""
    silent_seconds: float | None
    """Seconds since the last heartbeat of the run."""
    step: Object | None
    """The latest event of the run."""
    last_error: Object | None
    """The failure of the last run: `error` and `at`; null where it did not fail."""
    unfinished_steps: list[Object]
    """Steps after publishing that failed or were interrupted: `name`, `status`, `error`."""
    dropped_exports: list[Object]
    """Failed exports that the recipe no longer names."""
    warnings: list[str]
    """Warnings of the operators that are fitted."""
    operators: list[OperatorStatus]
    """The operators in their order."""


class JobRecord(Record):
    """A job of a Ray cluster."""

    id: str
    """Name of the job, for `status`, `logs` and `cancel`."""
    state: Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]
    """State of the job; the last three are final."""
    message: str
    """The cluster's message, with the end of the output of a job that failed."""
    started: str | None
    """Start of the job, in ISO 8601."""
    ended: str | None
    """End of the job, in ISO 8601; null while it goes on."""
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
    """Kind of the event."""
    operator: str
    """Name of the operator or step."""
    rows: int
    """Number of processed rows."""
    total_rows: int
    """Number of rows in all."""
    shards: int
    """Number of processed shards."""
    total_shards: int
    """Number of shards in all."""
    seconds: float
    """Seconds since the start of the operator or step."""
    worked_rows: int
    """Number of rows that this run computed."""
    worked_seconds: float
    """Computing time of the workers for these rows."""
    fit_pass: int
    """Number of the fit's current pass over the data; 0 before the first."""
    pieces: int
    """Number of finished pieces of this pass."""
    total_pieces: int
    """Number of pieces of this pass in all."""
    quarantined: int
    """Number of rows that the operator set aside."""
    unit: str
    """Unit of `rows` and `total_rows`: `rows`, for a training `epochs`, for a search `trainings`."""
    rows_per_second: float
    """Rows per second of the operator."""
    rows_per_worker_second: float
    """Rows per second of one worker while it computes."""


class ScheduleRecord(Record):
    """A line of ``rowsieve schedule --log-format json`` that is not one of the run's."""

    schedule: Object
    """`at`, `event`, and what belongs to the event."""
