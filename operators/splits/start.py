"""Everything that comes from a sample: feature map and first centroids. In memory and over shards alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from operators.arrays import Float32
from operators.hashing import row_hashes
from operators.splits.assignment_lp import make_selector
from operators.splits.features import FeatureMap, Kernel, make_map
from operators.splits.hashing import Ints
from operators.splits.in_memory import FeatureRows, best_start
from operators.splits.kernel import Pair
from operators.splits.landmarks import Way, pick_landmarks
from operators.splits.selection import Tolerance

SAMPLE = 5_000
"""Rows on which starts are tried; also those that standardisation, gamma and landmarks come from."""


@dataclass(frozen=True, eq=False)
class Settings:
    """Parameters of a fit; see :class:`operators.splits.ConstrainedKernelKMeans`."""

    holdout: float
    kernel: Kernel
    gamma: float | None
    landmarks: int | npt.NDArray[Any] | None
    landmarks_by: Way
    standardize: bool
    tolerance: Tolerance
    n_init: int
    max_iter: int

    def map_of(self, sample: npt.NDArray[Any], seed: int) -> FeatureMap:
        """The feature map of a sample (s, d). Raises ValueError for a degenerate kernel."""
        landmarks = self.landmarks
        if self.kernel == "rbf" and isinstance(landmarks, int):
            landmarks = pick_landmarks(sample, landmarks, self.landmarks_by, seed, self.standardize)
        return make_map(sample, self.kernel, self.gamma, landmarks, self.standardize)


class Begun(NamedTuple):
    """Feature map, first centroids, and the MMD that each start ended with on the sample."""

    by: FeatureMap
    centroids: Pair
    ends: list[float]


def begin(
    sample: Callable[[int], tuple[npt.NDArray[Any], Ints]],
    n: int,
    settings: Settings,
    random: np.random.Generator,
) -> Begun:
    """Feature map and first centroids for n rows.

    ``sample`` gives, for a seed, features and (s, k) groups of the rows :func:`sample_rows` picks.
    """
    X, codes = sample(int(random.integers(2**63)))
    by = settings.map_of(X, int(random.integers(2**31)))
    centroids, ends = _try_starts(by.features(X), codes, settings, random, whole=len(X) == n)
    return Begun(by, centroids, ends)


def generator(random_state: Any) -> np.random.Generator:
    """Make the generator of all draws; ``random_state`` as in scikit-learn."""
    from sklearn.utils import check_random_state

    return np.random.default_rng(check_random_state(random_state).randint(2**31))


def sample_rows(row_ids: Ints, seed: int) -> Ints:
    """Positions, ascending, of the 5,000 rows with the smallest hashes; of all where there are no more."""
    if len(row_ids) <= SAMPLE:
        return np.arange(len(row_ids))
    hashes = row_hashes(row_ids, seed)
    return np.sort(np.argpartition(hashes, SAMPLE - 1)[:SAMPLE])


def _try_starts(
    phi: Float32, codes: Ints, settings: Settings, random: np.random.Generator, *, whole: bool
) -> tuple[Pair, list[float]]:
    """Return the last centroids of the best start; its first ones if ``whole``, which records all steps."""
    names, first = np.unique(codes[:, 0], return_inverse=True)
    tolerance = settings.tolerance
    if isinstance(tolerance, Mapping):
        tolerance = {place: tolerance.get(int(name), 0.0) for place, name in enumerate(names.tolist())}
    try:
        selector = make_selector(np.column_stack([first, codes[:, 1:]]), settings.holdout, tolerance)
    except ValueError:
        if whole:
            raise
        # Groups so small that the sample holds none of their shares: a start need not heed them.
        selector = make_selector(np.zeros((len(phi), 1), np.int64), settings.holdout, 0.0)
    start, fit, ends = best_start(FeatureRows(phi, selector), settings.n_init, settings.max_iter, random)
    return (start if whole else fit.centroids), ends
