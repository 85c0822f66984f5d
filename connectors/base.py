"""Contract of sources: a connector opens a source, which lists frozen shards and reads them as tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from connectors.errors import ConnectorError, CorruptError
from connectors.filters import Predicate
from connectors.foundation.immutable import freeze_fields
from connectors.policy import SourcePolicy, current_policy
from connectors.text_encoding import UTF8

__all__ = [
    "MAX_SHARD",
    "MAX_SHARD_ROWS",
    "SHARD_BYTES",
    "Connector",
    "ConnectorError",
    "CorruptError",
    "FileSource",
    "FileStamp",
    "Identities",
    "LateColumns",
    "Listing",
    "Narrowing",
    "OptionsT",
    "Source",
    "SourceOptions",
    "SourceShard",
    "SourceSpec",
    "narrowed",
]

Identities = Callable[[Iterable[str]], dict[str, str]]
SHARD_BYTES = 128 * 2**20
"""Default size of a shard, in bytes."""
MAX_SHARD = 8 * 2**30
"""Default limit of what a shard may take in memory, in bytes."""
MAX_SHARD_ROWS = 2**27
"""Most rows of a shard: each takes some 100 bytes in a run, and packed bits of 2^31 rows fit into 17 KB."""


@dataclass(frozen=True)
class FileStamp:
    """Size, time and identity of a file when it was listed, by which a later change of it is noticed."""

    size: int | None
    """Bytes; None where a server does not say."""
    mtime_ns: int | None
    """Time of the last change; None where a server does not say."""
    identity: str
    """Text that changes when the bytes of the file do."""
    changed_ns: int | None = None
    """Time of the last change of a local file's inode; None for others."""


@dataclass(frozen=True)
class SourceShard:
    """A frozen piece of one file."""

    path: str
    start: int
    stop: int
    """``start`` and ``stop`` are row groups for Parquet, record batches for Arrow, byte offsets for text."""
    n_rows: int
    file_row: int
    """Position of the first row in its file, 0-based."""
    n_bytes: int
    """Size on disk."""
    stamp: FileStamp | None = field(default=None, kw_only=True)
    """The file when it was listed; None where a table or a query fixes its content in another way."""

    @property
    def rows_text(self) -> str:
        """The file and the rows of the shard as an error message names them."""
        return f"{self.path}, rows {self.file_row} to {self.file_row + self.n_rows - 1}"


@dataclass(frozen=True)
class Listing:
    """Schema and shards of a source at the time of listing. Immutable, with its mappings."""

    schema: pa.Schema
    shards: tuple[SourceShard, ...]
    identities: dict[str, str]
    """Path to a text that changes when the bytes of the file do."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Path of each file that cannot be read and was left out, to the reason."""

    def __post_init__(self) -> None:
        """Copy the mappings, so that whoever passed them cannot change them.

        Raises ConnectorError for a shard of more than ``MAX_SHARD_ROWS`` rows.
        """
        freeze_fields(self.__dict__)
        for shard in self.shards:
            if shard.n_rows > MAX_SHARD_ROWS:
                raise ConnectorError(
                    f"{shard.path}: {shard.n_rows:,} rows from row {shard.file_row} on would be one shard, "
                    f"which has at most {MAX_SHARD_ROWS:,}. Write smaller row groups or batches, or lower "
                    f"source.shard_bytes."
                )


class Source(Protocol):
    """Reads shards as Arrow tables. A source is picklable and holds no open handles."""

    @property
    def skip_corrupt(self) -> bool:
        """Return whether files that cannot be read are left out, and the rows of such shards are rejected."""
        ...

    def list(self) -> Listing:
        """Find the files, read their schemas and freeze shards. Raises ConnectorError."""
        ...

    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the named columns of one shard, cast to ``schema``. Raises ConnectorError."""
        ...

    def locate(self, shard: SourceShard, row: int) -> str:
        """Name a row of a shard (0-based) the way an editor shows it: "line 17", or "row 16" for Parquet."""
        ...

    def file_rows(self, shard: SourceShard, rows: Sequence[int]) -> Sequence[int]:
        """Return the rows of a shard (0-based) by their position in their file, 0-based."""
        ...


@runtime_checkable
class LateColumns(Protocol):
    """A source whose files do not declare their columns."""

    def unread(self, shard: SourceShard, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns of a shard that the frozen schema lacks, and that are not read for this reason.

        Raises ConnectorError.
        """
        ...


@runtime_checkable
class Narrowing(Protocol):
    """A source that can read the first rows of a shard without the others."""

    def narrowed(self, shard: SourceShard, n_rows: int) -> SourceShard:
        """Return a shard of about the first ``n_rows`` rows of ``shard``; the shard itself if it has no more.

        Raises ConnectorError.
        """
        ...


def narrowed(source: Source, shard: SourceShard, n_rows: int) -> SourceShard:
    """Return a shard of about the first ``n_rows`` rows where the source can read those alone."""
    return source.narrowed(shard, n_rows) if isinstance(source, Narrowing) else shard


@dataclass(frozen=True)
class SourceSpec:
    """Settings that every source is opened with."""

    path: str
    shard_bytes: int = SHARD_BYTES
    """Largest size of a shard, unless one row, row group or record batch is larger."""
    root: str = ""
    """Folder at which relative local paths start."""
    identities: Identities | None = None
    """Cache of the identities of absolute local paths."""
    encoding: str = UTF8
    """Encoding of text files, as Python names it."""
    text_columns: tuple[str, ...] = ()
    """Columns that are read as text where a format guesses types."""
    missing: tuple[str, ...] = ()
    """Texts that stand for null. A format that guesses types must apply them before it does."""
    strip: bool = False
    """Whether to drop white space around texts. A format that guesses types must do so before it does."""
    renamed: tuple[str, ...] = ()
    """Stored names of the columns that the recipe renames."""
    skip_corrupt: bool = False
    """Whether to leave out files that cannot be read."""
    max_bytes: int = MAX_SHARD
    """A shard that takes more memory is an error."""
    filter: Predicate | None = None
    """Rows that are wanted. A source may leave out files and shards that hold none of them."""
    guessed: bool = False
    """Whether the format was guessed, so that files with other endings than its own are left out."""
    policy: SourcePolicy = field(default_factory=current_policy)
    """Limits of what may be opened; by default the policy of the process that makes the spec."""


@dataclass(frozen=True)
class FileSource:
    """Base of sources whose rows are counted through each file."""

    spec: SourceSpec

    @property
    def skip_corrupt(self) -> bool:
        """Return whether ``spec.skip_corrupt`` allows files that cannot be read to be left out."""
        return self.spec.skip_corrupt

    def locate(self, shard: SourceShard, row: int) -> str:
        """Name row ``row`` (0-based within the shard) by its place in the file, 0-based: "row 16"."""
        return f"row {shard.file_row + row}"

    def file_rows(self, shard: SourceShard, rows: Sequence[int]) -> Sequence[int]:
        """Return the 0-based positions in their file of rows of a shard (0-based)."""
        return [shard.file_row + row for row in rows]


class SourceOptions(BaseModel):
    """Base of a format's own options, ``source.options`` in a recipe: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def model_post_init(self, context: Any, /) -> None:
        """Make the dicts and lists among the values immutable."""
        freeze_fields(self.__dict__)


OptionsT = TypeVar("OptionsT", bound=SourceOptions)


class Connector(ABC, Generic[OptionsT]):
    """A format: its name, how it is recognised, its options, and how a source of it is opened.

    Other packages add theirs by an entry point of the group ``rowsieve.sources`` that names a subclass. The
    module must import fast, so a library that only this format needs is imported in ``open``.
    """

    name: ClassVar[str]
    """Value of ``source.format``."""
    summary: ClassVar[str]
    """One line for lists and the reference."""
    extensions: ClassVar[tuple[str, ...]] = ()
    """Endings of file names, in lower case with their dot, that ``format: auto`` takes for this format."""
    markers: ClassVar[tuple[str, ...]] = ()
    """Names within a folder that make the whole folder one dataset of this format."""
    schemes: ClassVar[tuple[str, ...]] = ()
    """URI schemes that belong to this format alone, such as ``postgresql``."""
    has_encoding: ClassVar[bool] = False
    """Whether its files are text, which ``source.encoding`` holds for."""
    has_text_columns: ClassVar[bool] = False
    """Whether types are guessed from texts, which ``source.text_columns`` prevents."""
    Options: ClassVar[type[SourceOptions]] = SourceOptions
    """Model of ``source.options``."""

    def names_table(self, options: Mapping[str, Any]) -> bool:
        """Return whether ``source.path`` is a name in a catalog of the options, and so no place to check."""
        return False

    @abstractmethod
    def open(self, spec: SourceSpec, options: OptionsT) -> Source:
        """Return a source over ``spec.path``; reads nothing yet. Raises ConnectorError."""
