"""The contract between a method (an operator) and the engine that runs it.

An operator adds columns to each row. A row-wise operator implements only :meth:`Operator.open`. An operator
that has to see the whole dataset also implements :meth:`Operator.fit`, which writes a small state into a
folder that every later call of ``open`` may read. No data whose size grows with the number of rows passes
through the process that calls ``fit``: this process hands work to an :class:`Executor` and receives small
values.
"""

from __future__ import annotations

import inspect
import os
import shutil
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import ConfigDict, Field
from pydantic_core import to_jsonable_python

from connectors.foundation.immutable import freeze_fields
from operators.attribute_docs import DescribedModel
from operators.explanations import ExplainedRow, Fact, added_facts
from operators.immutable_model import ImmutableModel
from operators.report import ReportSection, RowLocation, RowStatistics

ROW_ID = "row_id"
VALID = "valid"
FEATURES = "x"
FEATURE_FAULT = "x_fault"
LABEL = "y"
GRADIENT = "gradient"
FACTORS = "gradient_factors"
PREDICTION = "prediction"
LOSS = "loss"
GROUP = "group"
IS_OUTLIER = "is_outlier"
OUTLIER_SOURCE = "outlier_source"
GROUP_OUTLIER = "group_outlier"
MARKED_BY = "marked_by"
MARK = "_outlier"
"""Suffix of the column of an operator that marks outliers, ``<name>_outlier``: a bool, or the reason as text
(empty if the row is not marked)."""
FACTOR = "_weight"
"""Suffix of the column of an operator that weights rows, ``<name>_weight``: a factor of the published
weight.
"""
WEIGHT = "weight"
PART = "part"
"""Column of ``parts``: which rows operators learn from, and which are held out from every ``fit``."""
SPLIT = "split"
DUPLICATE_OF = "duplicate_of"
"""Column of ``duplicates``: row id of the oldest row that a row nearly duplicates, or null."""

VECTOR = pa.list_(pa.field("item", pa.float32(), nullable=False))
CATEGORY = pa.dictionary(pa.int8(), pa.string())
REASON = pa.struct([("column", pa.string()), ("value", pa.string()), ("error", pa.string())])
"""Type of ``x_fault``: the reason why a row has no features, or null. Every operator that adds ``x`` adds
this column too, and ``ingest`` quarantines the rows that have a reason."""

MOST_CPUS = 100_000
"""CPU cores or GPUs that one actor may ask for; no computer has more."""
COPY_BYTES = 2**20
"""Bytes of a file that are copied at a time."""
T = TypeVar("T")
R = TypeVar("R")
P = TypeVar("P", bound="OperatorParams")
Apply = Callable[[pa.Table], pa.Table]


class OperatorError(Exception):
    """The data or the parameters cannot be used. The message names the place, the value and the remedy."""


class CannotPredictError(OperatorError):
    """A kept state cannot serve the new rows; the operator has to be fitted again. The message says why."""


class ResourceError(OperatorError):
    """The cluster lacks resources that the operator needs. The message has the amounts and the key."""


class RowError(OperatorError):
    """One row cannot be used. ``shard`` and ``row`` (0-based within the shard) identify it."""

    def __init__(self, message: str, *, shard: int, row: int, column: str = "", value: str = "") -> None:
        super().__init__(message)
        self.shard, self.row, self.column, self.value = shard, row, column, value

    def __reduce__(self) -> tuple[Any, ...]:
        place = {"shard": self.shard, "row": self.row, "column": self.column, "value": self.value}
        return _rebuild_row_error, (str(self), place)


def _rebuild_row_error(message: str, place: dict[str, Any]) -> RowError:
    return RowError(message, **place)


class OperatorParams(DescribedModel, ImmutableModel):
    """Base class of an operator's parameters. Unknown keys are errors; a field's docstring describes it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    execution_only: ClassVar[frozenset[str]] = frozenset({"resources"})
    """Parameters that control where and how fast an operator runs and never change a value. They are left out
of the fingerprint."""

    @classmethod
    def recorded(cls, params: Mapping[str, Any]) -> Self:
        """Validate parameters as a manifest records them, where those at their defaults are named too.

        Parameters at their defaults count as not given, since some parameters exclude each other whatever
        their value.

        Parameters
        ----------
        params : the parameters by name, as JSON values.

        Raises
        ------
        pydantic.ValidationError
            A parameter is unknown or has a wrong value.
        """
        fields = cls.model_fields
        optional = {name: field for name, field in fields.items() if not field.is_required()}
        usual = {
            name: to_jsonable_python(field.get_default(call_default_factory=True))
            for name, field in optional.items()
        }
        given = {name: value for name, value in params.items() if name not in usual or value != usual[name]}
        return cls.model_validate(given)


class Resources(OperatorParams):
    """The resources that one actor of an operator asks of the cluster."""

    actors: int | None = Field(default=None, ge=1)
    """Actors in the pool. Default: as many as fit on the cluster, at most one per shard."""
    cpus: float = Field(default=1.0, ge=0, le=MOST_CPUS)
    """CPU cores as Ray counts them. Torch and FAISS use as many threads."""
    gpus: float = Field(default=0.0, ge=0, le=MOST_CPUS)
    """GPUs, or a fraction of one. Default: one if the operator prefers a GPU and the cluster has one."""

    def on(self, available_gpus: float, *, prefers_gpu: bool) -> Resources:
        """Return these resources, with one GPU if it is preferred and available and the recipe sets none."""
        if prefers_gpu and available_gpus and "gpus" not in self.model_fields_set:
            return self.model_copy(update={"gpus": 1.0})
        return self


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


@dataclass(frozen=True)
class Cost:
    """Measured cost of an operator on rows of 64 features, in shards of 50,000 rows.

    Attributes
    ----------
    small, large : CPU seconds per million rows in a table of 10,000 rows, and in one of 100,000 or more.
    mib : peak memory of the process at 100,000 rows, above what it held before, in MiB; 0 is not measured.
    by_features : whether time and memory grow with the number of features; a network reads its column alone.

    Notes
    -----
    The figures are those of tests/benchmarks/README.md: the table "scale-standard" for the operators of a
    recipe that names none, which a test compares, and the table "scale" for the others.
    """

    SMALL: ClassVar[int] = 10_000
    LARGE: ClassVar[int] = 100_000

    small: float
    large: float
    mib: int = 0
    by_features: bool = True

    def per_million(self, n_rows: int) -> float:
        """Return the CPU seconds per million rows in a table of ``n_rows`` rows: linear between the two."""
        share = min(1.0, max(0.0, (n_rows - self.SMALL) / (self.LARGE - self.SMALL)))
        return self.small + share * (self.large - self.small)


def _check_warnings_signature(operator: type) -> None:
    """Raise TypeError for a class whose own method ``warnings`` does not take the metrics and the state."""
    method = operator.__dict__.get("warnings")
    if not inspect.isfunction(method):
        return
    signature = inspect.signature(method)
    try:
        signature.bind(None, {}, Path)
    except TypeError:
        raise TypeError(
            f"{operator.__module__}.{operator.__qualname__}.warnings{signature} has an old signature. "
            "Define it as `warnings(self, metrics: Mapping[str, float], state: Callable[[], Path]) "
            "-> tuple[str, ...]`; `state()` returns the folder that `fit` wrote."
        ) from None


class Operator(ABC, Generic[P]):
    """Base class of all operators; the module's docstring describes the contract."""

    name: ClassVar[str]
    version: ClassVar[int]
    """Part of the fingerprint. Raise it whenever the same parameters would give other values."""
    Params: ClassVar[type[OperatorParams]]
    uses: tuple[str, ...] = ()
    """Names of the operators whose state this one reads. An instance may name others than its class."""
    prefers_gpu: ClassVar[bool] = False
    """Whether an actor gets a GPU if the cluster has one and the recipe does not decide."""
    keeps_open: ClassVar[bool] = False
    """Whether actors process the shards even without a GPU, as ``open`` loads a large model. They end with
    the operator, while the processes of tasks are used again by the next one."""
    cost: ClassVar[Cost] = Cost(20.0, 20.0)
    """Cost of ``fit`` and of all shards. ``rowsieve init`` estimates time and memory by it, and
    ``run.executor: auto`` decides by it whether starting Ray is worth its time."""
    state_needs_row_ids: bool = False
    """Whether the state refers to rows by their ids, so that it is fitted again if rows of the base are
    gone.
    """
    fits_on_all_rows: bool = False
    """Whether ``fit`` reads held-out rows too, because it draws or counts them and learns nothing."""
    partial_fit_changes_rows: bool = False
    """Whether ``partial_fit`` can change the values of old rows, as it does for shares of counts. An instance
    may differ from its class."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _check_warnings_signature(cls)

    def __init__(self, params: P) -> None:
        self.params = params

    def freeze(self) -> None:
        """Make the operator immutable, as it is part of a plan from now on, also on the workers."""
        freeze_fields(self.__dict__)
        self.__dict__["_is_frozen"] = True

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get("_is_frozen"):
            raise OperatorError(
                f"operators.{self.name}: the attribute {name!r} of {type(self).__name__} was set after "
                "planning, and workers would not see it. Write it into context.state in `fit`, or keep it in "
                "the function that `open` returns."
            )
        super().__setattr__(name, value)

    @classmethod
    def variant(cls, params: Mapping[str, Any]) -> type[Operator[Any]]:
        """Return the class that implements these parameters: this class, unless a key selects another one.

        Raises
        ------
        OperatorError
            The key selects no known class.
        """
        return cls

    def in_chain(self, chain: Sequence[Operator[Any]]) -> Operator[P]:
        """Return the operator to use in this chain, which may have inputs that depend on the others.

        Parameters
        ----------
        chain : all operators of the recipe.

        Raises
        ------
        OperatorError
            The operator cannot work together with the others.
        """
        return self

    @classmethod
    def variants(cls) -> Mapping[str, type[Operator[Any]]]:
        """Return the classes that :meth:`variant` may select, by the value of its key; empty if none."""
        return {}

    @property
    @abstractmethod
    def requires(self) -> tuple[str, ...]:
        """Sidecar columns that the operator reads. An earlier operator must add each of them."""

    @property
    def source_columns(self) -> tuple[str, ...]:
        """Raw source columns that the operator reads.

        If there are any, the function of ``open`` receives all rows, not only valid ones, and ``requires``
        may name only columns that operators before ``ingest`` add.
        """
        return ()

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Raw source columns of texts that ``fit`` alone reads, by ``ShardReader.read_source``.

        Planning refuses columns of other types, the label and truth columns.
        """
        return ()

    @property
    def files(self) -> tuple[str, ...]:
        """Absolute paths of files read beside the source; the fingerprint covers their content.

        Raises
        ------
        OperatorError
            A file cannot be used.
        """
        return ()

    @property
    def oracle_columns(self) -> tuple[str, ...]:
        """Truth columns that the recipe explicitly lets this operator read. Its results are not inferred."""
        return ()

    @property
    @abstractmethod
    def adds(self) -> tuple[pa.Field, ...]:
        """The columns that the operator adds, as Arrow fields."""

    @property
    def publishes(self) -> tuple[pa.Field, ...]:
        """Columns of ``adds`` that published rows have beside the contract's; null for rejected rows."""
        return ()

    @property
    def resources(self) -> Resources:
        """Resources of one task or actor: the parameter ``resources``, if the operator has it."""
        found = getattr(self.params, "resources", None)
        return found if isinstance(found, Resources) else Resources()

    @property
    def needs_ray(self) -> bool:
        """Return whether ``fit`` cannot work on the local executor."""
        return False

    @property
    def learns_from_rows(self) -> bool:
        """Return whether the state depends on rows, so that rows that are held out must not be among them."""
        return type(self).fit is not Operator.fit and not self.fits_on_all_rows

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Learn from the whole dataset and write the state into ``context.state``.

        Parameters
        ----------
        context : readers, state folders and the seed.
        executor : runs functions over shards, on the cluster or in this process.

        Returns
        -------
        Metrics to record, by name.
        """
        return {}

    @property
    def can_predict(self) -> bool:
        """Return whether the state can serve rows that ``fit`` has not seen.

        By default this holds for operators without a ``fit``. Incremental runs fit all others again.
        """
        return type(self).fit is Operator.fit

    def partial_fit(self, context: Context, delta: DatasetDelta, executor: Executor) -> dict[str, float]:
        """Update the state for new rows instead of fitting again, and write it into ``context.state``.

        The default copies the state and returns its metrics.

        Parameters
        ----------
        context : readers, state folders and the seed.
        delta : the previous state, its metrics, and the shards that are new.
        executor : runs functions over shards.

        Returns
        -------
        Metrics to record, by name.

        Raises
        ------
        CannotPredictError
            The new rows require another ``fit``.
        """
        copy_state(delta.state, context.state)
        return dict(delta.metrics)

    def open_for_new_rows(self, context: Context) -> Apply:
        """Return the function for shards that ``fit`` has not seen. It is called after ``partial_fit``.

        The default is the function of ``open``.
        """
        return self.open(context)

    def mark_held_out(self, columns: pa.Table, validation: NDArray[np.bool_]) -> pa.Table:
        """Return the columns of rows that are held out from every fit.

        The default are the columns that the function for new rows computed.

        Parameters
        ----------
        columns : the columns of ``adds`` for held-out rows (m rows).
        validation : (m,) whether a row is published as a validation row; else it is a test row.
        """
        return columns

    def faults(self, context: Context, table: pa.Table) -> list[Fault]:
        """Return the reasons for the rows of ``table`` that the function of ``open`` marked as not valid.

        The engine calls this only for operators that add the column ``valid``.
        """
        return []

    def warnings(self, metrics: Mapping[str, float], state: Callable[[], Path]) -> tuple[str, ...]:
        """Return sentences on what users of the published rows should know, with the remedy; by default none.

        They stand in the version's manifest and card, in the run's summary and in ``rowsieve status``.

        Parameters
        ----------
        metrics : what :meth:`fit` or :meth:`partial_fit` returned.
        state : returns the state folder, which is downloaded first where the run store is on an object store.
        """
        return ()

    def report_section(self, context: ReportContext) -> ReportSection | None:
        """Describe this operator's work for the report of a published version; None for no section.

        The report is drawn after the version is published. If this method raises, the report shows the error
        in place of the section.
        """
        return None

    def explain(self, context: Context, row: ExplainedRow) -> list[Fact]:
        """Return what this operator computed for one row of a published version, for ``rowsieve explain``.

        The default lists the columns that the operator adds. If this method raises, the error is shown in
        place of the facts.

        Parameters
        ----------
        context : state folders as :meth:`open` gets them; ``shards`` reads published columns.
        row : the row, with what all operators of the run have added to it.
        """
        return added_facts(self.adds, row)

    @abstractmethod
    def open(self, context: Context) -> Apply:
        """Load the state and return the function that maps a shard's table to its new columns, row by row."""


def copy_state(source: Path, target: Path, leave_out: Sequence[str] = (), *, link: bool = False) -> None:
    """Copy a state folder, except names that match a pattern in ``leave_out`` (such as ``labels-*``).

    A state may lie in a shared output, and its copy in one again: no link is followed, as it could lead to a
    file that only this user may read. Raises OperatorError, which names it, for a link or a pipe.

    Parameters
    ----------
    source, target : the folders.
    leave_out : patterns of names.
    link : let both folders share the files (hard links) where the disk can, so that the cost does not grow
        with their size. Only for an operator that never writes into a file of its state again.
    """
    if source.is_symlink():
        raise OperatorError(f"{source} is a link. Remove it, and run the recipe again.")
    ignored = shutil.ignore_patterns(*leave_out)
    for folder, folders, files, handle in os.fwalk(source):
        left_out, here = ignored(folder, [*folders, *files]), Path(folder)
        copy = target / here.relative_to(source)
        copy.mkdir(parents=True, exist_ok=True)
        for name in [*folders, *files]:
            if name not in left_out:
                _copy_entry(handle, here / name, copy / name, link)
        folders[:] = [name for name in folders if name not in left_out]


def _copy_entry(parent: int, source: Path, target: Path, link: bool) -> None:
    """Copy or link the entry ``source`` of the open folder ``parent`` unless it is a folder itself."""
    mode = os.stat(source.name, dir_fd=parent, follow_symlinks=False).st_mode
    if stat.S_ISDIR(mode):
        return
    if stat.S_ISREG(mode):
        if link and _linked(parent, source.name, target):
            return
        target.unlink(missing_ok=True)  # a hard link of an earlier copy would write into its source
        handle = os.open(source.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
        with open(handle, "rb") as opened, target.open("wb") as copy:
            shutil.copyfileobj(opened, copy, COPY_BYTES)
        return
    raise OperatorError(f"{source} is a link or no regular file. Remove it, and run the recipe again.")


def _linked(parent: int, name: str, target: Path) -> bool:
    """Make ``target`` a hard link to a file of the open folder ``parent``; return whether that was possible.

    A link is not possible across disks, on some file systems, and to a file of another user. A link to a file
    that somebody has meanwhile replaced by something else than a regular file is removed again.
    """
    try:
        os.link(name, target, src_dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    if stat.S_ISREG(target.lstat().st_mode):
        return True
    target.unlink()
    return False
