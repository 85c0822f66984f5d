"""``weights`` over shards: count the groups, train without each fold, then weigh each row.

Weights of other operators (EOS, DCKM, decorrelation) multiply these.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from operators.base import (
    FACTOR,
    FEATURES,
    GROUP,
    LABEL,
    MARK,
    WEIGHT,
    Apply,
    CannotPredictError,
    Context,
    DatasetDelta,
    Executor,
    Operator,
    OperatorError,
    ReportContext,
    ShardReader,
    copy_state,
)
from operators.explanations import ExplainedRow, Fact, added_facts
from operators.report import ReportSection
from operators.weights.class_limits import (
    ClassLimits,
    Moments,
    add_moments,
    class_means,
    find_limits,
    sum_products,
    sum_ratios,
)
from operators.weights.kernel import (
    Trust,
    class_priors,
    group_keys,
    group_masses,
    largest_groups,
)
from operators.weights.params import WeightsParams
from operators.weights.totals import add_up, all_shards, warning
from operators.weights.weighing import COLUMNS, Factors, Scales, keys_of

if TYPE_CHECKING:
    from operators.weights.cross_fit import FoldJob

_log = logging.getLogger("rowsieve")


class Weights(Operator[WeightsParams]):
    """Adds ``weight``, mean 1 over all valid rows, or over those that are kept where outliers are dropped.

    An operator named W that adds the column ``W_weight`` multiplies it. By default (``method: robust``) the
    product is kept within limits, see :mod:`operators.weights.class_limits`, and ``cues`` is one of the
    factors.
    """

    name = "weights"
    version = 7
    cpu_seconds_per_million_rows = 40.0
    Params = WeightsParams
    partial_fit_changes_rows = True

    def __init__(self, params: WeightsParams) -> None:
        super().__init__(params)
        self._doubts = not params.trusts_all
        self.uses = ("ingest",) if self._doubts else ()
        self._factors = Factors()

    @property
    def usual_factors(self) -> tuple[str, ...]:
        """Names of the operators whose weights ``method: robust`` multiplies unless others are chosen."""
        return ("cues",) if self.params.method == "robust" and self.params.factors is None else ()

    def in_chain(self, chain: Sequence[Operator[Any]]) -> Weights:
        """Return the operator that multiplies by the weights of the chain and drops the rows that `split`
        drops.

        Raises OperatorError for a factor that no operator of the recipe makes.
        """
        added = {field.name: field.type for operator in chain for field in operator.adds}
        there = [name.removesuffix(FACTOR) for name in added if name.endswith(FACTOR)]
        factors = there if self.params.factors is None else list(self.params.factors)
        unknown = sorted(set(factors).difference(there))
        if unknown:
            known = f"there are: {', '.join(there)}" if there else "none of its operators makes weights"
            raise OperatorError(
                f"operators.weights.factors: the recipe has no weights named {unknown[0]!r}; {known}."
            )
        drops = self.params.drop_outliers
        if drops is None:
            drops = any(getattr(operator.params, "drop_outliers", None) for operator in chain)
        names = tuple(sorted(factors))
        found = Weights(self.params.model_copy(update={"factors": names, "drop_outliers": drops}))
        marks = [name + MARK if added.get(name + MARK) == pa.bool_() else "" for name in names]
        found._factors = Factors(tuple(name + FACTOR for name in names), tuple(marks), drops)
        return found

    @property
    def requires(self) -> tuple[str, ...]:
        """Class, group and outlier mark, and what a classifier learns from."""
        return (*COLUMNS, *self._factors.reads, *((FEATURES,) if self._doubts else ()))

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """The published column ``weight``."""
        return (pa.field(WEIGHT, pa.float32()),)

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Count the rows of each group and train without each fold; leaves ``weights.json`` and the models.

        Returns groups, largest_weight, effective_sample_size and effective_share (of the kept rows), and
        ``doubted``: rows that count for less than their share; for robust weights ``shrinkage``, of the class
        that is shrunk most. Warns where the share is below a tenth.

        Raises
        ------
        OperatorError
            Too few rows for the folds, or a training diverged.
        """
        balanced, by_class = self._counts(context, executor)
        return self._scaled(context, executor, balanced, self._train(context, executor, by_class))

    @property
    def can_predict(self) -> bool:
        """By the trained models; groups are counted again."""
        return True

    def partial_fit(self, context: Context, delta: DatasetDelta, executor: Executor) -> dict[str, float]:
        """Count the groups of all rows and scale to mean 1 again; the models stay as they are.

        Raises
        ------
        CannotPredictError
            Rows are gone: a row is judged by the model that was trained without its id, and ids have moved.
        """
        trust = Scales.load(delta.state).trust
        if delta.rows_removed and trust is not None:
            raise CannotPredictError("rows are gone, so that rows are in other folds than their models have")
        copy_state(delta.state, context.state)
        balanced, _ = self._counts(context, executor)
        return self._scaled(context, executor, balanced, trust)

    def _counts(
        self, context: Context, executor: Executor
    ) -> tuple[dict[int, float], Counter[tuple[int, int]]]:
        balanced: dict[int, float] = {}
        by_class: Counter[tuple[int, int]] = Counter()
        shards = range(len(context.shards.shards))
        by = self.params.method == "class_balanced"
        for masses, pairs in executor.map(partial(_count, context.shards, self._factors, by), shards):
            balanced = {key: balanced.get(key, 0.0) + masses.get(key, 0.0) for key in {**balanced, **masses}}
            by_class.update(pairs)
        return balanced, by_class

    def _scaled(
        self, context: Context, executor: Executor, balanced: dict[int, float], trust: Trust | None
    ) -> dict[str, float]:
        shards = range(len(context.shards.shards))
        method = self.params.method
        sizes = balanced if method in ("group_balanced", "class_balanced") else None
        limits = self._limits(context, executor) if method == "robust" else None
        scales = Scales(sizes, trust, 1.0, self._factors, limits, method == "class_balanced")
        work = partial(add_up, context.shards, self.requires, scales, context.state)
        whole = all_shards(executor.map(work, shards))
        replace(scales, scale=whole.scale).save(context.state)
        if text := warning(whole):
            _log.warning("%s", text)
        return {
            "groups": float(len(balanced)),
            "largest_weight": float(np.float32(whole.scale * whole.largest)),
            "effective_sample_size": whole.effective(),
            "effective_share": whole.effective() / whole.kept if whole.kept else 0.0,
            "doubted": float(whole.doubted),
            **({} if limits is None else {"shrinkage": _shrinkage(limits)}),
        }

    def _limits(self, context: Context, executor: Executor) -> ClassLimits:
        """Measure the factors' product within each class, in two passes over the shards."""
        shards, params = range(len(context.shards.shards)), self.params
        count = partial(_sum_products, context.shards, self._factors)
        sums = add_moments(list(executor.map(count, shards)))
        work = partial(_sum_ratios, context.shards, self._factors, class_means(sums), params.cap)
        ratios = add_moments(list(executor.map(work, shards)))
        limits = find_limits(sums, ratios, params.cap, params.min_effective_share)
        if shrunk := {c: 1 - t for c, t in limits.trust.items() if t < 1}:
            _log.info(
                "operators.weights: the weights of %d classes are shrunk towards class balance, by up to "
                "%.0f %%, so that cap and min_effective_share hold.",
                len(shrunk),
                100 * max(shrunk.values()),
            )
        return limits

    def _train(
        self, context: Context, executor: Executor, by_class: Counter[tuple[int, int]]
    ) -> Trust | None:
        largest = largest_groups(by_class)
        if not self._doubts or len(by_class) == len(largest):
            return None  # every class is one group: nothing to doubt
        # Not at the top: torch takes seconds, and planning imports this module.
        from operators.weights.cross_fit import FoldJob, count_classes

        sizes: Counter[int] = Counter()
        for (_, key), n_rows in by_class.items():
            sizes[key] += n_rows
        priors = class_priors(by_class, count_classes(context.states["ingest"])).tolist()
        trust = Trust(largest, self.params.cross_fit.folds, tuple(priors), context.seed)
        job = FoldJob(context.shards, context.state, self.params, dict(sizes), trust)
        if not self._trains_on_ray(job, executor):
            for _ in executor.map(job, range(trust.n_folds), resources=self.params.resources):
                pass
        return trust

    def _trains_on_ray(self, job: FoldJob, executor: Executor) -> bool:
        """Train on Ray Train's workers, if that is worth it; whether it was."""
        n_rows = sum(shard.n_rows for shard in job.reader.shards)
        if executor.kind != "ray" or n_rows <= self.params.small_rows:
            return False
        from operators.weights.folds_ray import train_folds, workers_a_fold

        workers = workers_a_fold(job, self.params.resources)
        if workers > 1:
            train_folds(job, self.params.resources, workers)
        return workers > 1

    def explain(self, context: Context, row: ExplainedRow) -> list[Fact]:
        """List what the weight is the product of."""
        if not row.has(*self.requires):
            return added_facts(self.adds, row)
        return [*added_facts(self.adds, row), *Scales.load(context.state).explain(row.table, context.state)]

    def report_section(self, context: ReportContext) -> ReportSection | None:
        """Say how unequal the weights are."""
        from operators.weights.report import weight_section

        return weight_section(context.metrics)

    def open(self, context: Context) -> Apply:
        """Load sizes and models."""
        weigh = Scales.load(context.state).open(context.state)
        return lambda table: pa.table({WEIGHT: pa.array(weigh(table)[0].astype(np.float32))})


def _count(
    reader: ShardReader, factors: Factors, by_class: bool, shard: int
) -> tuple[dict[int, float], dict[tuple[int, int], int]]:
    """Return the factors' sums over the groups that are balanced, and the rows of each class and group with
    all noise.
    """
    table = reader.read(shard, (*COLUMNS, *factors.reads))
    y, group = table.column(LABEL).to_numpy(), table.column(GROUP).to_numpy()
    pairs = Counter(zip(y.tolist(), group_keys(y, group).tolist(), strict=True))
    return group_masses(keys_of(table, by_class=by_class), factors.product(table)), dict(pairs)


def _sum_products(reader: ShardReader, factors: Factors, shard: int) -> Moments:
    table = reader.read(shard, (*COLUMNS, *factors.reads))
    return sum_products(factors.product(table), table.column(LABEL).to_numpy(), factors.kept(table))


def _sum_ratios(
    reader: ShardReader, factors: Factors, means: dict[int, float], cap: float, shard: int
) -> Moments:
    table = reader.read(shard, (*COLUMNS, *factors.reads))
    return sum_ratios(factors.product(table), table.column(LABEL).to_numpy(), factors.kept(table), means, cap)


def _shrinkage(limits: ClassLimits) -> float:
    """Return 1 - t of the class that is shrunk most; 0 without classes."""
    return max((1 - t for t in limits.trust.values()), default=0.0)
