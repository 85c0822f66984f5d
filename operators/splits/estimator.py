"""Constrained kernel k-means as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from operators.arrays import Float64, Int64, Mask
from operators.distances import square_distances
from operators.splits.features import Kernel, centre_and_scale, check_gamma, check_kernel
from operators.splits.in_memory import FeatureRows, GramRows, InMemory, best_start
from operators.splits.kernel import Fit, iterate, mmd_of, random_mmd
from operators.splits.selection import Tolerance, make_selector
from operators.splits.start import LandmarkMethod, SplitSettings, generator, make_start, sample_rows
from operators.threads import limit_threads

MAX_GRAM_BYTES = 2**31
"""Size of the largest kernel matrix that is computed."""


class ConstrainedKernelKMeans(BaseEstimator):  # type: ignore[misc]
    """Split off a validation part that is far from the training part in maximum mean discrepancy (MMD).

    Kernel k-means finds two clusters, one of which, the validation part, holds a given share of every group
    of rows: of every label, or of every pair of label and domain. Each step finds the optimum of the paper's
    linear program in closed form.

    Source: Napoli and White, Clustering-Based Validation Splits for Domain Generalisation, 2024.

    Parameters
    ----------
    holdout : float, default 0.2
        Share of each group for validation, between 0 and 1.
    kernel : {"linear", "rbf"}, default "linear"
        Kernel of the rows z, which are standardised first; "rbf" is exp(-gamma |z - z'|^2).
    gamma : float, optional
        Parameter of "rbf". By default 1 / median |z - z'|^2.
    landmarks : int or (q, d) array, optional
        Only for "rbf". A number of landmarks, or landmarks in the units of X, for Nystrom features with
        O(n q) memory. By default the exact kernel matrix is computed, with O(n^2) memory.
    tolerance : float or {group: float}, default 0
        A group may give (1 - tau) to (1 + tau) times its share. If tau > 0 the sizes v and t of the parts are
        free, and v t / (v + t) MMD^2 is maximised instead of the MMD.
    n_init : int, default 10
        Number of starts. The one with the lowest objective is kept, which is the one with the largest MMD
        where sizes are fixed. Starts can differ much: see ``start_mmds_``.
    random_state : int, RandomState or None, default None
        Seed of starts, sample and landmarks.
    landmarks_by : {"uniform", "kmeans", "density"}, default "uniform"
        How landmarks are chosen; see :func:`operators.splits.start.pick_landmarks`.
    standardize : bool, default True
        Centre and scale every feature first.
    max_iter : int, default 100
        Largest number of steps of a start.

    Attributes
    ----------
    validation_mask_ : (n,) bool
        True for validation rows.
    mmd_ : float
        MMD between the two parts, |mean phi(validation) - mean phi(training)|.
    random_mmd_ : float
        Root mean square of the MMD over random splits of the same sizes, to compare ``mmd_`` with.
    objective_ : (n_steps,) float64
        Sum of |phi - centroid|^2 over all rows after each step, never rising.
    inertia_ : float
        The last value of ``objective_``.
    start_mmds_ : (n_init,) float64
        MMD that each start ended with; on the sample where there are more than 5,000 rows.
    gamma_ : float
        The gamma that was used; 0 for "linear".
    feature_map_ : :class:`operators.splits.features.FeatureMap` or None
        None for the exact RBF kernel.
    n_features_in_ : int

    Notes
    -----
    With up to 5,000 rows all starts run on all rows. With more, they run on a sample of that many, and the
    best one continues with all rows (Bradley and Fayyad 1998). The result satisfies
    mmd_^2 = n / (v t) (SS - inertia_), where SS is the sum of |phi - mean|^2.

    Examples
    --------
    >>> import numpy as np
    >>> from operators.splits import ConstrainedKernelKMeans
    >>> X = np.array([[0.0], [1.0], [2.0], [9.0], [10.0]])
    >>> ConstrainedKernelKMeans(holdout=0.4, random_state=0).fit(X).validation_mask_.tolist()
    [False, False, False, True, True]
    """

    def __init__(
        self,
        holdout: float = 0.2,
        kernel: Kernel = "linear",
        gamma: float | None = None,
        landmarks: int | npt.ArrayLike | None = None,
        tolerance: Tolerance = 0.0,
        n_init: int = 10,
        random_state: Any = None,
        landmarks_by: LandmarkMethod = "uniform",
        standardize: bool = True,
        max_iter: int = 100,
    ) -> None:
        self.holdout = holdout
        self.kernel = kernel
        self.gamma = gamma
        self.landmarks = landmarks
        self.tolerance = tolerance
        self.n_init = n_init
        self.random_state = random_state
        self.landmarks_by = landmarks_by
        self.standardize = standardize
        self.max_iter = max_iter

    def fit(self, X: Any, groups: Any = None) -> ConstrainedKernelKMeans:
        """Split the rows of X.

        Parameters
        ----------
        X : (n, d) numbers, finite, n >= 2.
        groups : (n,) group of each row, integers or strings; by default all rows are one group. Or (n, 2):
            two overlapping groupings, such as label and domain, each of which keeps its own shares. These
            need a linear program at every step.

        Raises
        ------
        ValueError
            A parameter is out of range, no split has such shares, or the kernel is degenerate.
        """
        X = validate_data(self, X, dtype=[np.float32, np.float64], ensure_min_samples=2)
        self._check(X.shape)
        codes, tolerance = encode(groups, len(X), self.tolerance)
        random = generator(self.random_state)
        with limit_threads(1):
            fit, rows, start_mmds = self._split(X, codes, tolerance, random)
        self.validation_mask_ = fit.chosen.selection
        self.mmd_ = mmd_of(rows, fit.chosen)
        self.random_mmd_ = random_mmd(rows.scatter, rows.n, fit.chosen.count)
        self.objective_ = np.array([rows.scatter - value for value in fit.between])
        self.inertia_ = float(self.objective_[-1])
        self.start_mmds_ = np.array(start_mmds)
        return self

    def fit_predict(self, X: Any, groups: Any = None) -> Mask:
        """Fit, and return ``validation_mask_`` (n,)."""
        mask: Mask = self.fit(X, groups).validation_mask_
        return mask

    def _split(
        self, X: npt.NDArray[Any], codes: Int64, tolerance: Tolerance, random: np.random.Generator
    ) -> tuple[Fit[Mask], InMemory, list[float]]:
        selector = make_selector(codes, self.holdout, tolerance)
        settings = self._settings(tolerance)

        def sample(seed: int) -> tuple[npt.NDArray[Any], Int64]:
            rows = sample_rows(np.arange(len(X)), seed)
            return X[rows], codes[rows]

        rows: InMemory
        if self.kernel == "rbf" and self.landmarks is None:
            drawn, _ = sample(int(random.integers(2**63)))
            gram, self.gamma_ = full_kernel(X, drawn, self.gamma, self.standardize)
            self.feature_map_ = None
            rows = GramRows(gram, selector)
            start, _, start_mmds = best_start(rows, self.n_init, self.max_iter, random)
            return iterate(rows, start, self.max_iter), rows, start_mmds
        self.feature_map_, start, start_mmds = make_start(sample, len(X), settings, random)
        self.gamma_ = self.feature_map_.gamma
        rows = FeatureRows(self.feature_map_.features(X), selector)
        return iterate(rows, start, self.max_iter), rows, start_mmds

    def _settings(self, tolerance: Tolerance) -> SplitSettings:
        landmarks = self.landmarks
        if landmarks is not None:
            many = np.ndim(landmarks) > 0
            landmarks = check_array(landmarks, dtype=np.float64) if many else int(landmarks)  # type: ignore[arg-type]
        return SplitSettings(
            holdout=self.holdout,
            kernel=self.kernel,
            gamma=self.gamma,
            landmarks=landmarks,
            landmarks_by=self.landmarks_by,
            standardize=self.standardize,
            tolerance=tolerance,
            n_init=self.n_init,
            max_iter=self.max_iter,
        )

    def _check(self, shape: tuple[int, ...]) -> None:
        if not 0 < self.holdout < 1:
            raise ValueError(f"holdout is {self.holdout!r}: it must be a share between 0 and 1, such as 0.2.")
        check_kernel(self.kernel)
        if self.kernel == "linear" and (self.gamma is not None or self.landmarks is not None):
            raise ValueError(
                "gamma and landmarks belong to the rbf kernel, but kernel is 'linear'. Leave them out, "
                "or set kernel='rbf'."
            )
        if min(self.n_init, self.max_iter) < 1:
            raise ValueError(
                f"n_init is {self.n_init} and max_iter {self.max_iter}: both must be at least 1."
            )
        if self.landmarks is not None and np.ndim(self.landmarks) == 0 and int(self.landmarks) < 1:  # type: ignore[arg-type]
            raise ValueError(f"landmarks is {self.landmarks!r}: it must be 1 or more, such as 500.")
        if self.kernel == "rbf" and self.landmarks is None and 8 * shape[0] ** 2 > MAX_GRAM_BYTES:
            raise ValueError(
                f"the kernel matrix of {shape[0]:,} rows would take {8 * shape[0] ** 2 / 2**30:.0f} GiB. Set "
                "landmarks, such as 500, to approximate it."
            )


def full_kernel(
    X: npt.NDArray[Any], sample: npt.NDArray[Any], gamma: float | None, standardize: bool
) -> tuple[Float64, float]:
    """Return the RBF kernel matrix (n, n) of the standardised rows, and its gamma."""
    mean, scale = centre_and_scale(np.asarray(sample, np.float64), standardize)
    z = ((X - mean) / scale).astype(np.float64)
    chosen = check_gamma((sample - mean) / scale, gamma)
    gram = square_distances(z)
    gram *= -chosen
    return np.exp(gram, out=gram), chosen


def encode(groups: Any, n: int, tolerance: Tolerance) -> tuple[Int64, Tolerance]:
    """Return groups of any type as codes (n, k) from 0, and the tolerance by code.

    Raises ValueError for the wrong number of rows, an unknown group, or a tolerance below 0.
    """
    found = np.zeros((n, 1)) if groups is None else np.asarray(groups)
    found = found[:, None] if found.ndim == 1 else found
    if found.shape[0] != n or found.ndim != 2 or found.shape[1] not in (1, 2):
        raise ValueError(
            f"groups have the shape {np.shape(groups)} for {n} rows: give one group per row, or two columns "
            "of overlapping groupings."
        )
    pairs = [np.unique(column, return_inverse=True) for column in found.T]
    codes = np.column_stack([code for _, code in pairs]).astype(np.int64)
    values = tolerance.values() if isinstance(tolerance, Mapping) else [tolerance]
    if any(not value >= 0 for value in values):
        raise ValueError(f"tolerance is {tolerance!r}: it must be 0 or more, such as 0.1.")
    if not isinstance(tolerance, Mapping):
        return codes, tolerance
    if codes.shape[1] > 1:
        raise ValueError("tolerance by group needs one column of groups. Give one number for both columns.")
    places = {name: place for place, name in enumerate(pairs[0][0].tolist())}
    if unknown := [name for name in tolerance if name not in places]:
        raise ValueError(f"tolerance names the group {unknown[0]!r}, but no row has it. Leave it out.")
    return codes, {places[name]: value for name, value in tolerance.items()}
