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
    """The row's `row_id`, its position in the plan."""
    file: str
    """File of the source."""
    row: int
    """Row in the file, from 0."""
    operator: str
    """Operator that rejected it."""
    column: str | None
    """The column at fault; null if the fault lies in no column."""
    value: str | None
    """The value in that column, as text."""
    error: str
    """The fault in words."""
    raw: str | None
    """The whole row, as JSON."""


class ExportedRows(Record):
    """Rows that were set aside and are written to a file."""

    rows: int
    """Number of rows."""
    file: str
    """Path of the file."""


class ReplayRecord(Record):
    """The outcome of running rows again that were set aside."""

    version: str
    """The version that was published."""
    rows: int
    """Number of rows that were set aside before."""
    recovered: int
    """Number of these rows that are set aside no longer: they are used now, or gone from the source."""
    new: int
    """Number of rows that were set aside only now."""


class VersionRecord(Record):
    """A published version."""

    version: str
    """Name of the version."""
    current: bool
    """Whether readers of the output get this version."""
    publication_number: int
    """Position in the order of publication, from 1; 0 for versions from before the numbers."""
    published_at: float
    """Time at which the version's manifest was written, in seconds since 1970: that of the publication, or of
    the copy where the output was copied without the times of its files."""
    rows: int
    """Number of rows."""
    groups: int
    """Number of inferred groups."""
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
    """The reason why the version was withdrawn; null where it was not."""


class PruneRecord(Record):
    """Versions that were removed; with ``--dry-run``: that would be."""

    versions: list[str]
    """Names of the removed versions."""
    fingerprints: list[str]
    """Removed folders of the run store."""
    kept_for: dict[str, str]
    """Older versions that stay, with the reason."""


class DiffRecord(Record):
    """Differences of two versions."""

    before: str
    """Name of the first version."""
    after: str
    """Name of the second version."""
    rows: dict[str, int]
    """Numbers of rows: `before`, `after`, `common`, `gone`, `new`."""
    matched: Object
    """Rows that were matched, by means: `key` (columns), `content_columns`, rows `by_key`, `by_position` in
    unchanged files and `by_content`; rows `without_key` and `repeated` (they have the key or content of an
    earlier row), before and after."""
    groups: list[Object]
    """Groups with `change` (same size, grown, shrunk, new, gone) and rows before, after and in common."""
    changed: dict[str, Object]
    """For `group`, `split`, `outlier`, `weight`, `duplicate` (rows that nearly duplicate an older row in one
    version alone) and, with a key, `source`: `rows` with another value, and `examples`."""
    largest_weight_change: float
    """Largest absolute difference of a weight."""
    tolerance: float
    """Difference above which a weight counts as changed."""
    rows_written: int | None = None
    """Number of rows in the file; null without `--rows`."""


class GroupsRecord(Record):
    """The groups of a version in words."""

    version: str
    """Name of the version."""
    recipe: str
    """Name of the recipe."""
    format: int
    """Number of this format."""
    columns: list[Object | str]
    """Columns that the words are about."""
    sampled_rows: int
    """Number of rows that were drawn."""
    groups: list[Object]
    """`group`, `class`, `rows`, `share` (of the rows that are not quarantined), `accuracy`, `description`,
    `rule`, `terms`, `central_rows`."""
    slices: list[Object]
    """Suspected shortcuts: `slice`, `also`, `description`."""


class CuesRecord(BaseModel):
    """Suspected shortcuts of a version. Further keys are figures of the operator `cues`."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    version: str
    """Name of the version."""
    classes: list[str]
    """Classes of the label."""
    sample_rows: int
    """Number of rows that were looked at."""
    suspects: list[Object]
    """`slice`, `reference` for the recipe, `answer`, `gain` with its `gain_rows`, `cost`, `strength`, and
    accuracies. `balanced`: the weights balance it without an answer."""
    spurious: list[Any]
    """Columns that the recipe names as shortcuts."""
    legitimate: list[Any]
    """Columns that the recipe names as honest signal."""
    robustness: str
    """The recipe's `operators.cues.robustness`: safe or bold."""
    trade_off: Object | None
    """Worst group and mean over the strength of weighting. `group_rows`: rows of each group; `pooled` and
    `left_out`: groups of fewer than 50 rows, compared as one or in no figure of the worst group;
    `classes_left_out`: rows of the classes that are in no such figure."""
    importance: Object | None
    """Permutation importance of the columns."""
    recipe_section: str
    """Section of the recipe with today's answers."""
    group_notes: list[str]
    """Warnings of the operator `groups`, such as classes that are not split."""


class RowRecord(Record):
    """Result of ``rowsieve explain``: the findings of each operator about one row."""

    version: str
    """Name of the version."""
    row_id: int
    """The row's `row_id`."""
    path: str
    """File of the source."""
    shard: int
    """Number of the row's shard in the plan."""
    row: int
    """Position of the row in its shard, from 0."""
    source: Object
    """Values of the source's columns."""
    published: Object
    """Values of the published columns."""
    operators: list[Object]
    """`operator`, and its `facts`: `name`, `value`, `note`."""


class LineageRecord(Record):
    """The origin of a version, and the models that were trained on it."""

    version: str
    """Name of the version."""
    withdrawn: str | None
    """The reason why the version was withdrawn; null where it stands."""
    folder: str
    """Folder of the version."""
    content: str
    """Digest of the version's rows."""
    rows: int
    """Number of rows."""
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
    """Name of the version."""
    why: str
    """The reason of the withdrawal; empty where the version stands again."""
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
    """The error that kept MLflow from being told; empty if there was none."""
    exports_error: str
    """The error that kept the exports from being listed; empty if there was none."""
    elsewhere: list[str]
    """Other outputs on the same MLflow server with a version of this name, whose runs and models were left
    alone."""
