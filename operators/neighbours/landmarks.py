"""What later operators take from the state that ``neighbours`` left: density of rows, and landmarks.

A Nystrom approximation (Williams, Seeger 2001) is as good as its landmarks cover the space. Drawn at random
they follow the data and crowd where rows are many; drawn by the inverse of the density they also
reach where rows are few, which is where minorities are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.base import OperatorError
from operators.neighbours.graph import Float32, Ids
from operators.neighbours.params import NeighboursParams
from operators.neighbours.parts import Part
from operators.neighbours.uses import density

GRAPH = "graph.json"
CANDIDATES = 8  # rows whose density is looked up, per landmark


@dataclass(frozen=True, eq=False)
class Landmarks:
    """Chosen rows: (m,) int64 ``row_ids``, ascending, and their (m, p) float32 ``vectors``."""

    row_ids: Ids
    vectors: Float32


def row_density(state: Path, row_ids: Ids, part: int = -1) -> npt.NDArray[np.float64]:
    """How crowded the surroundings of some rows are; see :func:`operators.neighbours.density`.

    Their neighbours are looked up again among all rows: the state holds rows and index, not the edges.

    Parameters
    ----------
    state : state folder of ``neighbours``.
    row_ids : (m,) rows of one part.
    part : class index, or -1 where the graph is one over all classes.

    Returns
    -------
    (m,) float64, mean 1.

    Raises
    ------
    OperatorError
        ``state`` has no such graph, or a row is not in it.
    """
    params, _ = _read(state)
    opened = Part(state, part, params)
    return density(opened.neighbours_of(opened.positions(row_ids)))


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
