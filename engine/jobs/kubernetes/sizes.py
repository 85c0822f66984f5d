"""Estimate the cluster that a recipe needs: CPUs, GPUs and memory of each worker."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.plan.operator_setup import build_operator
from engine.recipe.recipe import Recipe
from operators.base import Resources

WIDTH = 8
"""CPUs for a recipe that names neither ``run.shards_in_flight`` nor ``run.cpus``."""
WORKERS = 2
PROCESS = 2**30
"""Bytes of one worker process without rows: Python with torch, pyarrow and scikit-learn, and a reserve."""
COPIES = 8
"""Memory of a shard as a multiple of its bytes on disk: unpacked rows, features and results."""
STORE_SHARE = 0.3
"""Share of a node's memory that Ray uses for its object store."""


@dataclass(frozen=True)
class Sizes:
    """``workers`` pods, each with ``cpus``, ``gpus`` and ``memory`` (GiB)."""

    workers: int
    cpus: int
    gpus: int
    memory: int


def sizes_of(recipe: Recipe, *, workers: int | None = None, gpu: bool = False) -> Sizes:
    """Estimate the pods for the recipe's operators. The estimate is meant to be edited.

    CPUs: ``run.shards_in_flight`` (else ``run.cpus``, else 8) actors of the largest operator, or the actors
    that an operator requests, whichever is more. GPUs: with ``gpu``, or if an operator requests them.
    Memory: for each CPU one process and eight times ``source.shard_bytes``, and Ray's object store.
    """
    asked = _resources(recipe)
    width = recipe.run.shards_in_flight or recipe.run.cpus or WIDTH
    total = max(one.cpus * (one.actors or width) for one in asked)
    count = workers or WORKERS
    cpus = max(math.ceil(total / count), *(math.ceil(one.cpus) for one in asked))
    gpus = max(math.ceil(max(one.gpus for one in asked)), int(gpu))
    return Sizes(count, cpus, gpus, memory_of(recipe, cpus))


def memory_of(recipe: Recipe, cpus: int) -> int:
    """Return the memory in GiB of a node that processes ``cpus`` shards at a time."""
    processes = cpus * (PROCESS + COPIES * recipe.source.shard_bytes)
    return math.ceil(processes / (1 - STORE_SHARE) / 2**30)


def _resources(recipe: Recipe) -> list[Resources]:
    chain = [build_operator(recipe, name, params) for name, params in recipe.operators.items()]
    return [operator.resources for operator in chain] or [Resources()]
