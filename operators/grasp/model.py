"""What group inference keeps of a class: enough to place new rows in its groups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64, Index, Matrix
from operators.dbscan.points import Metric, blocks, unit_rows

NOISE = -1
BLOCK = 1024


@dataclass(frozen=True, eq=False)
class ClassModel:
    """Core samples of one class, with their groups.

    Attributes
    ----------
    metric : as given to DBSCAN.
    eps : radius in which a core sample claims a row; infinite where the whole class is one group.
    centre : (p,) float64 subtracted before rows are compared by direction.
    cores : (m, p) gradients of core samples, as given to fit.
    labels : (m,) int32 group of each, numbered from 0 within the class.
    """

    metric: Metric
    eps: float
    centre: Float64
    cores: Matrix
    labels: npt.NDArray[np.int32]

    def assign(self, gradients: Matrix) -> npt.NDArray[np.int32]:
        """Group of the nearest core sample of each row if within eps, else -1.

        Parameters
        ----------
        gradients : (n, p), from the same model and parameters as in fit.

        Returns
        -------
        (n,) int32, numbered from 0 within the class.
        """
        if len(self.cores) == 0:
            return np.full(len(gradients), NOISE, np.int32)
        cores = self._prepared(self.cores)
        labels = np.empty(len(gradients), np.int32)
        for rows in blocks(len(gradients), BLOCK):
            X = self._prepared(gradients[rows])
            nearest = self._nearest(X, cores)
            near = self._distance(X, cores[nearest]) <= self.eps
            labels[rows] = np.where(near, self.labels[nearest], NOISE)
        return labels

    def save(self, file: Path | BinaryIO) -> None:
        """Write the model as an .npz archive."""
        fields: dict[str, Any] = {name: np.asarray(value) for name, value in vars(self).items()}
        np.savez(file, **fields)

    @classmethod
    def load(cls, file: Path | BinaryIO) -> ClassModel:
        """Read what :meth:`save` wrote."""
        with np.load(file, allow_pickle=False) as stored:
            metric: Any = str(stored["metric"])
            return cls(metric, float(stored["eps"]), stored["centre"], stored["cores"], stored["labels"])

    def _prepared(self, X: Matrix) -> Float64:
        if self.metric == "euclidean":
            return X - self.centre
        return unit_rows(X, self.centre)

    def _nearest(self, X: Float64, cores: Float64) -> Index:
        lengths = np.einsum("ij,ij->i", cores, cores) if self.metric == "euclidean" else 0.0
        return np.asarray(np.argmin(lengths - 2 * (X @ cores.T), axis=1))

    def _distance(self, A: Float64, B: Float64) -> Float64:
        if self.metric == "euclidean":
            return np.asarray(np.linalg.norm(A - B, axis=1))
        return np.asarray(np.minimum(1.0 - np.einsum("ij,ij->i", A, B), 2.0))


def sample_cores(cores: Index, labels: npt.NDArray[np.int32], limit: int, random_state: Any) -> Index:
    """At most ``limit`` of the core samples, ascending; rare groups keep all of theirs first.

    Parameters
    ----------
    cores : (m,) row numbers of core samples.
    labels : (m,) their groups.
    limit : most to keep, > 0.
    random_state : int, RandomState or None: draws within groups that are too large.
    """
    groups, sizes = np.unique(labels, return_counts=True)
    drawn = draw_cores(sizes, limit, random_state)
    kept = [cores[labels == group][some] for group, some in zip(groups, drawn, strict=True)]
    return np.sort(np.concatenate([*kept, cores[:0]]))


def draw_cores(sizes: npt.NDArray[np.intp], limit: int, random_state: Any) -> list[Index]:
    """Which core samples of each group are kept, as positions among the group's.

    Parameters
    ----------
    sizes : core samples of each group.
    limit, random_state : see :func:`sample_cores`.
    """
    if sizes.sum() <= limit:
        return [np.arange(size) for size in sizes]
    from sklearn.utils import check_random_state

    random = check_random_state(random_state)
    drawn: list[Index] = [np.empty(0, np.intp)] * len(sizes)
    left = limit
    for position, group in enumerate(np.argsort(sizes, kind="stable").tolist()):
        share = min(int(sizes[group]), left // (len(sizes) - position))
        drawn[group] = random.choice(int(sizes[group]), share, replace=False)
        left -= share
    return drawn
