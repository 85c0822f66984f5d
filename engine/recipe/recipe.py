"""The recipe that a user writes: its sections and their checks. Every error names the key and the fix."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator

from engine.core.errors import InputError
from engine.core.policy import apply_policy
from engine.core.redaction import redact
from engine.core.suggestions import explain
from engine.recipe.incremental import IncrementalSection, TrainSection
from engine.recipe.places import catalog_files, network_folders
from engine.recipe.section import Section
from engine.recipe.yaml_text import apply_override, check_values, read_yaml, write_yaml

STANDARD_CHAIN: dict[str, dict[str, Any]] = {
    "probe": {},
    "cues": {},
    "groups": {"method": "cues"},
    "weights": {},
    "split": {},
}
"""Operators of a recipe that names none: linear in rows, and class balance where evidence is weak."""

PathText = Annotated[str, Field(min_length=1, pattern=r"^[^\x00-\x1f]*$")]


def no_entry_twice(entries: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """Return the entries. Raises ValueError, which names the first that is there twice."""
    counted = Counter((type(entry), entry) for entry in entries or ())
    twice = [entry for (_, entry), number in counted.items() if number > 1]
    if twice:
        raise ValueError(f"{twice[0]!r} is given twice. Remove one of the two")
    return entries


MOST_SECONDS = 10**9
"""Longest time that a recipe may name, 31 years: threads cannot wait for 292."""
ICEBERG = "iceberg"
"""The format whose paths may be names of tables in a catalog."""


class HoldoutSection(Section):
    """Rows that no operator and no trainer learns from. Operators fitted to the other rows place them."""

    share: float = Field(default=0.1, gt=0, lt=1, description="Share of rows published as `test`")
    validation: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Share of rows published as `validation`, in place of the split's",
    )
    key: str | None = Field(
        default=None,
        description="Column whose value decides, such as a customer's number: rows with one value stay "
        "together, whatever becomes of the files. Default: the bytes of the file and the position in it, "
        "which new and renamed files do not change, but a file that is written again does",
    )

    @model_validator(mode="after")
    def _leaves_rows(self) -> Self:
        if self.share + self.validation >= 1:
            raise ValueError(
                f"share ({self.share}) and validation ({self.validation}) leave nothing "
                "to learn from. Lower one of them"
            )
        return self


class SourceSection(Section):
    """The source of the rows, and the roles of its columns."""

    path: PathText = Field(description="File, directory or glob; relative to the working directory, or a URI")
    format: str = Field(
        default="auto", description="Name of the format (`rowsieve sources`); auto: recognised by the files"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="The format's own options")
    encoding: str = Field(
        default="utf-8",
        max_length=40,
        description="Encoding of CSV and JSON lines: utf-8, utf-16, one of one byte a character such as "
        "latin-1 or cp1252, or one of gb18030, big5, shift_jis, euc_jp, euc_kr and their like",
    )
    label: str = Field(description="Column with the class of each row")
    features: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Columns that become features: numbers, booleans, texts, dates and vectors; default: all "
        "of them but the label, `exclude`, `truth`, and names that begin with `_`, such as ids of other "
        "tools. Of these, `encode` leaves out identifiers and constants",
    )
    exclude: tuple[str, ...] = Field(default=(), description="Columns never used as features")
    text_columns: tuple[str, ...] = Field(
        default=(), description="CSV or partition columns to read as text, not as numbers"
    )
    rename: dict[str, str] = Field(
        default_factory=dict,
        description="Old name: new name; also a struct's field, `metadata.language: language`, and the "
        "second of two columns of one name, `score.1: other_score`. All other keys use the new names",
    )
    flatten: tuple[str, ...] = Field(
        default=(),
        description="Struct columns whose fields become columns, `metadata.language`, at any depth",
    )
    strip: bool = Field(default=False, description="Drop white space at both ends of every text")
    missing: tuple[Annotated[str, Field(max_length=100)], ...] = Field(
        default=(),
        description='Texts that stand for a missing value, such as `["?", "NA"]`, in CSV, JSON lines and the '
        "text columns of every format. Empty cells of CSV are missing anyway",
    )
    label_map: dict[str | int | bool, str | int | bool | None] = Field(
        default_factory=dict,
        description="Value of the label: class to take it for, `{'<=50K.': '<=50K'}`; null: missing. "
        "Values that are not named stay",
    )
    filter: Any = Field(
        default=None,
        description='Rows to take: `[[age, ">=", 18], [country, in, [de, fr]]]`, all of which must hold, or '
        "a list of such lists, one of which must hold. Files and row groups without such rows are not read",
    )
    columns: tuple[str, ...] | None = Field(
        default=None,
        description="Columns to publish, and to take features from, in addition to the label and the named "
        "features; default: all",
    )
    classes: tuple[str | int | bool, ...] | None = Field(
        default=None, min_length=2, description="Allowed labels"
    )
    shard_bytes: int = Field(
        default=128 * 2**20, ge=1, description="Target size of a shard on disk, in bytes"
    )
    max_shard_bytes: int = Field(
        default=8 * 2**30,
        ge=1,
        description="Largest size of a shard in memory, in bytes; a larger one is an error, as it may be a "
        "decompression bomb",
    )
    on_error: Literal["fail", "quarantine"] = Field(
        default="fail", description="What to do with a faulty row"
    )
    max_error_rate: float = Field(
        default=0.01, ge=0, le=1, description="Share of rows that may be quarantined"
    )
    on_corrupt: Literal["fail", "skip"] = Field(
        default="fail", description="What to do with a file, or a shard of one, that cannot be read"
    )
    holdout: HoldoutSection | None = Field(
        default=None,
        description="Rows held out from everything: no operator learns from them, so that scores on them are "
        "unbiased. A number is the `share`; default: none",
    )

    _no_entry_twice = field_validator("features", "classes")(no_entry_twice)

    @field_validator("holdout", mode="before")
    @classmethod
    def _share_alone(cls, value: Any) -> Any:
        return {"share": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


class TruthSection(Section):
    """Columns with the truth, used only for scores. No operator may read them."""

    group: str | None = Field(default=None, description="Column with the true group")
    outlier: str | None = Field(default=None, description="Column that is true where a row is damaged")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the section names, each once."""
        return tuple(dict.fromkeys(name for name in (self.group, self.outlier) if name))


class ExportSection(Section):
    """A table to which every version is exported after it is published."""

    format: Literal["delta", "hf", "iceberg", "lance", "parquet"] = Field(description="Format of the table")
    path: PathText = Field(
        description="Folder or URI; iceberg: `namespace.table`; parquet: each version is a folder inside "
        "it; hf: a local folder for Hugging Face's hub"
    )
    mode: Literal["create", "append", "overwrite"] = Field(
        default="create",
        description="create: an existing table is an error. append: add the rows. overwrite: replace the "
        "existing rows. A version that the table's history has is not written again",
    )
    catalog: str | dict[str, str] | None = Field(
        default=None, description="Iceberg: the catalog's name or properties, as in `source.options`"
    )


class OutputSection(Section):
    """The output folder of versions, run store and records."""

    path: PathText = Field(
        description="Folder of published versions, created if absent; or a URI: s3, gs, az, abfss"
    )
    prefix: str = Field(
        default="", description="Prefix of the added columns, needed when the source has the same names"
    )
    export: tuple[ExportSection, ...] = Field(
        default=(), description="Tables to write each published version to"
    )


class RunSection(Section):
    """The execution of a run: place, speed and limits. The results do not depend on this section."""

    executor: Literal["auto", "ray", "local"] = Field(
        default="auto",
        description="local: in this process; auto: Ray where a cluster is named or sharing the work saves "
        "more time than starting Ray takes, else this process. The results are the same",
    )
    address: str | None = Field(
        default=None,
        description="Ray cluster to join; only by `--set` or where the administrator allows it. Default: "
        "RAY_ADDRESS, else a local one",
    )
    cpus: int | None = Field(default=None, ge=1, description="CPUs of a local Ray; default: all, at least 4")
    object_store_mb: int = Field(default=512, ge=80, description="Object store of a local Ray")
    shards_in_flight: int | None = Field(default=None, ge=1, description="Upper limit of actors per operator")
    no_progress_seconds: float = Field(
        default=1800.0,
        ge=0,
        le=MOST_SECONDS,
        description="Time without progress of an operator on Ray after which the run ends; 0: no limit",
    )
    lease_seconds: float = Field(
        default=60.0,
        gt=0,
        le=MOST_SECONDS,
        description="Time without a heartbeat after which another run may take the output folder over",
    )

    def ray_address(self) -> str | None:
        """Return the Ray cluster to join: ``address``, else the environment's; None: none is named.

        Raises InputError for a URI. A Ray Client (``ray://``) unpickles what its server sends and has its
        driver on the server, without this process's modules; ``http://`` is the address of a dashboard.
        """
        key = "run.address" if self.address else "RAY_ADDRESS"
        named = self.address or os.environ.get("RAY_ADDRESS")
        if named and "://" in named:
            raise InputError(
                f"{key}: {redact(named)}: a run joins Ray as a node of the cluster; it cannot be a Ray "
                f"Client (ray://) or take a dashboard's address. On a node, name HEAD:6379 or auto; "
                f"elsewhere, send the recipe: rowsieve submit RECIPE --address http://HEAD:8265."
            )
        return named or None


class ImageSection(Section):
    """Size and column of the pictures that the report draws of rows."""

    column: str = Field(description="Source column: image files as bytes, or a vector of pixels, row by row")
    height: int | None = Field(default=None, ge=1, description="In pixels; of vectors")
    width: int | None = Field(default=None, ge=1, description="In pixels; of vectors")
    channels: Literal[1, 3] = Field(default=1, description="1: grey; 3: red, green, blue")


class ReportSection(Section):
    """The content of the report."""

    enabled: bool = Field(default=True, description="false: no report is drawn")
    title: str | None = Field(default=None, description="Default: the recipe's name")
    image: ImageSection | None = Field(
        default=None, description="Draw every row as a picture; default: where an operator reads image files"
    )
    fields: tuple[str, ...] | None = Field(
        default=None, description="Source columns shown for each row; default: eight, suspected first"
    )
    rows_per_group: int = Field(default=12, ge=1, le=100, description="Rows shown of every group")

    _no_entry_twice = field_validator("fields")(no_entry_twice)


class TrackingSection(Section):
    """MLflow. The server comes from MLFLOW_TRACKING_URI, else a SQLite file in the output folder."""

    experiment: str = Field(default="rowsieve", description="MLflow's experiment")
    enabled: bool = Field(default=True, description="false: nothing is recorded")


class Recipe(Section):
    """A whole recipe. ``Recipe.load(path, overrides)`` reads YAML; ``rowsieve.run(recipe)`` runs it."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Name of the recipe, used in records"
    )
    seed: int = Field(default=0, ge=0, description="Seed of all random draws")
    source: SourceSection
    truth: TruthSection = TruthSection()
    operators: dict[str, dict[str, Any]] = Field(default_factory=lambda: dict(STANDARD_CHAIN))
    output: OutputSection
    incremental: IncrementalSection = IncrementalSection()
    train: TrainSection | None = None
    run: RunSection = RunSection()
    report: ReportSection = ReportSection()
    tracking: TrackingSection = TrackingSection()
    _file: str = PrivateAttr(default="")

    @field_validator("operators", mode="before")
    @classmethod
    def _no_parameters_is_empty(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: {} if params is None else params for name, params in value.items()}
        return value

    @classmethod
    def parse(cls, value: Any, place: str = "recipe", overrides: Sequence[str] = ()) -> Recipe:
        """Check a mapping, changed in place by ``a.b=c`` overrides, against the schema and the policy.

        Overrides come from whoever starts the run, so they may name a Ray cluster; the mapping may not.
        Raises InputError with one line for each fault, and for what the administrator's policy forbids.

        Examples
        --------
        >>> from rowsieve import Recipe
        >>> value = {
        ...     "name": "churn",
        ...     "source": {"path": "data/churn.parquet", "label": "churned"},
        ...     "output": {"path": "curated/churn"},
        ... }
        >>> recipe = Recipe.parse(value, overrides=["seed=7"])
        >>> recipe.seed, list(recipe.operators)
        (7, ['probe', 'cues', 'groups', 'weights', 'split'])
        """
        for override in overrides:
            apply_override(value, override)
        if not isinstance(value, dict):
            raise InputError(
                f"{place}: a recipe is a mapping of keys to values, this is {type(value).__name__}."
            )
        check_values(value, place)
        try:
            recipe = cls.model_validate(value)
        except ValidationError as error:
            raise InputError(explain(error, cls, place)) from None
        policy = apply_policy()
        changed = {override.partition("=")[0].strip() for override in overrides}
        if recipe.run.address is not None and not changed & {"run", "run.address"}:
            policy.check_address(place, recipe.run.address)
        for key, path in recipe.paths():
            policy.check_path(f"{place}: {key}", path)
        for key, path, is_table in recipe.written():
            policy.check_output(f"{place}: {key}", path, is_table=is_table)
        return recipe

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
        """Read a YAML file and apply ``a.b=c`` overrides. Raises InputError."""
        recipe = cls.parse(read_yaml(Path(path)), str(path), overrides)
        recipe._file = str(path)
        return recipe

    def to_yaml(self, *, sort_keys: bool = False) -> str:
        """Return YAML of the keys that were given, from which an equal recipe is read. Raises InputError."""
        return write_yaml(self.model_dump(exclude_unset=True), self.place, sort_keys=sort_keys)

    def paths(self) -> Iterator[tuple[str, str]]:
        """Yield key and path of each file or folder that the recipe names; names of tables are none.

        The value at the key ends with the path: ``hf:`` or ``sqlite:///`` may precede it.
        """
        source, catalog = self.source, self.source.options.get("catalog")
        if source.format == ICEBERG and catalog is not None:
            yield from catalog_files("source.options.catalog", catalog)
        else:
            yield "source.path", source.path
        stored = self.operators.get("gradients", {}).get("stored")
        if isinstance(stored, dict) and isinstance(stored.get("path"), str):
            yield "operators.gradients.stored.path", stored["path"]
        if self.train is not None:
            yield from network_folders(
                self.train.params, self.train.search.space if self.train.search else {}
            )
        yield from ((key, path) for key, path, is_table in self.written() if not is_table)

    def written(self) -> Iterator[tuple[str, str, bool]]:
        """Yield key and value of each place that a run writes to, and whether it is a table in a catalog."""
        yield "output.path", self.output.path, False
        for number, export in enumerate(self.output.export):
            key, is_table = f"output.export.{number}", export.format == ICEBERG and export.catalog is not None
            yield f"{key}.path", export.path, is_table
            yield from ((*found, False) for found in catalog_files(f"{key}.catalog", export.catalog))

    @property
    def file(self) -> str:
        """The recipe's file; empty if it was not read from a file."""
        return self._file

    @property
    def place(self) -> str:
        """The recipe's file, or its name if it was not read from a file, for error messages."""
        return self._file or self.name
