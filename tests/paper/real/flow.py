"""One table through the commands of a user: ``init``, ``run``, regression on the weights, ``retrain``."""

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

from tests.paper.real.tables import LABEL, RealTable, one_hot

TRAIN_SHARE = 0.7
SHARDS = 4
MIN_TEST_ROWS = 25
WEIGHT, SPLIT = "published weight", "published split"
TRUTH = "true_group"
"""Column with label x hidden attribute, named under ``truth``: no operator may read it."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """Worst true group (label x hidden attribute) and mean accuracy on test rows."""

    worst: float
    mean: float


@dataclass(frozen=True)
class Outcome:
    """Result of one run of one table."""

    scores: dict[str, Score]
    gate: float
    seconds: float


def run_table(table: RealTable, seed: int, folder: Path) -> Outcome:
    """Carry one table and seed through the commands, in an empty folder."""
    order = np.random.default_rng(1000 + seed).permutation(len(table.frame))
    cut = int(TRAIN_SHARE * len(order))
    train, test = table.frame.iloc[order[:cut]], table.frame.iloc[order[cut:]]
    attribute = table.attribute[order[cut:]]
    truth = (table.attribute.max() + 1) * train[LABEL].to_numpy() + table.attribute[order[:cut]]
    train = train.assign(**{TRUTH: np.char.add("g", truth.astype(str))})
    (folder / "data").mkdir(parents=True)
    for index, rows in enumerate(np.array_split(np.arange(cut), SHARDS)):
        train.iloc[rows].to_parquet(folder / "data" / f"part-{index}.parquet", index=False)
    prefix = _write_recipe(folder)
    started = time.perf_counter()
    rowsieve("run", str(folder / "recipe.yaml"), "--log-format", "json")
    seconds = time.perf_counter() - started
    published = published_rows(folder / "out", prefix)
    kept = published[SPLIT].to_numpy() != "dropped"
    scores = with_weights(published[kept], test, attribute)
    scores["retrain erm"] = retrained(folder / "out")
    return Outcome(scores, gate(folder / "out"), seconds)


def _write_recipe(folder: Path) -> str:
    """Write the recipe that ``rowsieve init`` drafts, with the true groups named and without a report.

    Returns what precedes the names of the columns that are written: a table may have a ``weight`` of its own.
    """
    rowsieve(
        "init",
        str(folder / "data"),
        "--label",
        LABEL,
        "--output",
        str(folder / "out"),
        "-o",
        str(folder / "draft.yaml"),
    )
    recipe = yaml.safe_load((folder / "draft.yaml").read_text("utf-8"))
    recipe["source"].setdefault("exclude", [])
    recipe["source"]["exclude"] = [name for name in recipe["source"]["exclude"] if name != TRUTH]
    recipe |= {"truth": {"group": TRUTH}, "run": {"executor": "local"}, "report": {"enabled": False}}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False), "utf-8")
    return str(recipe["output"].get("prefix", ""))


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


def published_rows(output: Path, prefix: str = "") -> pd.DataFrame:
    """Return all rows of the current version, with the weights and splits under names of their own."""
    import rowsieve as api

    rows = api.open(str(output)).to_pandas()
    return rows.rename(columns={f"{prefix}weight": WEIGHT, f"{prefix}split": SPLIT})


def gate(output: Path) -> float:
    """Return the part of the robust weights that is followed, from 0 to 1."""
    found = json.loads(rowsieve("cues", str(output), "--json"))
    return float(found["part"])


def with_weights(published: pd.DataFrame, test: pd.DataFrame, attribute: Any) -> dict[str, Score]:
    """Return scores of logistic regression plain (ERM), class-balanced (CB) and with the published
    weights."""
    features = [column for column in test if column != LABEL]
    encoded = one_hot(pd.concat([published[features], test[features]], ignore_index=True))
    scaler = StandardScaler().fit(encoded[: len(published)])
    X, Xt = np.split(scaler.transform(encoded), [len(published)])
    y, yt = published[LABEL].to_numpy(), test[LABEL].to_numpy()
    count = np.bincount(y)
    weightings = {
        "ERM": np.ones(len(y)),
        "CB": (len(y) / (len(count) * count))[y],
        "weights": published[WEIGHT].to_numpy(),
        "oracle": _group_balance(published[TRUTH]),
    }
    found = {}
    for name, weight in weightings.items():
        model = LogisticRegression(C=1.0, max_iter=1000).fit(X, y, sample_weight=weight)
        found[name] = score(model.predict(Xt), yt, attribute)
    return found


def _group_balance(groups: pd.Series) -> Floats:
    """Return weights under which every true group has the same total, shape (n,), mean 1."""
    sizes = groups.groupby(groups).transform("size").to_numpy(np.float64)
    return np.asarray(len(groups) / (groups.nunique() * sizes))


def score(predicted: Any, y: Any, attribute: Any) -> Score:
    """Return the worst accuracy over label x attribute (groups of 25 rows and more) and the mean."""
    right = predicted == y
    groups = [right[(y == a) & (attribute == b)] for a in np.unique(y) for b in np.unique(attribute)]
    return Score(
        float(min(group.mean() for group in groups if len(group) >= MIN_TEST_ROWS)), float(right.mean())
    )
