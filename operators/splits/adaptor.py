"""The operator ``split``: the base class of its methods, and the class of each method by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.foundation.messages import nearest
from operators.arrays import Int64
from operators.base import (
    CATEGORY,
    FEATURES,
    GROUP,
    IS_OUTLIER,
    LABEL,
    SPLIT,
    Cost,
    Operator,
    OperatorError,
    OperatorParams,
    ReportContext,
)
from operators.report import ReportSection
from operators.splits.hashed_split import PARTS, TEST, VALIDATION, strata
from operators.splits.params import SplitParams

METHODS = {
    "random": "at_random:Random",
    "cluster": "cluster:Cluster",
    "leave_one_domain_out": "by_domain:ByDomain",
}
FOLD = "fold"
NO_FOLD = -1
BY_PROGRAM = "by_program:ByProgram"
"""The method ``cluster`` with ``folds`` or ``marginals``."""
P = TypeVar("P", bound=SplitParams)


class Split(Operator[P]):
    """Adds ``split``, the same for each row however the dataset is cut into shards."""

    name = "split"
    version = 2
    cost = Cost(116, 31.9, 71)
    Params: ClassVar[type[OperatorParams]] = SplitParams

    rule_reads_features: ClassVar[bool] = False
    """Whether the function that ``open`` returns reads features. If not, measuring the MMD skips a pass."""

    def __init__(self, params: P) -> None:
        super().__init__(params)
        self.uses = ("neighbours",) if params.kernel == "rbf" and params.landmarks_by == "density" else ()

    @classmethod
    def variant(cls, params: Mapping[str, Any]) -> type[Operator[Any]]:
        """Return the class of ``method``, by default ``random``. Raises OperatorError for an unknown one."""
        name = str(params.get("method", "random"))
        if name not in METHODS:
            hint = nearest(name, METHODS) or f" Known: {', '.join(METHODS)}."
            raise OperatorError(f"operators.split.method: there is no method {name!r}.{hint}")
        by_program = name == "cluster" and (params.get("folds") or params.get("marginals"))
        module, _, attribute = (BY_PROGRAM if by_program else METHODS[name]).partition(":")
        found: type[Operator[Any]] = getattr(import_module(f"operators.splits.{module}"), attribute)
        return found

    @classmethod
    def variants(cls) -> Mapping[str, type[Operator[Any]]]:
        """Return the classes of all methods by their names."""
        return {name: cls.variant({"method": name}) for name in METHODS}

    @property
    def requires(self) -> tuple[str, ...]:
        """Labels, groups and outlier marks, which decide the strata, and features, which the shift needs."""
        return (LABEL, GROUP, IS_OUTLIER, FEATURES)

    @property
    def can_predict(self) -> bool:
        """Return True: new rows are split by the stored state, which keeps shares on average, not exactly."""
        return True

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """Return the added column ``split``."""
        return (pa.field(SPLIT, CATEGORY),)

    def mark_held_out(self, columns: pa.Table, validation: npt.NDArray[np.bool_]) -> pa.Table:
        """Make held-out rows test rows, or validation rows where ``validation`` (n,) is true; -1 as fold."""
        parts = np.where(validation, VALIDATION, TEST).astype(np.int8)
        found = {SPLIT: split_column(parts)[SPLIT]}
        others = {name: columns[name] for name in columns.column_names if name != SPLIT}
        if FOLD in others:
            others[FOLD] = pa.array(np.full(len(parts), NO_FOLD, np.int32))
        return pa.table({**found, **others})

    def report_section(self, context: ReportContext) -> ReportSection | None:
        """Return a section with the MMD between validation and training rows, or None if it is unknown."""
        from operators.splits.report import split_section

        return split_section(context.metrics)


def stratum_keys(table: pa.Table, *, by_label: bool, by_group: bool, drop_outliers: bool) -> Int64:
    """Return the stratum (n,) of each row; -1 for rows to drop."""
    keys: Int64 = np.zeros(table.num_rows, np.int64)
    if by_label:
        groups = table[GROUP].to_numpy()
        keys = strata(table[LABEL].to_numpy(), groups if by_group else np.zeros_like(groups))
    if drop_outliers:
        keys[table[IS_OUTLIER].to_numpy()] = -1
    return keys


def split_column(parts: npt.NDArray[np.int8]) -> pa.Table:
    """Return the column ``split`` for indices (n,) into ``PARTS``."""
    return pa.table({SPLIT: pa.DictionaryArray.from_arrays(pa.array(parts), pa.array(PARTS))})
