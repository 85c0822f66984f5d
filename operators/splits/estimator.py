"""Constrained kernel k-means as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from operators.arrays import Float64, Int64, Mask
from operators.distances import square_distances
from operators.splits.features import Kernel, check_gamma, make_map
from operators.splits.in_memory import FeatureRows, GramRows, InMemory, best_start
from operators.splits.kernel import Fit, iterate, mmd_of, random_mmd
from operators.splits.selection import Tolerance, make_selector
from operators.splits.start import SplitSettings, Way, generator, make_start, sample_rows

LARGEST_GRAM = 2**31
"""Bytes of the largest kernel matrix that is held."""


class ConstrainedKernelKMeans(BaseEstimator):  # type: ignore[misc]
    """A validation part as far from the training part as it can be, in maximum mean discrepancy (MMD).

    Two clusters by kernel k-means, one of which, the validation part, holds a given share of every group of
    rows: of every label, or of every pair of label and domain. Each step finds the optimum of the paper's
    linear program in closed form. Up to 5,000 rows, all starts run on all rows. Beyond, they run on a sample
    of that many and the best one goes on with all rows (Bradley and Fayyad 1998).

    Source: Napoli and White, Clustering-Based Validation Splits for Domain Generalisation, 2024.

    Parameters
    ----------
    holdout : share of each group for validation, in (0, 1), default 0.2.
    kernel : "linear" (default) or "rbf", exp(-gamma |z - z'|^2), of standardised rows z.
    gamma : default 1 / median |z - z'|^2. Only for "rbf".
    landmarks : None (default): the exact kernel. A number, or (q, d) rows in the units of X: Nystrom
        features, O(n q) memory instead of O(n^2). Only for "rbf": the linear kernel has exact features.
    tolerance : tau >= 0, or {group: tau_g}: a group may give (1 - tau) to (1 + tau) times its share;
        default 0. Then sizes are free, and what is maximised is v t / n MMD^2 for parts of v and t rows.
    n_init : starts, default 10; the lowest objective is kept, which is the largest MMD at fixed sizes.
        Starts differ much: see ``start_mmds_``.
    random_state : int, RandomState or None: of starts, sample and landmarks.
    landmarks_by : "uniform" (default), "kmeans" or "density"; see
        :func:`operators.splits.start.pick_landmarks`.
    standardize : centre and scale every feature first (default).
    max_iter : most steps of a start, default 100.

    Attributes
    ----------
    validation_mask_ : (n,) bool.
    mmd_ : MMD between the two parts, |mean phi(validation) - mean phi(training)|.
    random_mmd_ : its root mean square over random splits of the same size: the floor of ``mmd_``.
    objective_ : per step, sum |phi - centroid|^2 over all rows, never rising.
    inertia_ : the last of them.
    start_mmds_ : (n_init,) MMD that each start ended with; on the sample where there are more rows.
    gamma_ : gamma used; 0 for "linear".
    feature_map_ : :class:`operators.splits.features.FeatureMap`; None for the full RBF kernel.
    n_features_in_ : int.

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
        landmarks_by: Way = "uniform",
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
        groups : (n,) group of each row, any integers or strings; None: all rows are one group. Or (n, k): k
            overlapping groupings, such as label and domain, each of which keeps its own shares (found by a
            linear program at every step; in memory only).

        Raises
        ------
        ValueError
            A parameter is out of range, no split has such shares, or the kernel is degenerate.
        """
        X = validate_data(self, X, dtype=[np.float32, np.float64], ensure_min_samples=2)
        self._check(X.shape)
        codes, tolerance = encode(groups, len(X), self.tolerance)
        random = generator(self.random_state)
        with threadpool_limits(limits=1):
            fit, rows, ends = self._split(X, codes, tolerance, random)
        self.validation_mask_ = fit.chosen.handle
        self.mmd_ = mmd_of(rows, fit.chosen)
        self.random_mmd_ = random_mmd(rows.scatter, rows.n, fit.chosen.count)
        self.objective_ = np.array([rows.scatter - value for value in fit.between])
        self.inertia_ = float(self.objective_[-1])
        self.start_mmds_ = np.array(ends)
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
            start, _, ends = best_start(rows, self.n_init, self.max_iter, random)
            return iterate(rows, start, self.max_iter), rows, ends
        self.feature_map_, start, ends = make_start(sample, len(X), settings, random)
        self.gamma_ = self.feature_map_.gamma
        rows = FeatureRows(self.feature_map_.features(X), selector)
        return iterate(rows, start, self.max_iter), rows, ends

    def _settings(self, tolerance: Tolerance) -> SplitSettings:
        landmarks = self.landmarks
        if landmarks is not None:
            many = np.ndim(landmarks) > 0
            landmarks = check_array(landmarks, dtype=np.float64) if many else int(landmarks)  # type: ignore[arg-type]
        return SplitSettings(
            self.holdout,
            self.kernel,
            self.gamma,
            landmarks,
            self.landmarks_by,
            self.standardize,
            tolerance,
            self.n_init,
            self.max_iter,
        )

    def _check(self, shape: tuple[int, ...]) -> None:
        if not 0 < self.holdout < 1:
            raise ValueError(f"holdout is {self.holdout!r}: it must be a share between 0 and 1, such as 0.2.")
        if self.kernel not in ("linear", "rbf"):
            raise ValueError(f"kernel is {self.kernel!r}: there are 'linear' and 'rbf'.")
        if self.kernel == "linear" and (self.gamma is not None or self.landmarks is not None):
            raise ValueError(
                "gamma and landmarks are of the rbf kernel; kernel is 'linear', whose features are exact. "
                "Leave them out, or set kernel='rbf'."
            )
        if min(self.n_init, self.max_iter) < 1:
            raise ValueError(
                f"n_init is {self.n_init} and max_iter {self.max_iter}: both must be at least 1."
            )
        if self.landmarks is not None and np.ndim(self.landmarks) == 0 and int(self.landmarks) < 1:  # type: ignore[arg-type]
            raise ValueError(f"landmarks is {self.landmarks!r}: it must be 1 or more, such as 500.")
        if self.kernel == "rbf" and self.landmarks is None and 8 * shape[0] ** 2 > LARGEST_GRAM:
            raise ValueError(
                f"the kernel matrix of {shape[0]:,} rows would take {8 * shape[0] ** 2 / 2**30:.0f} GiB. Set "
                "landmarks, such as 500, to approximate it."
            )


def full_kernel(
    X: npt.NDArray[Any], sample: npt.NDArray[Any], gamma: float | None, standardize: bool
) -> tuple[Float64, float]:
    """Return the RBF kernel matrix (n, n) of the standardised rows, and its gamma."""
    scaled = make_map(sample, "linear", standardize=standardize)
    z = ((X - scaled.mean) / scaled.scale).astype(np.float64)
    chosen = check_gamma((sample - scaled.mean) / scaled.scale, gamma)
    gram = square_distances(z)
    gram *= -chosen
    return np.exp(gram, out=gram), chosen


def encode(groups: Any, n: int, tolerance: Tolerance) -> tuple[Int64, Tolerance]:
    """Return groups of any type as codes (n, k), and the tolerance by code.

    Raises ValueError for the wrong number of rows, a missing value, or a tolerance below 0.
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
        raise ValueError("tolerance by group needs one column of groups; give one number for all.")
    places = {name: place for place, name in enumerate(pairs[0][0].tolist())}
    if unknown := [name for name in tolerance if name not in places]:
        raise ValueError(f"tolerance names the group {unknown[0]!r}, which no row is in.")
    return codes, {places[name]: value for name, value in tolerance.items()}
