"""Contract of sources: a connector opens a source, which lists frozen shards and reads them as tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from connectors.errors import ConnectorError, CorruptError
from connectors.filters import Predicate
from connectors.policy import SourcePolicy, current_policy
from connectors.text_encoding import UTF8

__all__ = [
    "MAX_SHARD",
    "SHARD_BYTES",
    "Connector",
    "ConnectorError",
    "CorruptError",
    "FileSource",
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


@dataclass(frozen=True)
class SourceShard:
    """A frozen piece of one file.

    ``start``/``stop`` are row groups for Parquet and byte offsets for text formats. ``n_rows`` rows,
    the first of which is row ``file_row`` (0-based) of its file. ``n_bytes`` is the size on disk.
    """

    path: str
    start: int
    stop: int
    n_rows: int
    file_row: int
    n_bytes: int

    @property
    def rows_text(self) -> str:
        """The file and the rows of the shard as an error message names them."""
        return f"{self.path}, rows {self.file_row} to {self.file_row + self.n_rows - 1}"


@dataclass(frozen=True)
class Listing:
    """Schema and shards of a source at the time of listing.

    ``identities`` maps each path to a text that changes when its bytes do.

    ``skipped`` maps each file that was left out to the reason: it cannot be read, and that was allowed.
    """

    schema: pa.Schema
    shards: tuple[SourceShard, ...]
    identities: dict[str, str]
    skipped: dict[str, str] = field(default_factory=dict)


class Source(Protocol):
    """Reads shards as Arrow tables. A source is picklable and holds no open handles."""

    @property
    def skip_corrupt(self) -> bool:
        """Return whether files that cannot be read are left out, and shards taken for rows without values."""
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
    """A source whose files do not say beforehand which columns they have."""

    def unread(self, shard: SourceShard, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns of a shard that the frozen schema has not: they are lost. Raises
        ConnectorError.
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
    """Settings that every source is opened with.

    Relative local paths start at ``root``. Shards hold up to ``shard_bytes`` (one row, row group or
    record batch, if that is larger); one that takes more than ``max_bytes`` in memory is an error.
    ``identities`` may answer for absolute local paths from a cache. ``encoding`` is that of text
    files, as Python names it. ``text_columns`` are read as text
    where a format guesses types. ``missing`` are texts that stand for null, and ``strip`` drops white space
    around texts: a format that guesses types heeds both before it does, and need not do more. ``renamed`` are
    the names that the recipe gives new ones. With ``skip_corrupt``, files that cannot be read are left out.
    ``filter`` says which rows are wanted: a source may leave out what surely holds none of them, and need
    not do more. ``guessed``: nobody named the format, so files with other endings than its own are left out.
    ``policy`` limits what may be opened; by default it is the policy of the process that makes the spec.
    """

    path: str
    shard_bytes: int = SHARD_BYTES
    root: str = ""
    identities: Identities | None = None
    encoding: str = UTF8
    text_columns: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    strip: bool = False
    renamed: tuple[str, ...] = ()
    skip_corrupt: bool = False
    max_bytes: int = MAX_SHARD
    filter: Predicate | None = None
    guessed: bool = False
    policy: SourcePolicy = field(default_factory=current_policy)


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


OptionsT = TypeVar("OptionsT", bound=SourceOptions)


class Connector(ABC, Generic[OptionsT]):
    """One format by name: its recognition among others, its options, and its opening.

    Other packages add theirs by an entry point of the group ``rowsieve.sources`` that names a subclass.
    The module must import fast: a library that only this format needs is imported in ``open``.
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
    Options: ClassVar[type[SourceOptions]] = SourceOptions
    """Model of ``source.options``."""

    @abstractmethod
    def open(self, spec: SourceSpec, options: OptionsT) -> Source:
        """Return a source over ``spec.path``; reads nothing yet. Raises ConnectorError."""
