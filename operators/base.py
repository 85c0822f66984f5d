"""What every operator is: the contract between a method and the engine that runs it.

An operator adds columns to each row. A row-wise operator only implements :meth:`Operator.open`;
one that must see the whole dataset also implements :meth:`Operator.fit`, which leaves a small
state in a folder that every later ``open`` may read. Nothing row-sized passes through the
process that calls ``fit``: it hands work to an :class:`Executor` and gets small values back.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar

import pyarrow as pa
from pydantic import BaseModel, ConfigDict
from pydantic_core import to_jsonable_python

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
"""An operator that marks outliers adds ``<name>_outlier``: bool, or its reason as text, empty for none."""
FACTOR = "_weight"
"""An operator that weighs rows adds ``<name>_weight``, which ``weights`` multiplies."""
WEIGHT = "weight"
SPLIT = "split"

VECTOR = pa.list_(pa.field("item", pa.float32(), nullable=False))
CATEGORY = pa.dictionary(pa.int8(), pa.string())
REASON = pa.struct([("column", pa.string()), ("value", pa.string()), ("error", pa.string())])
"""Type of ``x_fault``: why a row has no features; null where it has. An operator that adds ``x`` adds it too,
and ``ingest`` turns it into a rejected row."""

T = TypeVar("T")
R = TypeVar("R")
P = TypeVar("P", bound="OperatorParams")
Apply = Callable[[pa.Table], pa.Table]


class OperatorError(Exception):
    """The data or parameters cannot be used: the text names the place, the value and the fix."""


class CannotPredictError(OperatorError):
    """The new rows are none that a kept state can serve: the text says why. The operator has to fit again."""


class ResourceError(OperatorError):
    """The cluster cannot give what the operator asks for: the text has the numbers and the key to change."""


class RowError(OperatorError):
    """One row cannot be used. ``shard`` and ``row`` (0-based within the shard) say which."""

    def __init__(self, message: str, *, shard: int, row: int, column: str = "", value: str = "") -> None:
        super().__init__(message)
        self.shard, self.row, self.column, self.value = shard, row, column, value

    def __reduce__(self) -> tuple[Any, ...]:
        place = {"shard": self.shard, "row": self.row, "column": self.column, "value": self.value}
        return _rebuild_row_error, (str(self), place)


def _rebuild_row_error(message: str, place: dict[str, Any]) -> RowError:
    return RowError(message, **place)


class OperatorParams(BaseModel):
    """Base of every operator's parameters: unknown keys are errors, the text below a field describes it."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    execution_only: ClassVar[frozenset[str]] = frozenset({"resources"})
    """Parameters that say where and how fast, never what: they are no part of the fingerprint."""

    @classmethod
    def recorded(cls, params: Mapping[str, Any]) -> Self:
        """Parameters as a manifest records them, which names those at their defaults too.

        They count as not given: some may not be given beside others, whatever their value.
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
    """What one actor of an operator asks of the cluster."""

    actors: int | None = None
    """Actors in the pool; default: as many as the cluster fits, at most one per shard."""
    cpus: float = 1.0
    """CPU cores, as Ray counts them; also the threads of torch and FAISS."""
    gpus: float = 0.0
    """GPUs, or a share of one. Default: none; where the operator prefers a GPU, one if there is any."""

    def on(self, gpus_there: float, *, prefers_gpu: bool) -> Resources:
        """The same with a GPU, if that is preferred, there, and not decided by the recipe."""
        if prefers_gpu and gpus_there and "gpus" not in self.model_fields_set:
            return self.model_copy(update={"gpus": 1.0})
        return self


@dataclass(frozen=True)
class Fault:
    """Why a row of a shard was rejected. ``row`` counts from 0 within the shard."""

    row: int
    column: str
    value: str
    error: str


@dataclass(frozen=True)
class ShardInfo:
    """One frozen shard: rows ``first_row .. first_row + n_rows - 1`` of the plan, read from ``path``.

    ``file_row`` is the position of the shard's first row inside its file (0-based), for error texts.
    """

    index: int
    path: str
    first_row: int
    n_rows: int
    file_row: int


class ShardReader(Protocol):
    """What an operator may read. Picklable: it travels to actors and opens files there.

    ``read`` returns sidecar columns of earlier operators (and ``row_id``), valid rows only, in row
    order. ``read_source`` returns raw source columns, all rows; truth columns are refused.
    """

    @property
    def shards(self) -> Sequence[ShardInfo]: ...  # noqa: D102
    def read(self, shard: int, columns: Sequence[str]) -> pa.Table: ...  # noqa: D102
    def read_source(self, shard: int, columns: Sequence[str]) -> pa.Table: ...  # noqa: D102


class Executor(Protocol):
    """Runs functions somewhere: in this process or on a Ray cluster; same contract, same results."""

    kind: Literal["local", "ray"]

    def map(self, fn: Callable[[T], R], items: Sequence[T], *, resources: Resources = ...) -> Iterator[R]:
        """``fn(item)`` for every item; results in the items' order. ``fn`` and items must pickle."""
        ...


@dataclass(frozen=True)
class Context:
    """Everything an operator gets to know at run time. Picklable."""

    shards: ShardReader
    state: Path
    """This operator's own state folder; written by ``fit``, read by ``open``."""
    states: Mapping[str, Path] = field(default_factory=dict)
    """State folders of the operators named by ``uses``."""
    seed: int = 0


@dataclass(frozen=True)
class Growth:
    """What a dataset has become since an operator's state was fitted. Picklable."""

    state: Path
    """The state folder as it was."""
    metrics: Mapping[str, float]
    """What ``fit`` or the last ``extend`` returned."""
    fresh: tuple[int, ...]
    """Shards whose rows the state has not seen."""
    gone: bool
    """Whether rows that it saw are gone: the row ids of those that came after them have moved."""


class Operator(ABC, Generic[P]):
    """A method as the engine sees it; see the module's docstring."""

    name: ClassVar[str]
    version: ClassVar[int]
    """Raise it whenever the same parameters would give other values: it is part of the fingerprint."""
    Params: ClassVar[type[OperatorParams]]
    uses: tuple[str, ...] = ()
    """Names of operators whose state this one reads; an instance may name others than its class."""
    prefers_gpu: ClassVar[bool] = False
    """True where actors should get a GPU if there is one and the recipe does not say."""
    keeps_open: ClassVar[bool] = False
    """True where ``open`` is costly, such as loading a model: shards then go to long-lived actors."""
    extend_changes_rows: ClassVar[bool] = False
    """True where ``extend`` gives rows other values that were there before, as shares of counts do."""

    def __init__(self, params: P) -> None:
        self.params = params

    @classmethod
    def variant(cls, params: Mapping[str, Any]) -> type[Operator[Any]]:
        """The class that carries these parameters out: this one, unless a key chooses between several.

        Raises OperatorError where the key names none.
        """
        return cls

    def in_chain(self, chain: Sequence[Operator[Any]]) -> Operator[P]:
        """This operator among all of a recipe: one whose inputs depend on what there is returns another.

        Raises OperatorError where it cannot work among these.
        """
        return self

    @classmethod
    def variants(cls) -> Mapping[str, type[Operator[Any]]]:
        """Every class that :meth:`variant` may choose, by the value of its key; empty where there is one."""
        return {}

    @property
    @abstractmethod
    def requires(self) -> tuple[str, ...]:
        """Sidecar columns read; each must be added by an earlier operator."""

    @property
    def source_columns(self) -> tuple[str, ...]:
        """Raw source columns read; then ``open``'s function gets all rows, not only valid ones, and of
        ``requires`` only what is there before ``ingest``."""
        return ()

    @property
    def files(self) -> tuple[str, ...]:
        """Files read beside the source, absolute: what is in them is part of the fingerprint.

        Raises OperatorError where they cannot be used.
        """
        return ()

    @property
    def oracle_columns(self) -> tuple[str, ...]:
        """Truth columns that the recipe, by name, lets this operator read: its results are no inference."""
        return ()

    @property
    @abstractmethod
    def adds(self) -> tuple[pa.Field, ...]:
        """Columns written, as Arrow fields."""

    @property
    def resources(self) -> Resources:
        """Resources of one actor."""
        return Resources()

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Look at the whole dataset; leave a state in ``context.state``; return metrics to record."""
        return {}

    @property
    def can_predict(self) -> bool:
        """Whether rows that ``fit`` has not seen can get their columns from the state that it left.

        Default: where there is no ``fit``. Incremental runs fit all other operators again.
        """
        return type(self).fit is Operator.fit

    def extend(self, context: Context, growth: Growth, executor: Executor) -> dict[str, float]:
        """Instead of ``fit``: leave the state for rows that are there and for new ones; return metrics.

        Default: a copy of the state, and its metrics. Raises CannotPredictError where the new rows ask for
        another ``fit``.
        """
        copy_state(growth.state, context.state)
        return dict(growth.metrics)

    def place(self, context: Context) -> Apply:
        """Like ``open``, for rows that ``fit`` has not seen, after ``extend``."""
        return self.open(context)

    def faults(self, context: Context, table: pa.Table) -> list[Fault]:
        """Reasons for the rows that ``open``'s function marked as not valid; for ``source_columns`` users."""
        return []

    @abstractmethod
    def open(self, context: Context) -> Apply:
        """Load the state once; return a function from a shard's table to its new columns, row for row."""


def copy_state(source: Path, target: Path, leave_out: Sequence[str] = ()) -> None:
    """Copy what a state folder holds, but for the names that match a pattern (``labels-*``)."""
    ignored = shutil.ignore_patterns(*leave_out)
    shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)
