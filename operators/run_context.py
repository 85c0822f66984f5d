"""The data and services that the engine hands to an operator: shards, executors, states, data for reports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from operators.operator_params import Resources
from operators.report import RowLocation, RowStatistics

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Fault:
    """The reason why a row of a shard was rejected. ``row`` counts from 0 within the shard."""

    row: int
    column: str
    value: str
    error: str


@dataclass(frozen=True)
class ShardInfo:
    """A shard of the plan: the rows ``first_row .. first_row + n_rows - 1``, which are read from ``path``.

    ``file_row`` is the position of the shard's first row in its file (0-based); errors name it.
    """

    index: int
    path: str
    first_row: int
    n_rows: int
    file_row: int
    identity: str = ""
    """Identity of the bytes of the file; empty where nobody asks for it."""
    folder: str = ""
    """Absolute local folder of the file; empty where there is none."""


class ShardReader(Protocol):
    """Reads the columns of shards for an operator. Picklable: actors open the files themselves.

    If the recipe holds rows out from every ``fit``, the reader that ``fit`` receives leaves them out, and
    ``read_source`` then adds ``row_id``, because positions no longer identify rows. The one
    exception is :attr:`Context.all_shards`.
    """

    @property
    def shards(self) -> Sequence[ShardInfo]:
        """The shards of the plan, by index."""
        ...

    def read(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Return ``row_id`` and columns of earlier operators, for valid rows only, in row order."""
        ...

    def read_source(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Return raw source columns of all rows. Refuses truth columns."""
        ...


class Executor(Protocol):
    """Runs functions in this process or on a Ray cluster. The results are the same on both."""

    kind: Literal["local", "ray"]

    def map(self, fn: Callable[[T], R], items: Sequence[T], *, resources: Resources = ...) -> Iterator[R]:
        """Yield ``fn(item)`` for every item, in the order of the items. Everything passed must pickle."""
        ...


@dataclass(frozen=True)
class Context:
    """Everything that an operator receives at run time. Picklable."""

    shards: ShardReader
    state: Path
    """This operator's own state folder, which ``fit`` writes and ``open`` reads."""
    states: Mapping[str, Path] = field(default_factory=dict)
    """State folders of the operators named in ``uses``, by name."""
    seed: int = 0
    all_shards: ShardReader | None = None
    """In a ``fit`` from which rows are held out: a reader of all rows. It tells whether the texts of a column
    are all numbers or dates, and of what kind it is if they are not, since held-out rows are encoded too, and
    what the classes are, since held-out rows have one too; nothing else is learnt from it."""


@dataclass(frozen=True)
class DatasetDelta:
    """Change of the dataset since an operator's state was fitted. Picklable."""

    state: Path
    """The existing state folder. It is read-only."""
    metrics: Mapping[str, float]
    """The metrics that ``fit`` or the last ``partial_fit`` returned."""
    new_shards: tuple[int, ...]
    """Indices of the shards whose rows the state has not seen."""
    rows_removed: bool
    """Whether rows that the state has seen were removed, so that the row ids after them are smaller now."""


Labelings = Callable[[int, NDArray[np.int64]], Iterable[tuple[Hashable, NDArray[np.integer[Any]]]]]
"""Alternative labelings of some rows: ``(y, row_ids (n,) ascending)`` -> pairs of a name and labels (n,),
-1 for noise and -2 for a row that the labeling leaves out."""


class ReportContext(Protocol):
    """Data from which an operator makes its section of the report. Used in the driver; not picklable.

    Everything here is bounded in size, except what the operator reads itself through ``shards``.
    """

    @property
    def state(self) -> Path:
        """The operator's own state folder, as ``fit`` left it."""
        ...

    @property
    def metrics(self) -> Mapping[str, float]:
        """Metrics that ``fit`` returned."""
        ...

    @property
    def classes(self) -> Sequence[str]:
        """Names of the classes, in the order in which ``y`` counts them."""
        ...

    @property
    def seed(self) -> int:
        """Return the seed of the recipe."""
        ...

    @property
    def shards(self) -> ShardReader:
        """Reader of all columns that the recipe's operators add, including this operator's own."""
        ...

    @property
    def columns(self) -> Collection[str]:
        """Names of the columns that the recipe's operators add."""
        ...

    @property
    def executor(self) -> Executor:
        """Runs functions over shards where these hold too many rows for the driver."""
        ...

    def counts(self, *columns: str) -> Mapping[tuple[Any, ...], RowStatistics]:
        """Count the valid rows by the values of some columns.

        Parameters
        ----------
        columns : some of ``y``, ``group``, ``split``, ``is_outlier``, ``outlier_source`` and ``marked_by``.

        Returns
        -------
        The columns' values, in the order given, to statistics of the rows with these values.
        """
        ...

    def sample(self, columns: Sequence[str]) -> pa.Table:
        """Read a bounded random sample of rows in which small groups are kept whole.

        Returns
        -------
        In the order of ``row_id``: ``row_id``, ``y``, ``group``, ``represents`` (float64: number of rows of
        the same group that the row stands for), and those of ``columns`` that the recipe's operators add.
        """
        ...

    def locate(self, row_ids: Sequence[int]) -> list[RowLocation]:
        """Find the source file of each row and the row's position in that file."""
        ...

    def agreement_with_truth(self, labelings: Labelings) -> Mapping[tuple[int, Hashable], float]:
        """Score labelings by the adjusted Rand index with the true groups, within each class.

        The operator does not see the truth itself.

        Parameters
        ----------
        labelings : called for the rows of each class in each shard. Labels are integers of at least -1.

        Returns
        -------
        Class index and name of the labeling to its score; empty if the recipe names no true groups.
        """
        ...
