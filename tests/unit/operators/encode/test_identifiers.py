"""Identifiers are no features, and measurements are, whatever their numbers look like."""

import itertools
import re
from functools import reduce

import numpy as np
import pyarrow as pa
import pytest
import yaml

from operators.encode.column_use import Kind, KindOptions, Unused
from operators.encode.kinds import decide_kind
from operators.encode.summary import summarise

RNG = np.random.default_rng(0)
OWNERS = RNG.permutation(np.repeat(np.arange(700), RNG.integers(2, 6, 700)))
BIG = 2**53 + 1


def use_of(name, values, **options):
    return decide_kind(summarise(pa.table({name: pa.array(values)}))[name], KindOptions(**options))


IDENTIFIERS = {
    "steps of two": ("record", 2 * RNG.permutation(3000)),
    "steps of ten": ("record", 10 * RNG.permutation(30_000) + 7),
    "steps of two beyond 2^53": ("record", BIG + 2 * RNG.permutation(3000)),
    "gaps beyond 2^53": ("record", BIG + np.cumsum(RNG.integers(1, 10**6, 3000))),
    "random 63-bit numbers": ("record", RNG.integers(2**54, 2**63, 3000)),
    "several rows beyond 2^53": ("record", BIG + 977 * OWNERS**2),
    "customers of 2 to 5 rows": ("customer_id", OWNERS),
    "customers as fractions": ("customer_id", OWNERS.astype(float)),
    "customers with gaps": ("customerId", 7919 * OWNERS**2),
    "customers in one word": ("customerid", OWNERS),
    "accounts": ("Account Number", OWNERS + 10_000),
    "numbers as text": ("customer_id", [f"{owner}" for owner in OWNERS]),
}


@pytest.mark.parametrize("case", IDENTIFIERS)
def test_identifiers_are_no_features(case):
    name, values = IDENTIFIERS[case]
    use = use_of(name, values)
    assert use.reason == Unused.IDENTIFIER
    assert list(yaml.safe_load(use.note.split("`")[1])) == [name]  # how it is used all the same
    assert use_of(name, values, explicit=True).kind == Kind.NUMERIC


MEASUREMENTS = {
    "income": np.round(RNG.lognormal(10, 1, 3000)).astype(int),
    "income in thousands": 1000 * RNG.integers(20, 400, 3000),
    "area": RNG.gamma(2, 4000, 3000).astype(int),
    "final weight": RNG.lognormal(12, 0.5, 30_000).astype(int),
    "age": RNG.integers(17, 91, 3000),
    "hourly": 1_600_000_000 + 3600 * RNG.permutation(3000),
    "hourly in milliseconds": (1_600_000_000 + 3600 * RNG.permutation(3000)) * 1000,
    "event_time": 1_700_000_000_000_000_000 + np.cumsum(RNG.integers(1, 10**12, 3000)),
    "year": np.arange(1, 4001, 2),
    "visits": RNG.poisson(40, 3000),
    "month of the contract": RNG.integers(0, 500, 3000),
    "bid": RNG.integers(0, 2000, 3000),
    "yearID": RNG.integers(1871, 2025, 3000),
    "household size": RNG.integers(1, 12, 3000),
}


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_measurements_are_features(name):
    use = use_of(name, MEASUREMENTS[name])
    assert use.kind == Kind.NUMERIC
    assert not use.warning


DOUBTS = {
    "tree": (OWNERS, "700 distinct whole numbers in 2,... rows without gaps, each with a few rows"),
    "store_id": (RNG.integers(0, 40, 3000), "its name says that it identifies something"),
    "lot": (RNG.integers(0, 10**9, 3000), "as evenly spread over their range as identifiers are"),
    "score": (np.arange(0.0, 101.0), "as row numbers have them"),
}


@pytest.mark.parametrize("name", DOUBTS)
def test_what_may_be_an_identifier_is_used_with_a_warning(name):
    values, why = DOUBTS[name]
    use = use_of(name, values)
    assert use.kind == Kind.NUMERIC
    assert re.search(why, use.warning)
    entries = [yaml.safe_load(text) for text in use.warning.split("`")[1::2]]
    assert entries == [{name: "exclude"}, {name: "categorical"}]
    assert not use_of(name, values, explicit=True).warning


@pytest.mark.parametrize(("name", "values"), [*IDENTIFIERS.values(), *((k, v[0]) for k, v in DOUBTS.items())])
def test_the_decision_is_that_of_any_sharding(name, values):
    table = pa.table({name: pa.array(values)})
    for n_shards in (2, 7):
        bounds = np.linspace(0, len(values), n_shards + 1).astype(int)
        parts = [summarise(table.slice(a, b - a))[name] for a, b in itertools.pairwise(bounds)]
        merged = reduce(lambda left, right: left.merge(right), parts[::-1])
        assert decide_kind(merged) == decide_kind(summarise(table)[name])
