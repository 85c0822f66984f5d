"""Records that the commands on a recipe and its source print with ``--json``, before anything runs."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from engine.cli.json_record import LeakRecord, Object, Record


class WarningRecord(Record):
    """A finding about the source."""

    kind: str
    """Kind of the finding."""
    text: str
    """The finding in words, with the remedy."""


class ValueCount(Record):
    """A value of the label."""

    value: str | None
    """The value as text."""
    rows: int
    """Rows that have it."""


class LabelRecord(Record):
    """Values of the label column."""

    name: str
    """Name of the label column."""
    counts: list[ValueCount]
    """Values with their rows, the most frequent first."""
    distinct: int
    """Number of different values."""
    missing: int
    """Number of rows without a value."""
    is_exact: bool
    """False where the counts are those of a sample."""


class ColumnRecord(Record):
    """A column of the source and its use."""

    name: str
    """Name of the column."""
    type: str
    """Arrow type of the column."""
    kind: str | None
    """Kind of the feature; null where the column is not a feature."""
    reason: str | None
    """The reason why the column is not a feature; null where it is one."""
    note: str
    """A remark on the column, or an empty text."""
    parameters: Object
    """Parameters of the column's encoding."""
    warning: str
    """A doubt about the column's use, with the remedy, or an empty text."""
    read_by: list[str] | None = None
    """Operators that read the column as it is stored."""
    rows_seen: int | None = None
    """Number of rows that were looked at."""
    missing: int | None = None
    """Number of these rows without a value."""
    distinct: int | None = None
    """Number of different values in these rows."""
    examples: list[str] | None = None
    """Some of the values, as text."""


class SourceRecord(Record):
    """Columns and label of a source."""

    columns: list[ColumnRecord]
    """All columns of the source."""
    seen: str
    """The rows that were looked at, in words."""
    label: LabelRecord
    """Values of the label."""
    likely_leaks: list[LeakRecord]
    """Columns that tell the label on their own."""
    warnings: list[WarningRecord]
    """Findings about the source."""


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
    """The rows that operators learn from, in words."""
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
    """Columns and label of the source."""
    withdrawn: str | None
    """The reason given when `withdrawn_as` was withdrawn, for which a run is refused; null where none was."""
    withdrawn_as: str | None
    """A withdrawn version with the same rows, operators and seed."""


class DraftRecord(Record):
    """A drafted recipe."""

    file: str | None
    """The file that was written; null without `-o`."""
    recipe: str
    """The recipe, in YAML."""
    rows: int
    """Rows of the source."""
    columns: int
    """Number of columns of the source."""
    used: int
    """Number of columns that are used as features."""
    cpu_seconds: float
    """Expected time of a run on one core."""
    likely_leaks: list[LeakRecord]
    """Columns that tell the label on their own; the recipe leaves them out."""
    warnings: list[str]
    """Findings about the source."""


class FormatRecord(Record):
    """A format of sources."""

    name: str
    """Value of `source.format`."""
    summary: str
    """The files or tables that the format reads."""
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
    """The task of the operator."""
    version: int
    """Raised when equal parameters give other values."""
    methods: list[str]
    """Values of its key `method`."""
    parameters: Object
    """JSON schema of its parameters."""


class PolicyRecord(Record):
    """A limit of the administrator's policy."""

    allowed: Any
    """The limit; null for none."""
    source: str = Field(alias="from")
    """The file or variable that sets it, or "default"."""
