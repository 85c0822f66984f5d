"""Chooses where a run is carried out when the recipe says ``run.executor: auto``.

Ray and its workers cost tens of seconds, whatever the data, and fewer on more cores; in return the work of an
operator is shared among processes. The choice compares this cost with the time that sharing would save, from
the rows that are still to be computed and the measured costs that operators declare (``Operator.cost``). The
results are the same on both executors.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from engine.plan.estimate import width_factor
from engine.plan.model import Plan, PlannedOperator
from engine.recipe.recipe import RunSection
from operators.base import Operator
from operators.counts import count

RAY_START_SECONDS = 15.0
"""Seconds until a Ray of the run's own has started."""
RAY_CPU_SECONDS = 120.0
"""CPU seconds that Ray and its processes take beside the work, mostly for imports, shared by the cores: a
million rows of 32 features took 202 CPU s on Ray and 79 in one process, 2 cores, 23 November 2026."""
UNKNOWN_WIDTH = 64
"""Number of features that a vector column counts for if the schema does not state its length."""


@dataclass(frozen=True)
class ExecutorChoice:
    """The executor of a run and the reason for it, as one clause."""

    kind: Literal["local", "ray"]
    reason: str


def choose_executor(plan: Plan) -> ExecutorChoice:
    """Choose the executor of a plan.

    Parameters
    ----------
    plan
        The plan; operators whose results are committed for all shards count nothing.

    Returns
    -------
    What ``run.executor`` names. For ``auto``: Ray where a cluster is named or runs already in this process,
    where an operator or the training needs Ray, or where sharing the work saves more time than starting Ray
    takes; else this process.
    """
    section = plan.recipe.run
    if section.executor != "auto":
        return ExecutorChoice(section.executor, "named by run.executor")
    demanded = _demand(plan)
    if demanded:
        return ExecutorChoice("ray", demanded)
    seconds = pending_cpu_seconds(plan)
    cores = section.cpus or os.cpu_count() or 1
    workers = min(cores, max(len(plan.shards), 1))
    saved = seconds * (1 - 1 / workers)
    work = f"about {seconds:,.0f} CPU s of work" if seconds >= 1 else "next to no work"
    if saved > RAY_START_SECONDS + RAY_CPU_SECONDS / cores:
        return ExecutorChoice("ray", f"{work}, of which {workers} processes save more than Ray costs")
    return ExecutorChoice(
        "local", f"{work} in {count(len(plan.shards), 'shard')}: starting Ray would cost more"
    )


def resolved_section(plan: Plan) -> RunSection:
    """Return the recipe's section ``run`` with the executor that was chosen in place of ``auto``."""
    return plan.recipe.run.model_copy(update={"executor": choose_executor(plan).kind})


def pending_cpu_seconds(plan: Plan) -> float:
    """Estimate the CPU seconds that the plan's operators still need, from their measured costs."""
    factor = width_factor(n_columns(plan.listing.schema, plan.features))
    total = 0.0
    for planned in plan.operators:
        cost = planned.operator.cost
        millions = missing_rows(plan, planned) / 1e6
        total += millions * cost.per_million(plan.n_rows) * (factor if cost.by_features else 1.0)
    return total


def missing_rows(plan: Plan, planned: PlannedOperator) -> int:
    """Return the rows of the shards for which an operator has no committed result."""
    committed = plan.store.committed(planned.fingerprint)
    return sum(shard.n_rows for shard in plan.shards if shard.index not in committed)


def n_columns(schema: pa.Schema, features: Collection[str]) -> int:
    """Return the number of features that columns of this schema give, as far as the schema tells."""
    return sum(_width(schema.field(name).type) for name in features if name in schema.names) or 1


def _width(kind: pa.DataType) -> int:
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    nested = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return UNKNOWN_WIDTH if nested else 1


def _demand(plan: Plan) -> str:
    """Return why this run needs Ray, or an empty text."""
    if plan.recipe.run.ray_address():
        return f"{'run.address' if plan.recipe.run.address else 'RAY_ADDRESS'} names a cluster"
    ray: Any = sys.modules.get("ray")
    if ray is not None and getattr(ray, "is_initialized", lambda: False)():
        return "Ray runs in this process already"
    train = plan.recipe.train
    if train is not None and train.params.get("where") == "ray":
        return "train.where is ray"
    return _operator_demand(planned.operator for planned in plan.operators)


def _operator_demand(operators: Iterable[Operator[Any]]) -> str:
    for operator in operators:
        if operator.needs_ray:
            return f"operators.{operator.name} trains on Ray"
        if operator.resources.gpus:
            return f"operators.{operator.name} asks for a GPU"
    return ""
