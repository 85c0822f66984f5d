"""Landmarks drawn from the state of ``neighbours`` by the inverse of the density; used by ``split``.

A Nystrom approximation (Williams, Seeger 2001) is as good as its landmarks cover the space. Landmarks drawn
uniformly follow the data and crowd where rows are many; drawn by the inverse of the density they also reach
where rows are few, which is where minorities are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from operators.arrays import Float32, Ids
from operators.base import OperatorError
from operators.neighbours.class_index import Part
from operators.neighbours.graph_statistics import density
from operators.neighbours.params import NeighboursParams

GRAPH = "graph.json"
CANDIDATES = 8  # rows whose density is looked up, per landmark


@dataclass(frozen=True, eq=False)
class Landmarks:
    """Chosen rows: (m,) int64 ``row_ids``, ascending, and their (m, p) float32 ``vectors``."""

    row_ids: Ids
    vectors: Float32


def choose_landmarks(state: Path, n_landmarks: int, random_state: int) -> Landmarks:
    """Landmarks of the stored vectors, drawn by the inverse of their density.

    Every class gets landmarks in proportion to its rows, at least one. Densities are looked up for eight
    candidates per landmark, drawn at random: time and memory do not grow with the rows.

    Parameters
    ----------
    state : state folder of ``neighbours``.
    n_landmarks : how many to choose, >= 1; fewer where there are fewer rows.
    random_state : int, of both draws.

    Raises
    ------
    OperatorError
        ``state`` has no graph.
    """
    params, parts = _read(state)
    random = np.random.default_rng(random_state)
    rows = np.array([part["rows"] for part in parts])
    seats = np.minimum(rows, np.maximum(1, np.floor(n_landmarks * rows / rows.sum()).astype(np.int64)))
    chosen: list[tuple[Ids, Float32]] = []
    for part, wanted in zip(parts, seats.tolist(), strict=True):
        opened = Part(state, part["part"], params)
        size = min(part["rows"], CANDIDATES * wanted)
        candidates = np.sort(random.choice(part["rows"], size, replace=False))
        sparse = 1.0 / density(opened.neighbours_of(candidates))
        drawn = np.sort(random.choice(candidates, wanted, replace=False, p=sparse / sparse.sum()))
        chosen.append(opened.rows_at(drawn))
    row_ids, vectors = (np.concatenate(values) for values in zip(*chosen, strict=True))
    order = np.argsort(row_ids, kind="stable")
    return Landmarks(row_ids[order], vectors[order])


def _read(state: Path) -> tuple[NeighboursParams, list[dict[str, Any]]]:
    path = state / GRAPH
    if not path.exists():
        raise OperatorError(f"{state}: holds no neighbour graph. Run the operator `neighbours` first.")
    record = json.loads(path.read_text("utf-8"))
    return NeighboursParams(**record["params"]), record["parts"]
