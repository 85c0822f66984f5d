"""The contract between a method (an operator) and the engine that runs it.

An operator adds columns to each row. A row-wise operator implements only :meth:`Operator.open`. An operator
that has to see the whole dataset also implements :meth:`Operator.fit`, which writes a small state into a
folder that every later call of ``open`` may read. No data whose size grows with the number of rows passes
through the process that calls ``fit``: this process hands work to an :class:`Executor` and receives small
values.

The parts of the contract have modules of their own, and are imported from here: the names of columns, the
errors, the base class of parameters, what the engine hands to an operator, and copies of states.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from connectors.foundation.immutable import freeze_fields
from operators.column_names import (
    CATEGORY,
    DUPLICATE_OF,
    FACTOR,
    FACTORS,
    FEATURE_FAULT,
    FEATURES,
    GRADIENT,
    GROUP,
    GROUP_OUTLIER,
    IS_OUTLIER,
    LABEL,
    LOSS,
    MARK,
    MARKED_BY,
    OUTLIER_SOURCE,
    PART,
    PREDICTION,
    REASON,
    ROW_ID,
    SPLIT,
    VALID,
    VECTOR,
    WEIGHT,
)
from operators.cost import Cost
from operators.errors import CannotPredictError, OperatorError, ResourceError, RowError
from operators.explanations import ExplainedRow, Fact, added_facts
from operators.operator_params import OperatorParams, Resources
from operators.report import ReportSection
from operators.run_context import (
    Context,
    DatasetDelta,
    Executor,
    Fault,
    Labelings,
    ReportContext,
    ShardInfo,
    ShardReader,
)
from operators.state_copy import copy_state

__all__ = [
    "CATEGORY",
    "DUPLICATE_OF",
    "FACTOR",
    "FACTORS",
    "FEATURES",
    "FEATURE_FAULT",
    "GRADIENT",
    "GROUP",
    "GROUP_OUTLIER",
    "IS_OUTLIER",
    "LABEL",
    "LOSS",
    "MARK",
    "MARKED_BY",
    "OUTLIER_SOURCE",
    "PART",
    "PREDICTION",
    "REASON",
    "ROW_ID",
    "SPLIT",
    "VALID",
    "VECTOR",
    "WEIGHT",
    "Apply",
    "CannotPredictError",
    "Context",
    "Cost",
    "DatasetDelta",
    "Executor",
    "Fault",
    "Labelings",
    "Operator",
    "OperatorError",
    "OperatorParams",
    "ReportContext",
    "ResourceError",
    "Resources",
    "RowError",
    "ShardInfo",
    "ShardReader",
    "copy_state",
]
P = TypeVar("P", bound="OperatorParams")
Apply = Callable[[pa.Table], pa.Table]


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
