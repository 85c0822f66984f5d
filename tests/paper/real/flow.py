"""One table through the commands of a user: ``rowsieve run``, regression on the weights, ``retrain``."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import yaml
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from tests.paper.real.tables import LABEL, TABLES

TRAIN_SHARE = 0.7
SHARDS = 4
TRUTH = "true_group"
"""Column with label x hidden attribute, named under ``truth``: no operator may read it."""
RECIPE: dict[str, Any] = {
    "cues": {},
    "groups": {"method": "cues"},
    "weights": {},
    "split": {"validation": 0.2},
}
"""The operators of the README's recipe."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """Worst true group (label x hidden attribute) and mean accuracy on test rows."""

    worst: float
    mean: float


@dataclass(frozen=True)
class Outcome:
    """What one run of one table came to."""

    scores: dict[str, Score]
    gate: float
    seconds: float


def run_table(name: str, seed: int, folder: Path) -> Outcome:
    """Carry one table and seed through the commands, in an empty folder."""
    table = TABLES[name]()
    order = np.random.default_rng(1000 + seed).permutation(len(table.frame))
    cut = int(TRAIN_SHARE * len(order))
    train, test = table.frame.iloc[order[:cut]], table.frame.iloc[order[cut:]]
    attribute = table.attribute[order[cut:]]
    truth = 2 * train[LABEL].to_numpy() + table.attribute[order[:cut]]
    train = train.assign(**{TRUTH: truth.astype(str)})
    (folder / "data").mkdir(parents=True)
    for index, rows in enumerate(np.array_split(np.arange(cut), SHARDS)):
        train.iloc[rows].to_parquet(folder / "data" / f"part-{index}.parquet", index=False)
    recipe = {
        "name": name,
        "seed": seed,
        "truth": {"group": TRUTH},
        "source": {"path": str(folder / "data" / "*.parquet"), "label": LABEL},
        "operators": RECIPE,
        "output": {"path": str(folder / "out")},
        "run": {"executor": "local"},
        "report": {"enabled": False},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False), "utf-8")
    started = time.perf_counter()
    rowsieve("run", str(folder / "recipe.yaml"), "--log-format", "json")
    seconds = time.perf_counter() - started
    published = published_rows(folder / "out")
    kept = published["split"].to_numpy() != "dropped"
    scores = with_weights(published[kept], test, attribute)
    scores["retrain erm"] = retrained(folder / "out")
    return Outcome(scores, gate(folder / "out"), seconds)


def rowsieve(*arguments: str) -> str:
    """Run a command of Rowsieve and return what it printed."""
    code = "import sys; from rowsieve import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"rowsieve {' '.join(arguments)}: {done.stderr[-800:]}")
    return done.stdout


def retrained(output: Path) -> Score:
    """Train by ``rowsieve retrain --trainer erm``; score it on the split's validation rows."""
    given = ("retrain", "--dataset", str(output), "--trainer", "erm", "--truth", TRUTH)
    found = json.loads(rowsieve(*given, "--executor", "local", "--json"))["evaluations"]["validation"]
    return Score(float(found["groupings"]["true"]["worst_group_accuracy"]), float(found["accuracy"]))


def published_rows(output: Path) -> pd.DataFrame:
    """Return all rows of the current version."""
    import rowsieve as api

    return api.open(str(output)).to_pandas()


def gate(output: Path) -> float:
    """Return the trust in the robust weights, from 0 to 1."""
    found = json.loads(rowsieve("cues", str(output), "--json"))
    return float(found["gate"])


def with_weights(published: pd.DataFrame, test: pd.DataFrame, attribute: Any) -> dict[str, Score]:
    """Return scores of logistic regression plain (ERM), class-balanced (CB) and with the published
    weights."""
    features = [column for column in test if column != LABEL]
    scaler = StandardScaler().fit(published[features])
    X, y = scaler.transform(published[features]), published[LABEL].to_numpy()
    Xt, yt = scaler.transform(test[features]), test[LABEL].to_numpy()
    count = np.bincount(y)
    ways = {
        "ERM": np.ones(len(y)),
        "CB": (len(y) / (2 * count))[y],
        "weights": published["weight"].to_numpy(),
    }
    found = {}
    for name, weight in ways.items():
        model = LogisticRegression(C=1.0, max_iter=1000).fit(X, y, sample_weight=weight)
        found[name] = score(model.predict(Xt), yt, attribute)
    return found


def score(predicted: Any, y: Any, attribute: Any) -> Score:
    """Return the worst accuracy over label x attribute, and the mean accuracy."""
    right = predicted == y
    groups = [right[(y == a) & (attribute == b)] for a in np.unique(y) for b in np.unique(attribute)]
    return Score(float(min(group.mean() for group in groups if len(group))), float(right.mean()))
