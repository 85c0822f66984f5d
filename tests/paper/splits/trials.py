"""One trial: a domain is set aside, the others are split in every way, models are chosen and tried on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from operators.splits import ConstrainedKernelKMeans
from tests.on_arrays import mmd
from tests.paper.splits.problems import Domains

Array = npt.NDArray[Any]
HOLDOUT = 0.2
RANDOM, ORACLE = "random", "oracle"
CLUSTERS: dict[str, tuple[Any, bool]] = {
    "linear k-means, label": ("linear", False),
    "linear k-means, label x domain": ("linear", True),
    "RBF k-means, label": ("rbf", False),
    "RBF k-means, label x domain": ("rbf", True),
}
SPLITS = (RANDOM, "leave one domain out", *CLUSTERS)


def candidates(X: Array) -> list[Any]:
    """Sixteen models to choose from: support vector machines, logistic regression, nearest neighbours."""
    scale = 1 / (X.shape[1] * X.var())
    found: list[Any] = [SVC(C=C, gamma=g * scale) for C in (1, 10) for g in (0.03, 0.3, 1, 5)]
    found += [make_pipeline(StandardScaler(), LogisticRegression(C=C)) for C in (1e-3, 1e-2, 0.1, 1)]
    return found + [KNeighborsClassifier(k) for k in (1, 5, 15, 45)]


def validation_mask(split: str, X: Array, y: Array, domain: Array, seed: int) -> Array:
    """(n,) validation rows of the development rows."""
    random = np.random.default_rng(seed)
    if split == RANDOM:
        mask = np.zeros(len(y), bool)
        for label in np.unique(y):
            rows = np.flatnonzero(y == label)
            mask[random.choice(rows, round(HOLDOUT * len(rows)), replace=False)] = True
        return mask
    if split not in CLUSTERS:
        return domain == random.choice(np.unique(domain))
    kernel, by_domain = CLUSTERS[split]
    groups = 100 * y + domain if by_domain else y
    return ConstrainedKernelKMeans(HOLDOUT, kernel, random_state=seed).fit_predict(X, groups)


def trial(data: Domains, test: int, seed: int) -> dict[str, dict[str, float]]:
    """Split -> accuracy of the model it chooses, that of the oracle's choice of the same models, MMD.

    The oracle chooses by one half of the unseen domain; all accuracies are of the other half. Models that tie
    in validation count by their mean.
    """
    unseen = np.flatnonzero(data.domain == test)
    order = np.random.default_rng(seed).permutation(unseen)
    shown, scored = order[: len(order) // 2], order[len(order) // 2 :]
    inside = data.domain != test
    X, y, domain = data.X[inside], data.y[inside], data.domain[inside]
    z = StandardScaler().fit_transform(X)
    found: dict[str, dict[str, float]] = {}
    for split in SPLITS:
        mask = validation_mask(split, X, y, domain, seed)
        models = [model.fit(X[~mask], y[~mask]) for model in candidates(X)]
        judged, known, scores = (
            np.array([(model.predict(rows) == classes).mean() for model in models])
            for rows, classes in (
                (X[mask], y[mask]),
                (data.X[shown], data.y[shown]),
                (data.X[scored], data.y[scored]),
            )
        )
        found[split] = {
            "accuracy": chosen(judged, scores),
            "oracle": chosen(known, scores),
            "validation accuracy": float(judged.max()),
            "mmd, linear": mmd(z, mask, "linear"),
            "mmd, rbf": mmd(z, mask, "rbf"),
        }
    return found


def chosen(judged: Array, scores: Array) -> float:
    """Mean score of the models that are judged best."""
    return float(scores[judged == judged.max()].mean())
