"""The operator ``weights``: count the groups, train classifiers without each fold, then weight each row."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from operators.base import (
    FACTOR,
    FEATURES,
    GROUP,
    LABEL,
    MARK,
    SPLIT,
    WEIGHT,
    Apply,
    CannotPredictError,
    Context,
    Cost,
    DatasetDelta,
    Executor,
    Operator,
    OperatorError,
    ReportContext,
    ShardReader,
    copy_state,
)
from operators.bounded_json import read_json
from operators.counts import count
from operators.duplicates.params import weighs_copies
from operators.explanations import ExplainedRow, Fact, added_facts
from operators.report import ReportSection
from operators.weights.class_limits import (
    ClassLimits,
    Moments,
    add_moments,
    balance_classes,
    class_means,
    find_limits,
    sum_products,
    sum_ratios,
)
from operators.weights.classes import (
    ClassTotal,
    class_totals,
    effective_rows,
    load_totals,
    rare_class_sentence,
    save_totals,
    strength_sentence,
)
from operators.weights.kernel import (
    LabelTrust,
    bound_noise,
    class_priors,
    group_keys,
    group_masses,
    largest_groups,
)
from operators.weights.params import WeightsParams
from operators.weights.row_weights import COLUMNS, Factors, Scales, read_keys
from operators.weights.totals import LOW, Totals, few_rows_warnings, sum_shard, sum_totals, warning

if TYPE_CHECKING:
    from operators.weights.cross_fit import FoldJob

CUES = "cues"
_log = logging.getLogger("rowsieve")


class Weights(Operator[WeightsParams]):
    """Adds ``weight``, mean 1 over the rows to learn from, or those that are kept where outliers are dropped.

    An operator named W that adds the column ``W_weight`` multiplies it. By default (``method: robust``) the
    product is kept within limits, see :mod:`operators.weights.class_limits`, and ``cues`` is one of the
    factors.
    """

    name = "weights"
    version = 15
    cost = Cost(2.80, 1.82, 13)
    Params = WeightsParams

    def __init__(self, params: WeightsParams) -> None:
        super().__init__(params)
        self.partial_fit_changes_rows = params.recount
        self._doubts = not params.trusts_all
        self.uses: tuple[str, ...] = ("ingest",)
        self._factors = Factors()
        self._beside_cues = ""

    @property
    def usual_factors(self) -> tuple[str, ...]:
        """Names of the operators whose weights ``method: robust`` multiplies unless others are chosen."""
        return (CUES,) if self.params.method == "robust" and self.params.factors is None else ()

    def in_chain(self, chain: Sequence[Operator[Any]]) -> Weights:
        """Return a copy that multiplies by the weights of the chain and drops the rows that `split` drops.

        Raises OperatorError for a factor that no operator of the recipe adds.
        """
        added = {field.name: field.type for operator in chain for field in operator.adds}
        names = self._factor_names([name.removesuffix(FACTOR) for name in added if name.endswith(FACTOR)])
        drops = self.params.drop_outliers
        if drops is None:  # as `split` does, where it is in the chain
            drops = any(getattr(operator.params, "drop_outliers", None) for operator in chain)
        found = Weights(self.params.model_copy(update={"factors": names, "drop_outliers": drops}))
        # A weight of 0 that takes copies out stays 0: the limits of `robust` would give them weight again.
        copies = [operator.name for operator in chain if weighs_copies(operator)]
        found._factors = Factors(
            columns=tuple(name + FACTOR for name in names),
            marks=tuple(name + MARK if added.get(name + MARK) == pa.bool_() else "" for name in names),
            drop_outliers=drops,
            final=tuple(name + FACTOR for name in copies if name in names),
            drop_split=bool(copies) and SPLIT in added,
        )
        if self.params.method == "robust" and CUES in names:
            found.uses = (*self.uses, CUES)
        if CUES + FACTOR in added:
            found._beside_cues = self.params.setting_beside_cues
        return found

    def _factor_names(self, known: Sequence[str]) -> tuple[str, ...]:
        """Return the operators whose weights are multiplied, sorted. Raises OperatorError for others."""
        factors = known if self.params.factors is None else self.params.factors
        if unknown := sorted(set(factors).difference(known)):
            those = f"there are: {', '.join(known)}" if known else "none of its operators adds weights"
            text = f"operators.weights.factors: no operator adds weights named {unknown[0]!r}; {those}."
            raise OperatorError(f"{text} Leave it out.")
        return tuple(sorted(factors))

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the required columns: class, group, outlier mark, factors, features for classifiers."""
        return (*COLUMNS, *self._factors.reads, *((FEATURES,) if self._doubts else ()))

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """Return the published column ``weight``."""
        return (pa.field(WEIGHT, pa.float32()),)

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Count the rows of each group and train without each fold; store ``weights.json`` and the models.

        Returns ``groups``, ``largest_weight``, ``effective_sample_size``, ``effective_share`` (of the kept
        rows), ``doubted`` (rows with a reduced weight), and for robust weights ``shrinkage`` of the class
        that is shrunk most. Logs a warning where the effective share is below a tenth.

        Raises
        ------
        OperatorError
            Too few rows for the folds, or a training diverged.
        """
        balanced, by_class = self._count_groups(context, executor)
        return self._scale(context, executor, balanced, self._train(context, executor, by_class))

    @property
    def can_predict(self) -> bool:
        """Return True: the trained models weight new rows."""
        return True

    def warnings(self, metrics: Mapping[str, float], state: Callable[[], Path]) -> tuple[str, ...]:
        """Say that the figures of ``cues`` are of other weights or count rows of weight 0, and that
        weights rest on few rows."""
        from operators.weights.report import warnings_beside_cues

        drops = self._factors.drop_outliers and CUES + FACTOR in self._factors.columns
        said = warnings_beside_cues(self._beside_cues, drops=drops)
        return (*said, *few_rows_warnings(metrics))

    def partial_fit(self, context: Context, delta: DatasetDelta, executor: Executor) -> dict[str, float]:
        """Count the groups of all rows and scale to mean 1 again, unless ``recount`` is off; models are kept.

        Raises
        ------
        CannotPredictError
            Rows were removed, so that row ids moved, and rows would be scored by a model that has seen them.
        """
        trust = Scales.load(delta.state).trust
        if delta.rows_removed and trust is not None:
            raise CannotPredictError(
                "rows were removed, so that row ids moved, and rows are in other folds than when the "
                "models of operators.weights were trained"
            )
        copy_state(delta.state, context.state)
        if not self.params.recount:
            return dict(delta.metrics)
        balanced, _ = self._count_groups(context, executor)
        return self._scale(context, executor, balanced, trust)

    def _count_groups(
        self, context: Context, executor: Executor
    ) -> tuple[dict[int, float], Counter[tuple[int, int]]]:
        balanced: dict[int, float] = {}
        by_class: Counter[tuple[int, int]] = Counter()
        shards = range(len(context.shards.shards))
        by = self.params.method == "class_balanced"
        for masses, pairs in executor.map(partial(_count, context.shards, self._factors, by), shards):
            balanced = {key: balanced.get(key, 0.0) + masses.get(key, 0.0) for key in {**balanced, **masses}}
            by_class.update(pairs)
        return balanced if by else bound_noise(balanced, by_class), by_class

    def _scale(
        self, context: Context, executor: Executor, balanced: dict[int, float], trust: LabelTrust | None
    ) -> dict[str, float]:
        shards = range(len(context.shards.shards))
        method = self.params.method
        sizes = balanced if method in ("group_balanced", "class_balanced") else None
        limits, totals, marked = None, list[ClassTotal](), None
        if method == "robust":
            limits, totals = self._limits(context, executor)
            marked = self._marked_at_most(context, limits)
        elif method == "class_balanced":
            sizes, totals = self._sizes(context, executor, balanced)
        scales = Scales(sizes, trust, 1.0, self._factors, limits, method == "class_balanced", marked)
        work = partial(sum_shard, context.shards, self.requires, scales, context.state)
        whole = sum_totals(executor.map(work, shards))
        replace(scales, scale=whole.scale).save(context.state)
        strength = self._strength(context) if method == "robust" else 1.0
        self._log_unusual(whole, totals, strength)
        return {
            "groups": float(len(balanced)),
            "largest_weight": float(np.float32(whole.scale * whole.largest)),
            "effective_sample_size": whole.effective(),
            "effective_share": whole.effective() / whole.kept if whole.kept else 0.0,
            "doubted": float(whole.doubted),
            **({"class_effective_share": effective_rows(totals) / max(whole.kept, 1)} if totals else {}),
            **({} if limits is None else {"shrinkage": limits.shrinkage()}),
            **({} if limits is None else {"class_strength": strength}),
        }

    def _log_unusual(self, whole: Totals, totals: Sequence[ClassTotal], strength: float) -> None:
        """Log what is unusual about the weights. ``cues`` warns of classes of few rows itself."""
        if sentence := rare_class_sentence(totals, self.params.min_class_rows, strength):
            level = logging.INFO if CUES + FACTOR in self._factors.columns else logging.WARNING
            _log.log(level, "operators.weights: %s", f"{sentence} {self._on_strength(strength)}".rstrip())
        by_classes = effective_rows(totals)
        if text := warning(whole, by_classes):
            _log.warning("%s", text)
        elif totals and by_classes < LOW * whole.kept:
            heavy = max(totals, key=lambda total: total.weight)
            _log.info(
                "operators.weights: class balance makes the weights worth %s of %s rows, since the class %r "
                "has %s.",
                f"{whole.effective():,.0f}",
                f"{whole.kept:,}",
                heavy.name,
                heavy.rows_text,
            )

    def _on_strength(self, strength: float) -> str:
        """Return a sentence on how far classes are balanced, and why."""
        return strength_sentence(strength, is_given=self.params.class_strength is not None)

    def _strength(self, context: Context) -> float:
        """Return how far classes are balanced, from 0 to 1."""
        if self.params.class_strength is not None:
            return self.params.class_strength
        if CUES not in context.states:
            return 1.0
        from operators.cues.serialise import class_strength

        return class_strength(context.states[CUES])

    def _marked_at_most(self, context: Context, limits: ClassLimits) -> float | None:
        """Return the largest weight of a marked row where ``cues`` balances the classes alone, else None.

        A rare class has many wrong labels. Where a shortcut is balanced, ``cues`` allows for them itself.
        """
        if CUES not in context.states or not limits.balance:
            return None
        from operators.cues.serialise import follows_shortcut

        return None if follows_shortcut(context.states[CUES]) else min(limits.balance.values())

    def _balance(self, context: Context, sums: Moments, strength: float) -> list[ClassTotal]:
        """Return the weight of each class before the factors, and store it for the report."""
        balance = balance_classes(sums, self.params.min_class_rows, strength)
        ingest = read_json(context.states["ingest"] / "classes.json")
        names = [str(value) for value in ingest["classes"]]
        rows = {c: int(n) for c, (n, _) in sums.items()}
        totals = class_totals(balance, rows, names, ingest["counts"])
        save_totals(totals, strength, context.state)
        return totals

    def _sums(self, context: Context, executor: Executor) -> Moments:
        """Return per class the rows that count for its limits, and the sum of the factors' product."""
        count = partial(_sum_products, context.shards, self._factors)
        return add_moments(list(executor.map(count, range(len(context.shards.shards)))))

    def _sizes(
        self, context: Context, executor: Executor, masses: dict[int, float]
    ) -> tuple[dict[int, float], list[ClassTotal]]:
        """Return the masses by which the rows of each class are divided for ``method: class_balanced``."""
        sums = self._sums(context, executor)
        totals = self._balance(context, sums, 1.0)
        full = max((total.rows * total.weight for total in totals), default=1.0)
        part = {c: t.rows * t.weight / full for c, t in zip(sorted(sums), totals, strict=True)}
        return {c: mass / part.get(c, 1.0) for c, mass in masses.items()}, totals

    def _limits(self, context: Context, executor: Executor) -> tuple[ClassLimits, list[ClassTotal]]:
        """Measure the factors' product within each class, in two passes over the shards."""
        shards, params = range(len(context.shards.shards)), self.params
        sums = self._sums(context, executor)
        totals = self._balance(context, sums, self._strength(context))
        work = partial(_sum_ratios, context.shards, self._factors, class_means(sums), params.cap)
        ratios = add_moments(list(executor.map(work, shards)))
        balance = {c: total.weight for c, total in zip(sorted(sums), totals, strict=True)}
        limits = find_limits(sums, ratios, balance, params.cap, params.min_effective_share)
        if shrunk := {c: 1 - t for c, t in limits.trust.items() if t < 1}:
            _log.info(
                "operators.weights: the weights of %s are shrunk towards class balance, by up to "
                "%.0f %%, so that cap and min_effective_share hold.",
                count(len(shrunk), "class"),
                100 * max(shrunk.values()),
            )
        return limits, totals

    def _train(
        self, context: Context, executor: Executor, by_class: Counter[tuple[int, int]]
    ) -> LabelTrust | None:
        largest = largest_groups(by_class)
        if not self._doubts or len(by_class) == len(largest):
            return None  # every class is one group: nothing to doubt
        from operators.weights.cross_fit import FoldJob, count_classes

        sizes: Counter[int] = Counter()
        for (_, key), n_rows in by_class.items():
            sizes[key] += n_rows
        priors = class_priors(by_class, count_classes(context.states["ingest"])).tolist()
        trust = LabelTrust(largest, self.params.cross_fit.folds, tuple(priors), context.seed)
        job = FoldJob(context.shards, context.state, self.params, dict(sizes), trust)
        if not self._trains_on_ray(job, executor):
            for _ in executor.map(job, range(trust.n_folds), resources=self.params.resources):
                pass
        return trust

    def _trains_on_ray(self, job: FoldJob, executor: Executor) -> bool:
        """Train on Ray Train's workers if there are enough; return whether that was done."""
        n_rows = sum(shard.n_rows for shard in job.reader.shards)
        if executor.kind != "ray" or n_rows <= self.params.small_rows:
            return False
        from operators.weights.folds_ray import count_workers_per_fold, train_folds

        workers = count_workers_per_fold(job, self.params.resources)
        if workers > 1:
            train_folds(job, self.params.resources, workers)
        return workers > 1

    def explain(self, context: Context, row: ExplainedRow) -> list[Fact]:
        """Return the parts that the weight is the product of."""
        if not row.has(*self.requires):
            return added_facts(self.adds, row)
        return [*added_facts(self.adds, row), *Scales.load(context.state).explain(row.table, context.state)]

    def report_section(self, context: ReportContext) -> ReportSection | None:
        """Return the section on the inequality of the weights and on rare classes."""
        from operators.weights.report import weight_section

        totals, strength = load_totals(context.state)
        rare = rare_class_sentence(totals, self.params.min_class_rows, strength)
        return weight_section(context.metrics, rare, self._on_strength(strength))

    def open(self, context: Context) -> Apply:
        """Return a function that weights the rows of a table by the stored scales and models."""
        weigh = Scales.load(context.state).open(context.state)
        return lambda table: pa.table({WEIGHT: pa.array(weigh(table)[0].astype(np.float32))})


def _count(
    reader: ShardReader, factors: Factors, by_class: bool, shard: int
) -> tuple[dict[int, float], dict[tuple[int, int], int]]:
    """Return the sum of the factors' product per balanced group, and the number of rows per class and
    group.
    """
    table = reader.read(shard, (*COLUMNS, *factors.reads))
    y, group = table.column(LABEL).to_numpy(), table.column(GROUP).to_numpy()
    pairs = Counter(zip(y.tolist(), group_keys(y, group).tolist(), strict=True))
    return group_masses(read_keys(table, by_class=by_class), factors.product(table)), dict(pairs)


def _sum_products(reader: ShardReader, factors: Factors, shard: int) -> Moments:
    table = reader.read(shard, (*COLUMNS, *factors.reads))
    return sum_products(factors.product(table), table.column(LABEL).to_numpy(), factors.counted(table))


def _sum_ratios(
    reader: ShardReader, factors: Factors, means: dict[int, float], cap: float, shard: int
) -> Moments:
    table = reader.read(shard, (*COLUMNS, *factors.reads))
    y, counted = table.column(LABEL).to_numpy(), factors.counted(table)
    return sum_ratios(factors.product(table), y, counted, means, cap)
