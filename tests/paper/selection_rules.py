"""Rules of selection that were considered beside the two that ``operators.grasp.selection`` offers.

Each returns a score for every cell of a grid; the largest wins. "Within the limits" means among the
cells that keep the limits of ``coverage``: at most 10 % noise and a second group of at least 1 %.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import minimum_spanning_tree
from sklearn.metrics import adjusted_rand_score

from operators.grasp.selection import MAX_NOISE, MIN_SAMPLES_GRID, MIN_SECOND_GROUP, group_counts
from tests.on_arrays import noise_shares, pick_cell, second_group_shares

Float: TypeAlias = npt.NDArray[np.float64]
EXCLUDED = -9.0


@dataclass(frozen=True)
class Clustered:
    """A class clustered over the grid: (n, p) vectors compared, (13, 8, n) labels, (13, 8) silhouettes."""

    vectors: Float
    labels: npt.NDArray[np.int32]
    silhouettes: Float

    @property
    def noise(self) -> Float:
        return noise_shares(self.labels)

    @property
    def limited(self) -> Any:
        """Cells within the limits, or all that have a silhouette where none is."""
        scored = self.silhouettes > -1
        kept = scored & (self.noise <= MAX_NOISE) & (second_group_shares(self.labels) >= MIN_SECOND_GROUP)
        return kept if kept.any() else scored


def silhouette(case: Clustered) -> Float:
    return pick_cell(case.labels, case.silhouettes, "silhouette").scores


def coverage(case: Clustered) -> Float:
    return pick_cell(case.labels, case.silhouettes, "coverage").scores


def silhouette_within_noise_budget(case: Clustered) -> Float:
    kept = (case.noise <= MAX_NOISE) & (case.silhouettes > -1)
    return np.where(kept, case.silhouettes, EXCLUDED) if kept.any() else case.silhouettes


def silhouette_within_limits(case: Clustered) -> Float:
    return np.where(case.limited, case.silhouettes, EXCLUDED)


def coverage_without_limits(case: Clustered) -> Float:
    s = case.silhouettes
    return np.where(s > 0, s * (1 - case.noise) ** 2, s)


def small_min_samples(case: Clustered) -> Float:
    """Silhouette among ``min_samples`` of at most 10 % of the class."""
    small = np.array(MIN_SAMPLES_GRID) <= max(0.1 * case.labels.shape[2], MIN_SAMPLES_GRID[0])
    return np.where(small & (case.silhouettes > -1), case.silhouettes, EXCLUDED)


def stability(case: Clustered) -> Float:
    """Mean ARI with the cells one step away, within the limits."""
    total, count = np.zeros_like(case.silhouettes), np.zeros_like(case.silhouettes)
    for e, m in np.ndindex(total.shape):
        ahead = [(e + 1, m)] * (e + 1 < total.shape[0]) + [(e, m + 1)] * (m + 1 < total.shape[1])
        for other in ahead:
            score = adjusted_rand_score(case.labels[e, m], case.labels[other])
            for cell in ((e, m), other):
                total[cell] += score
                count[cell] += 1
    return np.where(case.limited, total / count, EXCLUDED)


def consensus(case: Clustered) -> Float:
    """Mean ARI with all cells within the limits, among these."""
    cells = np.argwhere(case.limited)
    scores = np.full(case.silhouettes.shape, EXCLUDED)
    if len(cells):
        found, which, count = np.unique(
            case.labels[case.limited], axis=0, return_inverse=True, return_counts=True
        )
        agreement = np.array([[adjusted_rand_score(a, b) for a in found] for b in found])
        scores[case.limited] = (agreement @ count / count.sum())[which.reshape(-1)]
    return scores


def persistence(case: Clustered) -> Float:
    """Steps of eps over which the number of groups stays, within the limits; ties by silhouette."""
    groups = group_counts(case.labels)
    steps = np.zeros(groups.shape)
    for m in range(groups.shape[1]):
        starts = np.flatnonzero(np.diff(groups[:, m], prepend=-1))
        lengths = np.diff(np.append(starts, len(groups)))
        steps[:, m] = np.repeat(lengths, lengths)
    return np.where(case.limited, steps + case.silhouettes / 100, EXCLUDED)


def density_validity(case: Clustered) -> Float:
    """DBCV (Moulavi et al. 2014), within the limits, with DBSCAN's core distances.

    Mean over rows of (separation - sparseness) / max of both, noise counting 0. Sparseness is the longest
    edge of the group's minimum spanning tree under mutual reachability distance, separation the
    smallest such distance to another group.
    """
    distance = np.maximum(1 - case.vectors @ case.vectors.T, 1e-9)
    ordered = np.sort(distance, axis=1)
    scores = np.full(case.silhouettes.shape, EXCLUDED)
    for m in np.flatnonzero(case.limited.any(axis=0)):
        core = ordered[:, min(MIN_SAMPLES_GRID[m], len(ordered)) - 1]
        reach = np.maximum(distance, np.maximum(core[:, None], core))
        known: dict[bytes, float] = {}
        for e in np.flatnonzero(case.limited[:, m]):
            labels = case.labels[e, m]
            key = labels.tobytes()
            known[key] = known[key] if key in known else _validity(reach, labels)
            scores[e, m] = known[key]
    return scores


def _validity(reach: Float, labels: npt.NDArray[np.int32]) -> float:
    total = 0.0
    for group in range(labels.max() + 1):
        own, other = np.flatnonzero(labels == group), np.flatnonzero((labels != group) & (labels >= 0))
        if len(other):
            sparseness = minimum_spanning_tree(reach[np.ix_(own, own)]).max()
            separation = reach[np.ix_(own, other)].min()
            total += len(own) * (separation - sparseness) / max(separation, sparseness)
    return total / len(labels)


CANDIDATES: dict[str, Callable[[Clustered], Float]] = {
    "silhouette (the paper's)": silhouette,
    "silhouette, min_samples <= 10 % of rows": small_min_samples,
    "silhouette, noise <= 10 %": silhouette_within_noise_budget,
    "silhouette within the limits": silhouette_within_limits,
    "stability within the limits": stability,
    "consensus within the limits": consensus,
    "persistence within the limits": persistence,
    "DBCV within the limits": density_validity,
    "coverage without limits": coverage_without_limits,
    "coverage": coverage,
}
