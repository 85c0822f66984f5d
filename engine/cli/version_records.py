"""Records that the commands on published versions and their rows print with ``--json``."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from engine.cli.json_record import ExportRecord, Object, Record


class ExportedVersion(ExportRecord):
    """An export of a version to a table."""

    version: str
    """The exported version."""


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
    fitted: dict[str, str]
    """Operators that an incremental run fitted again, with the reason; the others kept their state."""
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
    matched: Object
    """By what rows were matched: `key` (columns), `content_columns`, rows `by_key`, `by_position` in
    unchanged files and `by_content`; rows `without_key` and `repeated` (they have the key or content of an
    earlier row), before and after."""
    groups: list[Object]
    """Groups with `change` (same, grown, shrunk, new, gone) and rows before, after and in common."""
    changed: dict[str, Object]
    """For `group`, `split`, `outlier`, `weight`, `duplicate` (rows that nearly duplicate an older row in one
    version alone) and, with a key, `source`: `rows` with another value, and `examples`."""
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
    withdrawn: str | None
    """Why it was withdrawn; null where it stands."""
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
    before: str | None
    """The version that they got before."""
    earlier: list[str]
    """Reasons that were given before; the record keeps them."""
    continued_by: list[str]
    """Standing versions that continue from it, so that what operators have learnt on it is in them."""
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
    elsewhere: list[str]
    """Other outputs on the same MLflow server with a version of this name, whose runs and models were left
    alone."""
