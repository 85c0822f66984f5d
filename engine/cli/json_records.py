"""The records that commands print with ``--json``, as models; ``rowsieve schema`` prints their JSON schemas.

A record has the keys of its model and no other; keys with a default may be absent. Tests check the output of
each command against its model, and ``engine/JSON.md`` is written from them. Parts that copy a file of the
output, such as the record of a training, are plain objects here.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

Object = dict[str, Any]


class Record(BaseModel):
    """A JSON object with exactly these keys."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class LeakRecord(Record):
    """A source column that tells the label on its own."""

    name: str
    """Column."""
    score: float
    """Balanced accuracy of the column alone on unseen rows."""
    chance: float
    """Balanced accuracy of a guess."""


class ExportRecord(Record):
    """An export of a version to a table."""

    format: str
    """delta, hf, iceberg, lance or parquet."""
    path: str
    """The table."""
    state: str
    """The table's own name for its state with the version."""
    written: bool
    """False where the table had the version already."""


class ExportedVersion(ExportRecord):
    """An export of a version to a table."""

    version: str
    """The exported version."""


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
    """Why it was withdrawn."""
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


class WarningRecord(Record):
    """A finding about the source."""

    kind: str
    """Kind of the finding."""
    text: str
    """What was found, and what to do."""


class ValueCount(Record):
    """A value of the label."""

    value: str | None
    """The value as text."""
    rows: int
    """Rows that have it."""


class LabelRecord(Record):
    """Values of the label column."""

    name: str
    """Column."""
    counts: list[ValueCount]
    """Values with their rows, the most frequent first."""
    distinct: int
    """Number of values."""
    missing: int
    """Rows without one."""
    is_exact: bool
    """False where the counts are those of a sample."""


class ColumnRecord(Record):
    """How a column of the source is used."""

    name: str
    """Column."""
    type: str
    """Type in Arrow."""
    kind: str | None
    """Kind of the feature; null where it is none."""
    reason: str | None
    """Why it is no feature."""
    note: str
    """A remark."""
    parameters: Object
    """Parameters of its encoding."""
    read_by: list[str] | None = None
    """Operators that read it as it is."""
    rows_seen: int | None = None
    """Rows that were looked at."""
    missing: int | None = None
    """Those without a value."""
    distinct: int | None = None
    """Values in them."""
    examples: list[str] | None = None
    """Some values."""


class SourceRecord(Record):
    """Columns and label of a source."""

    columns: list[ColumnRecord]
    """Every column."""
    seen: str
    """Rows that were looked at."""
    label: LabelRecord
    """Values of the label."""
    likely_leaks: list[LeakRecord]
    """Columns that tell the label on their own."""
    warnings: list[WarningRecord]
    """Findings."""


class ValidationRecord(SourceRecord):
    """A recipe that is valid, and how it uses its source."""

    recipe: str
    """File of the recipe."""
    rows: int
    """Rows of the source."""
    shards: int
    """Shards of the plan."""


class PlanRecord(Record):
    """The plan of a recipe."""

    version: str
    """The version that a run publishes."""
    fingerprint: str
    """Digest of the plan."""
    rows: int
    """Rows of the source."""
    learnt_from: str
    """Which rows operators learn from."""
    features: list[str]
    """Columns that are features."""
    schema_: list[Object] = Field(alias="schema")
    """Published columns: `name`, `type`."""
    shards: list[Object]
    """`path`, `first_row`, `rows`, `range` in the file."""
    files: dict[str, str]
    """Content hash of each file of the source."""
    skipped: dict[str, str]
    """Files that are left out, with the reason."""
    operators: list[Object]
    """`name`, `version`, `params`, `requires`, `adds`, `fingerprint`."""
    source: SourceRecord
    """Columns and label."""


class DraftRecord(Record):
    """A drafted recipe."""

    file: str | None
    """The file that was written; null without `-o`."""
    recipe: str
    """The recipe, in YAML."""
    rows: int
    """Rows of the source."""
    columns: int
    """Its columns."""
    used: int
    """Columns that are used as features."""
    cpu_seconds: float
    """Expected time of a run on one core."""
    likely_leaks: list[LeakRecord]
    """Columns that tell the label on their own; the recipe leaves them out."""
    warnings: list[str]
    """Findings about the source."""


class FaultyRow(Record):
    """A row that was set aside."""

    row_id: int
    """Position in the plan."""
    file: str
    """File of the source."""
    row: int
    """Row in the file, from 0."""
    operator: str
    """Operator that rejected it."""
    column: str | None
    """Column at fault."""
    value: str | None
    """Its value, as text."""
    error: str
    """What is wrong with it."""
    raw: str | None
    """The whole row, as JSON."""


class ExportedRows(Record):
    """Rows that were set aside and are written to a file."""

    rows: int
    """Their number."""
    file: str
    """The file."""


class ReplayRecord(Record):
    """The outcome of running rows again that were set aside."""

    version: str
    """The version that was published."""
    rows: int
    """Rows that were set aside before."""
    recovered: int
    """Those of them that are used now."""
    new: int
    """Rows that were set aside only now."""


class VersionRecord(Record):
    """A published version."""

    version: str
    """Name."""
    current: bool
    """Whether readers of the output get it."""
    publication_number: int
    """Position in the order of publication, from 1; 0 for versions from before the numbers."""
    published_at: float
    """Seconds since 1970."""
    rows: int
    """Rows."""
    groups: int
    """Inferred groups."""
    base: str | None
    """The version that it continues from."""
    outcome: str
    """Decision of the run: full, predict, refit."""
    why: str
    """Reason of the decision."""
    shards: Object | None
    """`old`, `new` and `gone` shards of an incremental run."""
    models: list[str]
    """Registered models that were trained on it."""
    withdrawn: str | None
    """Why it was withdrawn."""


class PruneRecord(Record):
    """Versions that were removed; with ``--dry-run``: that would be."""

    versions: list[str]
    """Removed versions."""
    fingerprints: list[str]
    """Removed folders of the run store."""
    kept_for: dict[str, str]
    """Older versions that stay, with the reason."""


class DiffRecord(Record):
    """Differences of two versions."""

    before: str
    """First version."""
    after: str
    """Second version."""
    rows: dict[str, int]
    """`before`, `after`, `common`, `gone`, `new`."""
    groups: list[Object]
    """Groups with `change` (same, grown, shrunk, new, gone) and rows before, after and in common."""
    changed: dict[str, Object]
    """For `group`, `split`, `outlier` and `weight`: `rows` with another value, and `examples`."""
    largest_weight_change: float
    """Largest absolute difference of a weight."""
    tolerance: float
    """Difference above which a weight counts as changed."""
    rows_written: int | None = None
    """With `--rows`: rows in the file."""


class GroupsRecord(Record):
    """The groups of a version in words."""

    version: str
    """Version."""
    recipe: str
    """Name of the recipe."""
    format: int
    """Number of this format."""
    columns: list[Object | str]
    """Columns that the words are about."""
    sampled_rows: int
    """Rows that were drawn."""
    groups: list[Object]
    """`group`, `class`, `rows`, `share`, `accuracy`, `description`, `rule`, `terms`, `central_rows`."""
    slices: list[Object]
    """Suspected shortcuts."""


class CuesRecord(BaseModel):
    """Suspected shortcuts of a version. Further keys are figures of the operator `cues`."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    version: str
    """Version."""
    classes: list[str]
    """Classes of the label."""
    sample_rows: int
    """Rows that were looked at."""
    suspects: list[Object]
    """`slice`, `reference` for the recipe, `answer`, `gain`, `cost`, `strength`, and accuracies."""
    spurious: list[Any]
    """Columns that the recipe names as shortcuts."""
    legitimate: list[Any]
    """Columns that the recipe names as honest signal."""
    robustness: str
    """How robust the weights are."""
    trade_off: Object | None
    """Worst group and mean over the strength of weighting."""
    importance: Object | None
    """Permutation importance of the columns."""
    recipe_section: str
    """Section of the recipe with today's answers."""


class RowRecord(Record):
    """Result of ``rowsieve explain``: the findings of each operator about one row."""

    version: str
    """Version."""
    row_id: int
    """The row."""
    path: str
    """File of the source."""
    shard: int
    """Shard of the plan."""
    row: int
    """Row in the shard."""
    source: Object
    """Values of the source's columns."""
    published: Object
    """Values of the published columns."""
    operators: list[Object]
    """`operator`, and its `facts`: `name`, `value`, `note`."""


class LineageRecord(Record):
    """Where a version comes from, and what was trained on it."""

    version: str
    """Version."""
    folder: str
    """Its folder."""
    content: str
    """Digest of its rows."""
    rows: int
    """Rows."""
    tracking_uri: str
    """MLflow's server or database."""
    runs: list[Object]
    """Runs on MLflow: `run_id`, `name`, `status`, `inputs`, `metrics`."""
    models: list[Object]
    """Registered models: `name`, `version`, `run_id`, `champion`."""
    base: str | None
    """The version that it continues from."""
    source: Object
    """`path`, `files` with content hashes, `columns`, `shards`."""
    operators: list[Object]
    """`name`, `version`, `params`, `fingerprint`."""


class RetractionRecord(Record):
    """A withdrawal, or its end."""

    version: str
    """Version."""
    why: str
    """Reason; empty where the version stands again."""
    current: str | None
    """The version that readers get now; null where none stands."""
    models: list[Object]
    """Registered models that were trained on it: `name`, `number`, `aliases`, `moved`."""
    exports: list[Object]
    """Tables that it was exported to, which are not changed: `format`, `path`, `catalog`, `mode`, `state`
    (empty where the export may not have ended), `at`, and `replaced_by`, the version written over it since,
    else empty."""
    mlflow_error: str
    """Why MLflow was not told; empty if it was."""
    exports_error: str
    """Why the tables are not known; empty if they are."""


class TrainingRecord(Record):
    """A trained model."""

    folder: str
    """Its folder."""
    version: str
    """The version that it was trained on."""
    reused: bool
    """True where the same training was done before."""
    models: int
    """Models of the ensemble."""
    model_weights: list[float]
    """Their weights."""
    evaluations: dict[str, Object]
    """Scores by split."""
    selection: Object | None
    """Search for parameters."""
    strength: Any
    """Strength of the weights, where it was chosen."""
    importance: Object | None
    """Permutation importance of the columns."""
    registered: Object | None
    """On MLflow: `name`, `version`, `run_id`, `tracking_uri`."""
    promoted: Object | None
    """Verdict of the promotion rule: `promoted`, `reason`."""


class PredictionRecord(Record):
    """Predictions of a dataset."""

    model: str
    """Model."""
    version: str
    """The version that it was trained on."""
    rows: int
    """Rows."""
    failed: int
    """Rows without a prediction."""
    parts: list[Object]
    """Written files: `path`, `rows`, `failed`, `sha256`, `source`."""
    filled: list[str]
    """Columns that are missing and taken as empty."""
    kept: int
    """Files of an earlier call that were kept."""


class ComparedMethod(Record):
    """Scores of one method of group inference."""

    method: str
    """Method."""
    ari: float | None
    """Adjusted Rand index with the true groups."""
    floor: float | None
    """Adjusted Rand index of the classes, taken as groups."""
    minority_recall: float | None
    """Recall of the rows of small groups."""
    outlier_precision: float | None
    """Precision of the outlier mark."""
    outlier_recall: float | None
    """Recall of the outlier mark."""
    sizes: list[int]
    """Rows of each group."""
    noise: int
    """Rows in no group."""
    seconds: float
    """Time."""


class FormatRecord(Record):
    """A format of sources."""

    name: str
    """Value of `source.format`."""
    summary: str
    """What it reads."""
    extensions: list[str]
    """Endings by which it is recognised."""
    markers: list[str]
    """Files in a folder by which it is recognised."""
    schemes: list[str]
    """Schemes of URIs by which it is recognised."""
    options: Object
    """JSON schema of `source.options`."""


class OperatorRecord(Record):
    """One operator, as ``rowsieve operators`` lists it."""

    name: str
    """Key under `operators`."""
    summary: str
    """What it does."""
    version: int
    """Raised when equal parameters give other values."""
    methods: list[str]
    """Values of its key `method`."""
    parameters: Object
    """JSON schema of its parameters."""


class PolicyRecord(Record):
    """A limit of the operator's policy."""

    allowed: Any
    """The limit; null for none."""
    source: str = Field(alias="from")
    """The file or variable that sets it, or "default"."""


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
    rows_per_second: float
    """Rate of the operator."""
    rows_per_worker_second: float
    """Rate of one worker while it computes."""


class ScheduleRecord(Record):
    """A line of ``rowsieve schedule --log-format json`` that is not one of the run's."""

    schedule: Object
    """`at`, `event`, and what belongs to the event."""


RECORDS: dict[str, TypeAdapter[Any]] = {
    "run": TypeAdapter(RunRecord),
    "run events": TypeAdapter(EventRecord | RunRecord),
    "submit": TypeAdapter(SubmittedJob),
    "status": TypeAdapter(StatusRecord),
    "status job": TypeAdapter(JobRecord | list[JobRecord]),
    "cancel": TypeAdapter(CancelledJob),
    "schedule events": TypeAdapter(ScheduleRecord),
    "init": TypeAdapter(DraftRecord),
    "validate": TypeAdapter(ValidationRecord),
    "plan": TypeAdapter(PlanRecord),
    "versions": TypeAdapter(list[VersionRecord]),
    "versions prune": TypeAdapter(PruneRecord),
    "diff": TypeAdapter(DiffRecord),
    "lineage": TypeAdapter(LineageRecord),
    "retract": TypeAdapter(RetractionRecord),
    "export": TypeAdapter(ExportedVersion),
    "groups": TypeAdapter(GroupsRecord),
    "explain": TypeAdapter(RowRecord),
    "cues": TypeAdapter(CuesRecord),
    "quarantine": TypeAdapter(list[FaultyRow]),
    "quarantine export": TypeAdapter(ExportedRows),
    "quarantine replay": TypeAdapter(ReplayRecord),
    "compare": TypeAdapter(list[ComparedMethod]),
    "retrain": TypeAdapter(TrainingRecord),
    "predict": TypeAdapter(PredictionRecord),
    "operators": TypeAdapter(list[OperatorRecord]),
    "sources": TypeAdapter(list[FormatRecord]),
    "policy": TypeAdapter(dict[str, PolicyRecord]),
}
"""The record of each command; of some commands, that of an action or option too."""
