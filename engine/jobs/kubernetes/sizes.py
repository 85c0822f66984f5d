"""How large a cluster a recipe asks for: CPUs, GPUs and memory of each worker."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.plan.planner import build_operator
from engine.recipe.recipe import Recipe
from operators.base import Resources

WIDTH = 8
"""CPUs for a recipe that names neither ``run.shards_in_flight`` nor ``run.cpus``."""
WORKERS = 2
PROCESS = 2**30
"""Bytes of one worker process without rows: Python with torch, pyarrow and scikit-learn, and room."""
COPIES = 8
"""A shard's rows in memory, in copies of its bytes on disk: unpacked, as features, and what is computed."""
STORE_SHARE = 0.3
"""Part of a node's memory that Ray takes for its object store."""


@dataclass(frozen=True)
class Sizes:
    """``workers`` pods, each with ``cpus``, ``gpus`` and ``memory`` (GiB)."""

    workers: int
    cpus: int
    gpus: int
    memory: int


def sizes_of(recipe: Recipe, *, workers: int | None = None, gpu: bool = False) -> Sizes:
    """What the recipe's operators ask for, spread over workers. A first guess to be edited.

    CPUs: ``run.shards_in_flight`` (else ``run.cpus``, else 8) actors of the largest operator, or what an
    operator asks for with ``actors``, whichever is more. GPUs: with ``gpu``, or where an operator asks.
    Memory: for each CPU one process and eight times ``source.shard_bytes``, and Ray's object store on top.
    """
    asked = _resources(recipe)
    width = recipe.run.shards_in_flight or recipe.run.cpus or WIDTH
    total = max(one.cpus * (one.actors or width) for one in asked)
    count = workers or WORKERS
    cpus = max(math.ceil(total / count), *(math.ceil(one.cpus) for one in asked))
    gpus = max(math.ceil(max(one.gpus for one in asked)), int(gpu))
    return Sizes(count, cpus, gpus, memory_of(recipe, cpus))


def memory_of(recipe: Recipe, cpus: int) -> int:
    """GiB for a node on which ``cpus`` shards are worked on at a time."""
    processes = cpus * (PROCESS + COPIES * recipe.source.shard_bytes)
    return math.ceil(processes / (1 - STORE_SHARE) / 2**30)


def _resources(recipe: Recipe) -> list[Resources]:
    chain = [build_operator(recipe, name, params) for name, params in recipe.operators.items()]
    return [operator.resources for operator in chain] or [Resources()]
