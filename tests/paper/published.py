"""Adjusted Rand indices that GRASP publishes (Zeng et al. 2022), and what counts as having come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from operators.grasp.selection import MIN_SAMPLES_GRID

CLEAN, CONTAMINATED = "synthetic clean", "synthetic contaminated"
EXACT = 5e-5
CLOSE = 0.02

TABLE_5 = {
    ("features, k-means, k = 2", CLEAN): 0.5505,
    ("features, DBSCAN, Euclidean", CLEAN): 0.5923,
    ("features, DBSCAN, centred cosine", CLEAN): 0.5133,
    ("gradients, k-means, k = 2", CLEAN): 0.8409,
    ("gradients, DBSCAN, Euclidean", CLEAN): 0.7724,
    ("gradients, DBSCAN, centred cosine", CLEAN): 0.6943,
    ("features, k-means, k = 2", CONTAMINATED): 0.3631,
    ("features, DBSCAN, Euclidean", CONTAMINATED): 0.6042,
    ("features, DBSCAN, centred cosine", CONTAMINATED): 0.4946,
    ("gradients, k-means, k = 2", CONTAMINATED): 0.6436,
    ("gradients, DBSCAN, Euclidean", CONTAMINATED): 0.7237,
    ("gradients, DBSCAN, centred cosine", CONTAMINATED): 0.6944,
}
TABLE_3 = {
    ("EIIL", CLEAN): -0.0069,
    ("George", CLEAN): 0.6027,
    ("FeaSP, select: silhouette", CLEAN): 0.5133,
    ("GRASP, select: silhouette", CLEAN): 0.6943,
    ("EIIL", CONTAMINATED): -0.0043,
    ("George", CONTAMINATED): 0.4565,
    ("FeaSP, select: silhouette", CONTAMINATED): 0.4946,
    ("GRASP, select: silhouette", CONTAMINATED): 0.6944,
    ("EIIL", "COMPAS"): -0.0025,
    ("George", "COMPAS"): 0.1962,
    ("FeaSP, select: silhouette", "COMPAS"): 0.2956,
    ("GRASP, select: silhouette", "COMPAS"): 0.5453,
    ("EIIL", "CivilComments"): -0.0001,
    ("George", "CivilComments"): 0.1422,
    ("FeaSP, select: silhouette", "CivilComments"): 0.2093,
    ("GRASP, select: silhouette", "CivilComments"): 0.2639,
}


@dataclass(frozen=True)
class Claim:
    """One published figure."""

    table: int
    method: str
    data: str
    figure: float

    def verdict(self, ours: Sequence[float]) -> str:
        """Return whether the mean over our runs comes to the figure: to four digits, within .02, or not."""
        off = abs(float(np.mean(ours)) - self.figure)
        if off <= EXACT:
            return "yes, to four digits"
        return "yes, within .02" if off <= CLOSE else "**no**"


CLAIMS = tuple(
    Claim(number, method, data, figure)
    for number, table in ((5, TABLE_5), (3, TABLE_3))
    for (method, data), figure in table.items()
    if data != "CivilComments"
)

TABLE_4: dict[tuple[str, str], tuple[float, float]] = {
    ("ERM", CLEAN): (0.6667, 0.8823),
    ("DORO", CLEAN): (0.6667, 0.8823),
    ("EIIL", CLEAN): (0.6667, 0.8783),
    ("George", CLEAN): (0.5333, 0.8732),
    ("FeaSP", CLEAN): (0.6667, 0.8823),
    ("GRASP", CLEAN): (0.8, 0.8926),
    ("gDRO (oracle)", CLEAN): (0.7333, 0.8639),
    ("ERM", CONTAMINATED): (0.5333, 0.8273),
    ("DORO", CONTAMINATED): (0.6, 0.8342),
    ("EIIL", CONTAMINATED): (0.6, 0.8115),
    ("George", CONTAMINATED): (0.6, 0.8342),
    ("FeaSP", CONTAMINATED): (0.6667, 0.8823),
    ("GRASP", CONTAMINATED): (0.8, 0.8926),
    ("gDRO (oracle)", CONTAMINATED): (0.8, 0.8755),
}
"""Worst-group and average test accuracy on Synthetic."""

AS_PUBLISHED: dict[str, Any] = {
    "min_samples_grid": MIN_SAMPLES_GRID,
    "min_rows": 0,
    "min_share": 0.0,
    "fit_rows": None,
}
"""Parameters of ``GroupInference`` for the paper's grid and every cluster a group; ``select`` is left out."""
