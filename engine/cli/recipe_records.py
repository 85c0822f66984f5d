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
    withdrawn: str | None
    """Why a run is refused: the reason of the withdrawal of `withdrawn_as`; null where it is not."""
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
    """Its columns."""
    used: int
    """Columns that are used as features."""
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
