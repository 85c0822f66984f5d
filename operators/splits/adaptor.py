"""The operator ``split``: the base class of its methods, and the class of each method by name."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connectors.foundation.messages import nearest
from operators.arrays import Int64
from operators.base import (
    CATEGORY,
    DUPLICATE_OF,
    FEATURES,
    GROUP,
    IS_OUTLIER,
    LABEL,
    PART,
    SPLIT,
    Apply,
    Context,
    Cost,
    DatasetDelta,
    Executor,
    Operator,
    OperatorError,
    OperatorParams,
    ReportContext,
)
from operators.duplicates.params import DuplicatesParams, weighs_copies
from operators.explanations import ExplainedRow, Fact, added_facts
from operators.report import ReportSection
from operators.splits.hashed_split import DROPPED, FOLD, NO_FOLD, PARTS, TEST, VALIDATION, strata
from operators.splits.near_duplicates import (
    CROSSING,
    DUPLICATES,
    Rule,
    crossing_text,
    store_parts,
    without_crossing,
)
from operators.splits.params import SplitParams

_log = logging.getLogger("rowsieve")
METHODS = {
    "random": "at_random:Random",
    "cluster": "cluster:Cluster",
    "leave_one_domain_out": "by_domain:ByDomain",
}
BY_PROGRAM = "by_program:ByProgram"
"""The method ``cluster`` with ``folds`` or ``marginals``."""
P = TypeVar("P", bound=SplitParams)


class Split(Operator[P]):
    """Adds ``split``, the same for each row however the dataset is cut into shards.

    Copies of a row are an exception under ``method: random, fit_on: all``, see :class:`.at_random.Random`.
    A method implements ``fit_rule`` and ``open_rule``. Beside ``duplicates``, rows that nearly duplicate an
    older row of another split are counted and, unless ``duplicates.weight`` is 1, dropped: moving them
    would take rows from the rows of their key, domain or held-out part.
    """

    name = "split"
    version = 9
    cost = Cost(116, 31.9, 71)
    Params: ClassVar[type[OperatorParams]] = SplitParams

    rule_reads_features: ClassVar[bool] = False
    """Whether the function that ``open_rule`` returns reads features. If not, passes over the rows leave
    them out."""

    def __init__(self, params: P) -> None:
        super().__init__(params)
        self.uses = ("neighbours",) if params.kernel == "rbf" and params.landmarks_by == "density" else ()
        self.knows_duplicates = self.drops_duplicates = self.has_parts = False
        self.duplicates: DuplicatesParams | None = None

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

    def in_chain(self, chain: Sequence[Operator[Any]]) -> Self:
        """Return a copy of the operator for this chain, which knows of duplicates and of held-out rows."""
        found = type(self)(self.params)
        duplicates = [one for one in chain if any(field.name == DUPLICATE_OF for field in one.adds)]
        found.has_parts = any(field.name == PART for one in chain for field in one.adds)
        found.knows_duplicates = found.state_needs_row_ids = bool(duplicates)
        found.drops_duplicates = any(map(weighs_copies, duplicates))
        for one in duplicates:
            if one.name == DUPLICATES and isinstance(one.params, DuplicatesParams):
                found.duplicates, found.uses = one.params, (*found.uses, DUPLICATES)
        return found

    @property
    def requires(self) -> tuple[str, ...]:
        """Labels, groups and outlier marks, which decide the strata, and features, which the shift needs.

        Beside ``duplicates`` also older rows, and the parts where rows are held out.
        """
        duplicates = (DUPLICATE_OF,) if self.knows_duplicates else ()
        parts = (PART,) if self.reads_held_out else ()
        return (LABEL, GROUP, IS_OUTLIER, FEATURES, *duplicates, *parts)

    @property
    def reads_held_out(self) -> bool:
        """Return whether the column ``part`` names rows that are held out from the method's rule."""
        return self.knows_duplicates and self.has_parts and self.learns_from_rows

    @property
    def can_predict(self) -> bool:
        """Return True: new rows are split by the stored state, which keeps shares on average, not exactly."""
        return True

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """Return the added column ``split``."""
        return (pa.field(SPLIT, CATEGORY),)

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Fit the method's rule; beside ``duplicates``, store and count parts. Returns rows by part."""
        metrics = self.fit_rule(context, executor)
        if not self.knows_duplicates:
            return metrics
        rule, shards = self._rule(self.open_rule(context)), range(len(context.shards.shards))
        crossing = store_parts(context, rule, shards, executor, self.params.resources)
        self._log_crossing(crossing[CROSSING])
        if self.drops_duplicates:
            for part in PARTS[:DROPPED]:
                metrics[part] = metrics.get(part, 0.0) - crossing[part]
            metrics[PARTS[DROPPED]] = metrics.get(PARTS[DROPPED], 0.0) + crossing[CROSSING]
        return metrics | {CROSSING: crossing[CROSSING]}

    def partial_fit(self, context: Context, delta: DatasetDelta, executor: Executor) -> dict[str, float]:
        """Keep the method's rule; beside ``duplicates``, store and count the parts of new rows."""
        metrics = super().partial_fit(context, delta, executor)
        if not self.knows_duplicates:
            return metrics
        rule = self._rule(self.open_rule_for_new_rows(context))
        crossing = store_parts(context, rule, delta.new_shards, executor, self.params.resources)
        self._log_crossing(crossing[CROSSING])
        return metrics | {CROSSING: metrics.get(CROSSING, 0.0) + crossing[CROSSING]}

    def open(self, context: Context) -> Apply:
        """Return the function of the method's rule, which drops duplicates of older rows in other splits."""
        return self._dropping(context, self.open_rule(context))

    def open_for_new_rows(self, context: Context) -> Apply:
        """Return the function for rows that ``fit_rule`` has not seen."""
        return self._dropping(context, self.open_rule_for_new_rows(context))

    def _dropping(self, context: Context, rule: Apply) -> Apply:
        if not self.drops_duplicates:
            return rule
        return partial(without_crossing, self._rule(rule), context.state, context.states.get(DUPLICATES))

    def _rule(self, apply: Apply) -> Rule:
        columns = (name for name in self.requires if self.rule_reads_features or name != FEATURES)
        return Rule(apply, tuple(columns), self.reads_held_out, self.duplicates)

    def _log_crossing(self, crossing: float) -> None:
        if crossing:
            _log.warning("operators.split: %s", crossing_text(int(crossing), drops=self.drops_duplicates))

    @abstractmethod
    def fit_rule(self, context: Context, executor: Executor) -> dict[str, float]:
        """Decide how rows are split, and leave it in the state. Returns rows by part, and other metrics."""

    @abstractmethod
    def open_rule(self, context: Context) -> Apply:
        """Return the function that splits the rows of a table."""

    def open_rule_for_new_rows(self, context: Context) -> Apply:
        """Return the function for rows that ``fit_rule`` has not seen; the default is that of all rows."""
        return self.open_rule(context)

    def explain(self, context: Context, row: ExplainedRow) -> list[Fact]:
        """Return what the operator adds, and the older row in another split for which the row is dropped."""
        facts = added_facts(self.adds, row)
        dropped = row.value(SPLIT) == PARTS[DROPPED]
        by_mark = getattr(self.params, "drop_outliers", False) and row.value(IS_OUTLIER)
        if self.drops_duplicates and dropped and not by_mark and row.has(DUPLICATE_OF):
            note = "row_id of the oldest row near it; this one, or a younger one near it, is in another split"
            facts.append(Fact("dropped as a copy of", row.value(DUPLICATE_OF), note))
        return facts

    def mark_held_out(self, columns: pa.Table, validation: npt.NDArray[np.bool_]) -> pa.Table:
        """Make held-out rows test rows, or validation rows where ``validation`` (n,) is true; -1 as fold.

        A row that is dropped because it is near an older one in another split stays dropped.
        """
        parts = np.where(validation, VALIDATION, TEST).astype(np.int8)
        if self.drops_duplicates:
            dropped = pc.equal(columns[SPLIT].cast(pa.string()), PARTS[DROPPED])
            parts[dropped.to_numpy(zero_copy_only=False)] = DROPPED
        found = {SPLIT: split_column(parts)[SPLIT]}
        others = {name: columns[name] for name in columns.column_names if name != SPLIT}
        if FOLD in others:
            others[FOLD] = pa.array(np.full(len(parts), NO_FOLD, np.int32))
        return pa.table({**found, **others})

    def warnings(self, metrics: Mapping[str, float], state: Callable[[], Path]) -> tuple[str, ...]:
        """Say which parts lack rows, and how many rows nearly duplicate an older row in another split."""
        crossing = int(metrics.get(CROSSING, 0))
        dropped = crossing if self.drops_duplicates else 0  # some of them may have been of any part
        n_rows = int(sum(metrics.get(part, 0) for part in PARTS[:DROPPED])) + dropped
        found = list[str]()
        for part, (share, why) in self.asked_shares().items():
            n = int(metrics.get(part, 0))
            if share * n_rows >= 1 and n + dropped < share * n_rows / 2:
                found.append(
                    f"{n:,} of {n_rows:,} rows are {part} rows, less than half of the share {share:g}: {why}"
                )
        if crossing:
            found.append(crossing_text(crossing, drops=self.drops_duplicates))
        return tuple(found)

    def asked_shares(self) -> Mapping[str, tuple[float, str]]:
        """Return the least share of each part, and why it may be missed, with the remedy."""
        return {}

    def report_section(self, context: ReportContext) -> ReportSection | None:
        """Return a section with the MMD between validation and training rows, or None if it is unknown."""
        from operators.splits.report import split_section

        return split_section(context.metrics)


ROUNDED = "it is rounded in each stratum, and strata of few rows have none. "
"""Why a part lacks rows that is drawn within strata."""


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
