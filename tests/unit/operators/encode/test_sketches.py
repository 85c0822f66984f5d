"""Histograms and tables of texts: exact below their bounds, the same for any division into shards."""

import numpy as np
import pyarrow as pa
import pytest

from operators.encode import sketches
from operators.encode.sketches import Histogram, ValueCounts


def in_shards(make, values, n_shards, order=None):
    parts = [make(part) for part in np.array_split(np.asarray(values, object), n_shards)]
    found = parts[0] if order is None else parts[order[0]]
    for index in range(1, n_shards):
        found = found.merge(parts[index if order is None else order[index]])
    return found


def histogram(values):
    return Histogram.of(np.asarray(values, np.float64))


def texts(values):
    return ValueCounts.of(pa.array(list(values), pa.large_string()), np.ones(len(values)))


def same(a, b):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in vars(a) if name != "values")


COLUMNS = {
    "integers": lambda rng: rng.integers(-50, 50, 5000).astype(float),
    "normal": lambda rng: rng.normal(size=40_000),
    "money": lambda rng: np.where(rng.random(40_000) < 0.9, 0, rng.lognormal(8, 2, 40_000)),
    "seconds": lambda rng: 1.7e9 + rng.random(40_000) * 1e5,
    "signs": lambda rng: np.array([0.0, -0.0, 5e-324, -5e-324, 3e38, -3e38]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_histogram_does_not_depend_on_the_shards(name):
    values = COLUMNS[name](np.random.default_rng(0))
    whole = histogram(values)
    for n_shards in (2, 7):
        assert same(in_shards(histogram, values, n_shards), whole)
    assert same(in_shards(histogram, values, 7, [3, 0, 6, 1, 5, 2, 4]), whole)
    assert whole.rows == len(values)
    assert len(whole.low) <= sketches.MAX_BUCKETS


@pytest.mark.parametrize("name", COLUMNS)
def test_quantiles_are_numpys(name):
    values = COLUMNS[name](np.random.default_rng(1))
    found, q = histogram(values), np.linspace(0, 1, 101)
    expected = np.quantile(values, q)
    if found.is_exact:
        np.testing.assert_allclose(found.quantiles(q), expected, rtol=1e-12)
        assert found.distinct == len(np.unique(values))
    else:
        spread = np.subtract(*np.quantile(values, [0.95, 0.05]))
        np.testing.assert_allclose(found.quantiles(q), expected, rtol=1e-3, atol=2e-3 * spread)
        assert found.distinct == pytest.approx(len(np.unique(values)), rel=0.1)


def test_histogram_of_counted_values_equals_that_of_rows():
    values = np.random.default_rng(2).integers(0, 9, 500).astype(float)
    distinct, counts = np.unique(values, return_counts=True)
    assert same(Histogram.of(distinct[::-1], counts[::-1]), histogram(values))


def test_an_empty_histogram_merges_and_has_no_quantile():
    empty, some = histogram([]), histogram([1.0, 2.0])
    assert same(empty.merge(some), some)
    assert same(some.merge(empty), some)
    with pytest.raises(ValueError, match="no row"):
        empty.quantiles(0.5)


def test_texts_are_counted_exactly_below_the_bound():
    rng = np.random.default_rng(3)
    values = rng.choice(["b", "a", "é", "a b", ""], 1000, p=[0.4, 0.3, 0.2, 0.05, 0.05])
    whole = texts(values)
    assert whole.is_exact
    assert dict(zip(whole.values.to_pylist(), whole.counts.tolist(), strict=True)) == {
        str(v): int((values == v).sum()) for v in np.unique(values)
    }
    assert whole.most_frequent(2) == [("b", (values == "b").sum()), ("a", (values == "a").sum())]
    found = in_shards(texts, values, 7, [6, 5, 4, 3, 2, 1, 0])
    assert same(found, whole)
    assert found.values.equals(whole.values)


def test_ties_are_broken_by_the_text():
    assert texts(["b", "a", "c"]).most_frequent(2) == [("a", 1), ("b", 1)]


def test_beyond_the_bound_frequent_texts_stay_and_distinct_is_estimated(monkeypatch):
    monkeypatch.setattr(sketches, "MAX_VALUES", 500)
    rng = np.random.default_rng(4)
    rare = [f"value {k}" for k in range(20_000)]
    values = np.array(rare + ["x"] * 3000 + ["y"] * 400, object)
    rng.shuffle(values)
    for n_shards in (1, 2, 7):
        found = in_shards(texts, values, n_shards)
        assert not found.is_exact
        assert len(found.values) <= 500
        assert found.distinct == pytest.approx(20_002, rel=0.1)
        assert found.distinct == texts(values).distinct
        counts = dict(found.most_frequent(2))
        for text, rows in (("x", 3000), ("y", 400)):
            assert rows - found.error <= counts[text] <= rows
