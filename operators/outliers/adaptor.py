"""``outliers`` over shards: reads every judge's column, decides, counts where they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from pydantic import Field

from operators.base import (
    CATEGORY,
    IS_OUTLIER,
    LABEL,
    MARK,
    MARKED_BY,
    OUTLIER_SOURCE,
    Apply,
    Context,
    DatasetDelta,
    Executor,
    Operator,
    OperatorError,
    OperatorParams,
    ShardReader,
)
from operators.outliers.kernel import ALL, ANY, Text, decide, joined


class OutliersParams(OperatorParams):
    """How the judges' marks become one verdict."""

    rule: str = Field(
        default=ALL,
        description="all: every judge in the recipe must mark the row; any: one is enough; or the name of "
        "the judge that decides alone (`group`, `eos`)",
    )


class Outliers(Operator[OutliersParams]):
    """Adds ``is_outlier``, ``outlier_source`` and ``marked_by``, from what the judges of the recipe say.

    A judge is any operator that adds a column ``<name>_outlier``. Runs in every recipe, by default with
    ``rule: all``; a recipe with ``groups`` alone has one judge.
    """

    name = "outliers"
    version = 1
    Params = OutliersParams

    def __init__(self, params: OutliersParams, judges: Sequence[str] = ("group",)) -> None:
        super().__init__(params)
        self.judges = tuple(judges)

    def in_chain(self, chain: Sequence[Operator[OperatorParams]]) -> Outliers:
        """With all judges that there are. Raises OperatorError for a rule that names none of them."""
        added = [field.name for operator in chain for field in operator.adds]
        marks = sorted(name for name in added if name.endswith(MARK) and name != IS_OUTLIER)
        judges = [name.removesuffix(MARK) for name in marks]
        if not judges:
            raise OperatorError(
                "operators.outliers: no operator of the recipe marks rows. Add `groups: {}` or `eos: {}`."
            )
        if self.params.rule not in (ALL, ANY, *judges):
            raise OperatorError(
                f"operators.outliers.rule: {self.params.rule!r} is no judge of this recipe. Use all, any, or "
                f"one of: {', '.join(judges)}."
            )
        return Outliers(self.params, judges)

    @property
    def requires(self) -> tuple[str, ...]:
        """The judges' columns."""
        return (LABEL, *(judge + MARK for judge in self.judges))

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """The verdict, by whom where it is yes, and everyone who marks the row whatever the verdict."""
        return (
            pa.field(IS_OUTLIER, pa.bool_()),
            pa.field(OUTLIER_SOURCE, CATEGORY),
            pa.field(MARKED_BY, CATEGORY),
        )

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Count the verdicts.

        Returns ``outliers``; of each judge ``marked_<judge>`` and ``only_<judge>``, rows that no other
        marks; and ``contested``, rows on which the judges differ.
        """
        work = partial(_count, context.shards, self.requires, self.params.rule)
        found: Counter[str] = Counter()
        for counts in executor.map(work, range(len(context.shards.shards))):
            found.update(counts)
        sides = [f"{side}_{judge}" for judge in self.judges for side in ("marked", "only")]
        return {name: float(found[name]) for name in ("outliers", "contested", *sides)}

    @property
    def can_predict(self) -> bool:
        """A verdict is of one row."""
        return True

    def partial_fit(self, context: Context, delta: DatasetDelta, executor: Executor) -> dict[str, float]:
        """Count again: metrics are of all rows."""
        return self.fit(context, executor)

    def open(self, context: Context) -> Apply:
        """Needs no state."""
        rule = self.params.rule

        def apply(table: pa.Table) -> pa.Table:
            reasons = _reasons(table)
            verdict = decide(_marks(reasons), rule)
            marked = joined(reasons)
            return pa.table(
                {
                    IS_OUTLIER: verdict,
                    OUTLIER_SOURCE: _category(np.where(verdict, marked, "")),
                    MARKED_BY: _category(marked),
                }
            )

        return apply


def _reasons(table: pa.Table) -> dict[str, Text]:
    """Judge -> its reason for each row; a judge that only says yes or no gives its name."""
    found = {}
    for name in table.column_names:
        if not name.endswith(MARK):
            continue
        judge, column = name.removesuffix(MARK), table.column(name)
        if pa.types.is_boolean(column.type):
            found[judge] = np.where(column.to_numpy().astype(bool), judge, "").astype(np.object_)
        else:
            found[judge] = np.asarray(column.cast(pa.string()).to_numpy(), np.object_)
    return found


def _marks(reasons: Mapping[str, Text]) -> dict[str, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    return {judge: np.asarray(texts != "", np.bool_) for judge, texts in reasons.items()}


def _category(texts: Text) -> pa.Array:
    """Numbered in the order of the text, so that a row's neighbours do not change its bytes' meaning."""
    values, codes = np.unique(texts.astype(str), return_inverse=True)
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int8)), pa.array(values.tolist(), pa.string())
    )


def _count(reader: ShardReader, columns: Sequence[str], rule: str, shard: int) -> dict[str, int]:
    """Of one shard; see :meth:`Outliers.fit`."""
    marks = _marks(_reasons(reader.read(shard, columns)))
    votes = np.sum(list(marks.values()), axis=0)
    found = {
        "outliers": decide(marks, rule).sum(),
        "contested": np.count_nonzero((votes > 0) & (votes < len(marks))),
    }
    for judge, mark in marks.items():
        found |= {f"marked_{judge}": mark.sum(), f"only_{judge}": np.count_nonzero(mark & (votes == 1))}
    return {name: int(value) for name, value in found.items()}
