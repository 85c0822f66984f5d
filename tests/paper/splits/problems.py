"""Data sets cut into domains: digits turned or noised by a different amount each, COMPAS by race."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.ndimage import rotate
from sklearn.datasets import load_digits

from tests.paper.data_sets import data_folder

Array = npt.NDArray[Any]
ANGLES = (0, 15, 30, 45, 60, 75)
NOISE = (0.0, 0.125, 0.25, 0.375, 0.5)
RACES = ("African-American", "Caucasian", "Hispanic", "Other")
NUMBERS = ("age", "priors_count", "juv_fel_count", "juv_misd_count", "juv_other_count")
RACE_ROWS = 500


@dataclass(frozen=True, eq=False)
class Domains:
    """Rows X (n, d), classes y (n,), and the number (n,) of each row's domain."""

    X: Array
    y: Array
    domain: Array
    names: tuple[str, ...]


def rotated_digits(seed: int) -> Domains:
    """Each image is in one domain, turned by its angle."""
    X, y, domain = _dealt(seed, len(ANGLES))
    images = X.reshape(-1, 8, 8)
    turned = [
        rotate(image, ANGLES[d], reshape=False, order=1) for image, d in zip(images, domain, strict=True)
    ]
    return Domains(
        np.stack(turned).reshape(len(X), -1), y, domain, tuple(f"{angle} degrees" for angle in ANGLES)
    )


def noised_digits(seed: int) -> Domains:
    """Each image is in one domain, with Gaussian noise of its standard deviation (white is 1)."""
    X, y, domain = _dealt(seed, len(NOISE))
    noise = np.random.default_rng(seed + 1000).normal(size=X.shape) * np.array(NOISE)[domain, None]
    return Domains(X + noise, y, domain, tuple(f"noise {sd:g}" for sd in NOISE))


def compas(seed: int) -> Domains:
    """Two-year recidivism by age, priors, juvenile counts, charge degree, sex; 500 rows of a race at most."""
    rows = pd.read_csv(data_folder() / "compas" / "compas-scores-two-years.csv")
    rows = rows.sample(frac=1, random_state=seed)
    race = rows["race"].where(rows["race"].isin(RACES), "Other")
    rows = rows[race.groupby(race).cumcount() < RACE_ROWS]
    race = race[rows.index]
    binary = np.column_stack([rows["c_charge_degree"] == "F", rows["sex"] == "Male"])
    X = np.hstack([rows[list(NUMBERS)].to_numpy(float), binary.astype(float)])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    domain = race.map(RACES.index).to_numpy(np.int64)
    return Domains(X, rows["two_year_recid"].to_numpy(np.int64), domain, RACES)


def _dealt(seed: int, domains: int) -> tuple[Array, Array, Array]:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(X))
    return X[order] / 16, y[order], np.arange(len(X)) % domains


PROBLEMS = {"rotated digits": rotated_digits, "noised digits": noised_digits, "COMPAS by race": compas}
