"""The operators ``dckm`` and ``decorrelation``, which run :func:`operators.dckm.kernel.solve` over shards."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa

from operators.base import (
    FEATURES,
    ROW_ID,
    Apply,
    Context,
    Cost,
    Executor,
    Operator,
    OperatorError,
    OperatorParams,
    ReportContext,
)
from operators.bounded_json import read_json
from operators.dckm.params import BalanceParams, DckmParams, DecorrelationParams
from operators.report import ReportSection

if TYPE_CHECKING:
    from operators.dckm.kernel import Init, Solution

STATE = "balance.json"
CENTRES = "centres.npy"
LAMBDAS = "lambdas.json"
DCKM_WEIGHT = "dckm_weight"
DCKM_CLUSTER = "dckm_cluster"
DECORRELATION_WEIGHT = "decorrelation_weight"
P = TypeVar("P", bound=BalanceParams)


class Balanced(Operator[P]):
    """Base of both operators: minimises the objective and adds its weights, scaled to mean 1, as a column."""

    weight: ClassVar[str]
    """Name of the column of weights."""
    cluster: ClassVar[str | None] = None
    """Name of the column of clusters; None for ``decorrelation``."""

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the name of the features."""
        return (FEATURES,)

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """Return the added columns: weights of mean 1 and, for ``dckm``, the cluster."""
        weight = pa.field(self.weight, pa.float32())
        return (weight,) if self.cluster is None else (weight, pa.field(self.cluster, pa.int32()))

    def minimise(
        self,
        context: Context,
        executor: Executor,
        n_clusters: int,
        init: Init,
        lambdas: tuple[float, float] | None = None,
    ) -> dict[str, float]:
        """Run the passes and store ``result-<shard>.npz``, ``centres.npy`` and ``balance.json``.

        ``lambdas`` are lambda1 and lambda2, by default those of the recipe.

        Returns objective, balance, correlation_before and correlation_after (Frobenius norm of the
        off-diagonal covariance), effective_sample_size, iterations, converged (0 or 1), and limited: 1 where
        ``min_effective_share`` ended the search instead.

        Raises
        ------
        OperatorError
            No rows, rows of different lengths, or fewer rows than clusters.
        """
        # Imported here because planning imports this module and must stay light.
        from operators.dckm.kernel import DckmSettings, solve
        from operators.dckm.sharded import Sharded, survey

        params = self.params
        states, n_rows = survey(context.shards, params.coding, context.state, executor, params.resources)
        if n_clusters > n_rows:
            raise OperatorError(
                f"operators.{self.name}.n_clusters is {n_clusters}, but there are only {n_rows} valid rows. "
                "Lower it."
            )
        lambda1, lambda2 = lambdas or (params.lambda1, params.lambda2)
        settings = DckmSettings(
            n_clusters=n_clusters,
            lambda1=lambda1,
            lambda2=lambda2,
            lambda3=params.lambda3,
            max_iter=params.max_iter,
            tol=params.tol,
            init=init,
            seed=context.seed,
            min_effective_share=params.min_effective_share,
        )
        found = solve(Sharded(states, n_rows, executor, params.resources), settings)
        return _store(context.state, found, n_rows)

    def report_section(self, context: ReportContext) -> ReportSection | None:
        """Return the section on the correlation of the features before and after weighting."""
        from operators.dckm.report import balance_section

        return balance_section(self.name, context.metrics)

    def open(self, context: Context) -> Apply:
        """Return a function that reads the stored weights of a table's shard and scales them to mean 1."""
        from operators.dckm.sharded import read_result

        scale = read_json(context.state / STATE)["scale"]
        firsts = np.array([shard.first_row for shard in context.shards.shards])

        def apply(table: pa.Table) -> pa.Table:
            columns: dict[str, Any] = {self.weight: np.empty(0, np.float32)}
            cluster = np.empty(0, np.int32)
            if table.num_rows:
                shard = int(np.searchsorted(firsts, table.column(ROW_ID)[0].as_py(), side="right")) - 1
                weight, cluster = read_result(context.state, shard)
                columns[self.weight] = (weight * scale).astype(np.float32)
            if self.cluster is not None:
                columns[self.cluster] = cluster
            return pa.table(columns)

        return apply


class Dckm(Balanced[DckmParams]):
    """Adds ``dckm_weight`` and ``dckm_cluster`` by k-means on rows weighted so that features correlate
    less.
    """

    name = "dckm"
    version = 5
    cost = Cost(178, 69.4, 14)
    Params: ClassVar[type[OperatorParams]] = DckmParams
    weight = DCKM_WEIGHT
    cluster = DCKM_CLUSTER

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Cluster and weight the rows; see :meth:`Balanced.minimise`.

        Also returns the number of clusters that have rows and, with ``lambdas: auto``, the chosen lambda1 and
        lambda2. All pairs that were tried are stored in ``lambdas.json``.
        """
        params = self.params
        if params.lambdas == "given":
            return self.minimise(context, executor, params.n_clusters, params.init)
        chosen = self._chosen(context, executor)
        found = self.minimise(context, executor, params.n_clusters, params.init, chosen)
        return found | {"lambda1": chosen[0], "lambda2": chosen[1]}

    def _chosen(self, context: Context, executor: Executor) -> tuple[float, float]:
        # Imported here because planning imports this module and must not load scikit-learn.
        from operators.dckm.estimator import DecorrelatedKMeans
        from operators.dckm.selection import choose_over_shards

        params = self.params
        model = DecorrelatedKMeans(
            params.n_clusters,
            lambda3=params.lambda3,
            init=params.init,
            random_state=context.seed % 2**32,
            max_iter=params.max_iter,
            tol=params.tol,
            coding=params.coding,
            min_effective_share=params.min_effective_share,
        )
        try:
            picked, tried = choose_over_shards(
                model, context.shards, context.seed, executor, params.resources
            )
        except ValueError as error:
            raise OperatorError(f"operators.dckm.lambdas: {error}") from error
        record = {"chosen": asdict(picked), "tried": [asdict(one) for one in tried]}
        (context.state / LAMBDAS).write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        return picked.lambda1, picked.lambda2


class Decorrelation(Balanced[DecorrelationParams]):
    """Adds ``decorrelation_weight``: weights under which features correlate less, for any trainer."""

    name = "decorrelation"
    version = 3
    cost = Cost(74.1, 38.5, 13)
    Params: ClassVar[type[OperatorParams]] = DecorrelationParams
    weight = DECORRELATION_WEIGHT

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Weight the rows; see :meth:`Balanced.minimise`."""
        return self.minimise(context, executor, 0, "random")


def _store(state: Path, found: Solution, n_rows: int) -> dict[str, float]:
    """Write the centres and the record of the fit; return the metrics."""
    metrics = {
        "objective": float(found.objective[-1]),
        "balance": float(found.balance[-1]),
        "correlation_before": found.correlation_before,
        "correlation_after": found.correlation_after,
        "effective_sample_size": found.effective_sample_size,
        "iterations": float(len(found.objective)),
        "converged": float(found.converged),
        "limited": float(found.limited),
    }
    if found.centres is not None:
        np.save(state / CENTRES, found.centres, allow_pickle=False)
        metrics["clusters"] = float(np.count_nonzero(found.sizes))
    record = {
        **metrics,
        "scale": n_rows / found.weight_sum,
        "sizes": found.sizes.tolist(),
        "objective_by_loop": found.objective.tolist(),
        "balance_by_loop": found.balance.tolist(),
    }
    (state / STATE).write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    return metrics
