"""Figure 1 G: breast cancer with wrong labels in the training rows; AUC on clean rows held out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from operators.eos import SPA, EntropicOutlierSparsification, Logistic

SHARES = (0.0, 0.1, 0.3, 0.5, 0.6)
PUBLISHED = {
    "EOS + SPA": (0.995, 0.995, 0.990, 0.970, 0.928),
    "SPA": (0.993, 0.992, 0.981, 0.940, 0.867),
}
KINDS = {"redrawn": "a share of the labels is drawn anew, 0 or 1 alike: half of them come out wrong"}
PLAIN = 1e6
"""An alpha at which all weights are equal: the learner without EOS."""
ALPHAS = (0.03, 0.1, 0.3, 1.0, PLAIN)
BOXES, LABEL_WEIGHTS = (2, 4, 8), (3.0,)
L2 = (0.01, 0.1)
Ints = npt.NDArray[np.int64]
Score = Callable[[Any], float]


def wrong_labels(y: Ints, share: float, kind: str, seed: int) -> Ints:
    """Training labels with errors of a kind; see :data:`KINDS`."""
    rng = np.random.default_rng(seed)
    picked = rng.choice(len(y), round(share * len(y)), replace=False)
    noisy = y.copy()
    noisy[picked] = rng.integers(0, 2, len(picked)) if kind == "redrawn" else 1 - y[picked]
    return noisy


def evaluated(share: float, kind: str, seed: int) -> dict[str, float]:
    """Classifier -> AUC on test rows; parameters by AUC on validation rows, whose labels are right."""
    X, y = load_breast_cancer(return_X_y=True)
    split = train_test_split(X, y, test_size=0.5, random_state=seed, stratify=y)
    train, rest, y_train, y_rest = split
    valid, test, y_valid, y_test = train_test_split(
        rest, y_rest, test_size=0.5, random_state=seed, stratify=y_rest
    )
    scaler = StandardScaler().fit(train)
    train, valid, test = (scaler.transform(part) for part in (train, valid, test))
    noisy = wrong_labels(y_train, share, kind, seed)

    def score(rows: Any, labels: Ints) -> Score:
        return lambda model: float(roc_auc_score(labels, ranks(model, rows)))

    found = {}
    for name, fits in classifiers(train, noisy, seed).items():
        best = max(fits, key=score(valid, y_valid))
        found[name] = score(test, y_test)(best)
    return found


def ranks(model: Any, rows: Any) -> npt.NDArray[np.float64]:
    """(n,) larger for the second class."""
    if isinstance(model, SVC):
        return np.asarray(model.decision_function(rows))
    return np.asarray(model.predict_proba(rows)[:, 1])


def classifiers(X: Any, y: Ints, seed: int) -> Mapping[str, Iterable[Any]]:
    """Name -> fits, one for each setting of a small grid."""

    def grid(make: Callable[..., Any], values: Iterable[Any]) -> Iterable[Any]:
        return (make(value).fit(X, y) for value in values)

    learners = [SPA(k, weight) for k, weight in product(BOXES, LABEL_WEIGHTS)]
    settings = [Logistic(l2) for l2 in L2]
    return {
        "EOS + SPA": eos(learners, ALPHAS, X, y, seed),
        "EOS + SPA, alpha auto": eos(learners, ("auto",), X, y, seed),
        "SPA": eos(learners, (PLAIN,), X, y, seed),
        "EOS + logistic": eos(settings, ALPHAS, X, y, seed),
        "logistic": eos(settings, (PLAIN,), X, y, seed),
        "logistic, scikit-learn": grid(lambda c: LogisticRegression(C=c, max_iter=1000), (0.01, 0.1, 1.0)),
        "SVM, RBF": grid(lambda c: SVC(C=c), (0.1, 1.0, 10.0)),
        "random forest": grid(
            lambda n: RandomForestClassifier(100, min_samples_leaf=n, random_state=seed), (1, 5, 20)
        ),
        "gradient boosting": grid(
            lambda n: HistGradientBoostingClassifier(max_iter=n, max_leaf_nodes=7, random_state=seed),
            (20, 60),
        ),
        "nearest neighbours": grid(KNeighborsClassifier, (5, 15, 45)),
        "naive Bayes": grid(lambda v: GaussianNB(var_smoothing=v), (1e-9, 1e-3, 1e-1)),
    }


def eos(learners: list[Any], alphas: Iterable[Any], X: Any, y: Ints, seed: int) -> Iterable[Any]:
    """Fits of every learner at every alpha, one start each."""
    for learner, alpha in product(learners, alphas):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a collapse scores low and is not chosen
            yield EntropicOutlierSparsification(
                learner, alpha=alpha, random_state=seed, tol=1e-4, max_iter=30
            ).fit(X, y)
