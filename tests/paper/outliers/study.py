"""The verdict and cleanlab on one problem: area under precision-recall, and what each of them marks."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from operators.outliers.assessment import assess
from operators.outliers.verdict import fit
from tests.paper.outliers.problems import Array, Problem


def compared(problem: Problem, seed: int) -> dict[str, dict[str, float]]:
    """Return the figures of ``cleanlab`` and ``verdict`` on a problem.

    cleanlab gets the held-out probabilities of a 5-fold logistic regression on standardised features; it
    marks by ``find_label_issues`` and ranks by self-confidence, with its defaults.
    """
    from cleanlab.filter import find_label_issues  # type: ignore[import-not-found]

    X, y, ids = problem.X, problem.y, np.arange(len(problem.y))
    started = time.process_time()
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    p = cross_val_predict(model, X, y, cv=folds, method="predict_proba")
    theirs = figures(find_label_issues(y, p, n_jobs=1), -p[ids, y], problem)
    theirs["seconds"] = time.process_time() - started
    theirs["AP of trees"] = _trees_area(problem, folds)
    started = time.process_time()
    state = fit(X, y, ids, seed=seed)
    found = assess(state, X, y, ids)
    ours = figures(found.is_outlier, found.score, problem)
    ours["seconds"] = time.process_time() - started
    ours |= {"stated precision": state.estimates.precision, "stated recall": state.estimates.recall}
    return {"cleanlab": theirs, "verdict": ours}


def _trees_area(problem: Problem, folds: StratifiedKFold) -> float:
    """Return the area of self-confidence by boosted trees, cleanlab's ranking with another model."""
    if not problem.bad.any():
        return float("nan")
    trees = HistGradientBoostingClassifier(max_iter=60, max_depth=4, early_stopping=False)
    p = cross_val_predict(trees, problem.X, problem.y, cv=folds, method="predict_proba")
    return float(average_precision_score(problem.bad, -p[np.arange(len(p)), problem.y]))


def figures(marked: Array, score: Array, problem: Problem) -> dict[str, float]:
    """Return precision, recall, marked shares of all rows and of the minority, and the area (AP)."""
    found: dict[str, Any] = {"marked": marked.mean(), "minority": marked[problem.minority].mean()}
    found |= {"AP": np.nan, "precision": np.nan, "recall": np.nan, "covered": np.nan}
    if problem.bad.any():
        found["AP"] = average_precision_score(problem.bad, score)
        found["recall"] = marked[problem.bad].mean()
        found["covered"] = marked[problem.covered].mean()
        found["precision"] = problem.bad[marked].mean() if marked.any() else np.nan
    return {name: float(value) for name, value in found.items()}
