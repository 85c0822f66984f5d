"""One data set, one seed: every method's labels against the true ones; one setting of lambda likewise."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.io import loadmat
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from engine.core.json_files import write_json
from operators.dckm import DecorrelatedKMeans, DecorrelationWeights
from tests.paper.data_sets import SkippedError, data_folder

ROOT = Path(__file__).resolve().parents[3]
KEPT = ROOT / "build" / "paper"
SETS = ("dslr", "webcam", "OH1")
K = 10
STATED = (0.01, 10.0)
"""lambda1 and lambda2 in the paper's units."""
LAMBDA3 = 1.0
SCALE = 4.0
"""The paper's features are 0 or 1, ours -1 or +1: the clusters' error and the balance cost of equation 7
are 4 times as large. With lambda2 and lambda3 4 times as large too, so is the whole objective, and its
minimum is the paper's."""
UNSCALED = (0.01, 2.5), 0.25
"""What (0.01, 10) and 1 on features of -1 and +1 are in the paper's units."""
DROPPED_ABOVE = 0.7
CODE = ("balance", "estimator", "features", "kernel", "steps")
"""Modules of ``operators.dckm`` that figures depend on."""
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Data:
    """Rows X (n, d), -1 or +1, and true classes (n,)."""

    X: Array
    y: Array

    def scores(self, labels: Array) -> dict[str, float]:
        """NMI and ARI."""
        return {
            "nmi": float(normalized_mutual_info_score(self.y, labels)),
            "ari": float(adjusted_rand_score(self.y, labels)),
        }


def load(name: str) -> Data:
    """Raises SkippedError where the folder of data is not there."""
    path = data_folder() / "dckm" / f"{name}.mat"
    if not path.exists():
        raise SkippedError(f"there is no file dckm/{path.name} in the folder of data")
    found = loadmat(path)
    return Data(found["X_train"].astype(np.float32), found["label"].ravel())


def lloyd_from_partition(X: Array, seed: int, weight: Array | None = None) -> Array:
    """(n,) labels of Lloyd's k-means, started from a random partition as DCKM is."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(K, size=len(X))
    weight = np.ones(len(X)) if weight is None else weight
    member = weight[:, None] * np.eye(K)[labels]
    start = (member.T @ X) / np.maximum(member.sum(axis=0), 1e-12)[:, None]
    found = KMeans(K, init=start, n_init=1, max_iter=100).fit(X, sample_weight=weight)
    return np.asarray(found.labels_)


def without_twins(X: Array) -> Array:
    """Columns whose correlation with every kept column before them is at most .7 in absolute value."""
    correlated = np.abs(np.corrcoef(X.T)) > DROPPED_ABOVE
    kept: list[int] = []
    for column in range(X.shape[1]):
        if not correlated[column, kept].any():
            kept.append(column)
    return X[:, kept]


def dckm(
    data: Data,
    seed: int,
    lambdas: tuple[float, float] = STATED,
    init: Any = "random",
    lambda3: float = LAMBDA3,
) -> dict[str, Any]:
    """Scores, effective sample size as a share of n, correlation before and after, objective.

    ``lambdas`` and ``lambda3`` are in the paper's units.
    """
    scaled = lambdas[0], SCALE * lambdas[1], SCALE * lambda3
    model = DecorrelatedKMeans(K, *scaled, init=init, random_state=seed).fit(data.X)
    return {
        **data.scores(model.labels_),
        "share": model.effective_sample_size_ / len(data.y),
        "before": model.correlation_before_,
        "after": model.correlation_after_,
        "objective": float(model.objective_[-1]),
        "loops": model.n_iter_,
    }


def every_method(name: str, seed: int) -> dict[str, dict[str, Any]]:
    """Method -> figures."""
    data = load(name)
    X = data.X
    dec = DecorrelationWeights(STATED[0], SCALE * STATED[1], SCALE * LAMBDA3).fit(X)
    narrow = PCA(K - 1, random_state=seed).fit_transform(X)
    apart = without_twins(X)
    shuffled = np.random.default_rng(seed).integers(K, size=len(X))
    labels: dict[str, Array] = {
        "random labels": shuffled,
        "k-means": KMeans(K, init="random", n_init=1, random_state=seed).fit_predict(X),
        "k-means++": KMeans(K, n_init=1, random_state=seed).fit_predict(X),
        "Lloyd, random partition": lloyd_from_partition(X, seed),
        "PCA+KM": KMeans(K, init="random", n_init=1, random_state=seed).fit_predict(narrow),
        "PCA+KM, random partition": lloyd_from_partition(narrow, seed),
        "Drop+KM": KMeans(K, init="random", n_init=1, random_state=seed).fit_predict(apart),
        "Drop+KM, random partition": lloyd_from_partition(apart, seed),
        "Dec+KM, random partition": lloyd_from_partition(X, seed, dec.sample_weight_),
    }
    found: dict[str, dict[str, Any]] = {method: data.scores(value) for method, value in labels.items()}
    found["Dec+KM, random partition"] |= {
        "share": dec.effective_sample_size_ / len(X),
        "before": dec.correlation_before_,
        "after": dec.correlation_after_,
    }
    found["Drop+KM"]["columns"] = apart.shape[1]
    found["DCKM"] = dckm(data, seed)
    found["DCKM, k-means++"] = dckm(data, seed, init="k-means++")
    found["DCKM, lambda as in earlier pages"] = dckm(data, seed, UNSCALED[0], lambda3=UNSCALED[1])
    return found


def kept(name: str, compute: Callable[[], Any]) -> Any:
    """A JSON value from its file, or computed; an edit to DCKM or this file computes it anew."""
    digest = hashlib.sha256()
    for path in [*(ROOT / "operators" / "dckm" / f"{module}.py" for module in CODE), Path(__file__)]:
        digest.update(path.read_bytes())
    path = KEPT / f"dckm-{name}-{digest.hexdigest()[:12]}.json".replace(" ", "-")
    if not path.exists():
        write_json(path, compute())
    return json.loads(path.read_text("utf-8"))
