"""How many true edges an approximate index finds, on a sample of rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from operators.neighbours.graph import Float32, Ids
from operators.neighbours.index import BLOCK, KNOBS, Index
from operators.neighbours.search import Reach, RowIndex

SAMPLE = 256
LOW = 0.95


class Recall(NamedTuple):
    """``share`` of the true edges of the sampled rows that were found; ``degree``: their true mean number."""

    share: float
    degree: float


def measure_recall(rows: RowIndex, reach: Reach, seed: int) -> Recall:
    """Compare with exact neighbours, found by flat indexes over one block of rows after the other.

    Parameters
    ----------
    rows : the n rows and their index.
    reach : which rows are neighbours. Of the nearest, any row as near as the furthest true one counts.
    seed : draws min(n, 256) rows.

    Returns
    -------
    Recall; its share is 1 where there is no edge to find. Memory: one block of rows.
    """
    n = len(rows.X)
    sample = np.sort(np.random.default_rng(seed).choice(n, min(n, SAMPLE), replace=False))
    furthest, degrees = _exact(rows, reach, sample)
    total = int(degrees.sum())
    if rows.index.kind == "flat" or not total:
        return Recall(1.0, total / len(sample))
    found = rows.search(rows.X[sample], reach, sample)
    hits = np.count_nonzero(found.distances <= np.repeat(furthest, found.degrees))
    return Recall(hits / total, total / len(sample))


def advice(kind: str, share: float) -> str:
    """What to do about a low recall; empty where it is high enough."""
    if share >= LOW:
        return ""
    return (
        f"the {kind} index finds only {share:.1%} of the true neighbours of a sample of rows, so small "
        f"clusters may be lost. Raise {KNOBS[kind]}, or use index: flat, which finds all."
    )


def _exact(rows: RowIndex, reach: Reach, sample: Ids) -> tuple[Float32, Ids]:
    """Distance to the furthest true neighbour of each sampled row, and how many there are."""
    distances, owners = [], []
    for start in range(0, len(rows.X), BLOCK):
        X = rows.X[start : start + BLOCK]
        flat = Index.build("flat", X, rows.geometry, nprobe=1, ef_search=1, seed=0)
        own = np.where((sample >= start) & (sample < start + len(X)), sample - start, -1)
        graph = RowIndex(X, rows.geometry, flat).search(rows.X[sample], reach, own)
        distances.append(graph.distances)
        owners.append(graph.sources())
    distance, owner = np.concatenate(distances), np.concatenate(owners)
    order = np.lexsort((distance, owner))
    distance, owner = distance[order], owner[order]
    if reach.n_neighbors is not None:
        rank = np.arange(len(owner)) - np.searchsorted(owner, owner, side="left")
        distance, owner = distance[rank < reach.n_neighbors], owner[rank < reach.n_neighbors]
    furthest = np.full(len(sample), -np.inf, np.float32)
    np.maximum.at(furthest, owner, distance)
    return furthest, np.bincount(owner, minlength=len(sample))
