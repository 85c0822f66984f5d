"""Every encoding beside scikit-learn's and skrub's on the gathered table, for any number of shards."""

import datetime as dt
import itertools

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.feature_extraction import FeatureHasher
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    OneHotEncoder,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)

from engine.execution.local_executor import LocalExecutor
from operators.base import Context
from operators.encode.adaptor import Encode
from operators.encode.encoding import TableEncoding
from operators.encode.numeric import NumberEncoding, fit_scale, moments
from operators.encode.params import EncodeParams
from operators.encode.sketches import MAX_VALUES, Histogram
from operators.encode.targets import N_FOLDS, PURPOSE
from operators.encode.words import Gap
from operators.encoded_features import blocks
from operators.hashing import folds_of
from operators.ingest.kernel import Reason
from tests.unit.in_memory import MemoryReader

N = 600
SHARDS = (1, 2, 7)


def source(seed=0):
    rng = np.random.default_rng(seed)
    days = pd.to_datetime("2019-03-01") + pd.to_timedelta(rng.integers(0, 900 * 24 * 3600, N), unit="s")
    city = rng.choice(["Oslo", "Rome", "Lima", "Bonn", "Pune"], N, p=[0.5, 0.3, 0.15, 0.04, 0.01])
    return pa.table(
        {
            "age": pa.array(rng.integers(18, 90, N).astype(float), mask=rng.random(N) < 0.1),
            "score": rng.normal(3, 2, N),
            "money": np.where(rng.random(N) < 0.6, 0, rng.lognormal(8, 2, N)),
            "member": pa.array(rng.random(N) < 0.3, mask=rng.random(N) < 0.2),
            "city": pa.array([None if r < 0.05 else c for r, c in zip(rng.random(N), city, strict=True)]),
            "sex": rng.choice(["Female", "Male"], N),
            "zip": [f"z{k}" for k in rng.zipf(1.3, N) % 150],
            "hired": pa.array(days.to_pydatetime()),
            "pixels": pa.array(rng.random((N, 3)).astype(np.float32).tolist()),
            "y": rng.choice(["no", "yes"], N, p=[0.7, 0.3]),
        }
    )


def shards(table, n_shards):
    bounds = np.linspace(0, table.num_rows, n_shards + 1).astype(int)
    return [table.slice(a, b - a) for a, b in itertools.pairwise(bounds)]


def encoded(table, n_shards, folder, *columns, new_rows=False, **params):
    """Fit over shards; return x of all rows, and the operator's state."""
    folder.mkdir(parents=True, exist_ok=True)
    operator = Encode(EncodeParams.model_validate({"features": columns, "label": "y", **params}))
    context = Context(MemoryReader(shards(table, n_shards)), folder)
    operator.fit(context, LocalExecutor())
    apply = operator.open_for_new_rows(context) if new_rows else operator.open(context)
    parts = [apply(context.shards.read_source(k, ["row_id", *columns])) for k in range(n_shards)]
    made = pa.concat_tables(parts)
    assert made["x_fault"].null_count == table.num_rows
    return np.array(made["x"].to_pylist(), np.float32), TableEncoding.load(folder)


def frame(table, *columns):
    return table.select(columns).to_pandas()


def labels(state):
    return [output.label for output in state.outputs]


def same_for_all_shards(table, tmp_path, *columns, **params):
    found = [encoded(table, k, tmp_path / str(k), *columns, **params) for k in SHARDS]
    for x, state in found[1:]:
        np.testing.assert_array_equal(x, found[0][0])
        assert labels(state) == labels(found[0][1])
    return found[0]


@pytest.mark.parametrize("scaling", ["none", "standard", "robust"])
def test_numbers_are_simple_imputers_and_the_scalers(tmp_path, scaling):
    table = source()
    x, state = same_for_all_shards(table, tmp_path, "age", "score", numeric={"scaling": scaling})
    scaler = {"none": "passthrough", "standard": StandardScaler(), "robust": RobustScaler()}[scaling]
    theirs = make_pipeline(scaler, SimpleImputer(strategy="median", add_indicator=True))
    expected = theirs.fit_transform(frame(table, "age", "score"))
    np.testing.assert_allclose(x, expected[:, [0, 2, 1]], rtol=1e-5, atol=1e-5)
    assert labels(state) == ["age", "age is missing", "score"]


def test_quantile_is_quantile_transformers(tmp_path):
    table = source()
    x, _ = same_for_all_shards(table, tmp_path, "score", "money", numeric={"scaling": "quantile"})
    theirs = QuantileTransformer(n_quantiles=N, output_distribution="normal", subsample=None)
    np.testing.assert_allclose(x, theirs.fit_transform(frame(table, "score", "money")), atol=2e-5)


def test_heavy_tails_get_a_signed_logarithm(tmp_path):
    table = source()
    skewed = pa.table({"money": np.random.default_rng(1).lognormal(8, 2, N), "y": table["y"]})
    x, state = same_for_all_shards(skewed, tmp_path, "money")
    expected = np.arcsinh(RobustScaler().fit_transform(frame(skewed, "money")))
    np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-6)
    scale = state.columns[0].scale
    np.testing.assert_allclose(scale.backward(x[:, 0]), skewed["money"].to_numpy(), rtol=1e-4)
    x, state = same_for_all_shards(table, tmp_path / "gains", "money")
    assert state.columns[0].scale.method == "log"
    assert np.abs(x).max() < 10
    x, state = same_for_all_shards(table, tmp_path / "usual", "score", "age")
    assert [column.scale.method for column in state.columns] == ["none", "none"]


def test_a_missing_value_that_fails_is_named_as_it_is_written(tmp_path):
    texts = pa.array(["?", None, *(str(k % 49) for k in range(98))])
    days = pa.array(["?", None, *(f"2014-01-{1 + k % 28:02}" for k in range(98))])
    numbers = pa.array([float("nan"), None, *map(float, range(98))])
    table = pa.table({"a": texts, "d": days, "n": numbers, "y": ["no", "yes"] * 50})
    faults = {}
    for name in ("a", "d", "n"):
        (folder := tmp_path / name).mkdir()
        params = {"features": (name,), "label": "y", "numeric": {"missing": "fail"}}
        operator = Encode(EncodeParams.model_validate(params))
        context = Context(MemoryReader([table]), folder)
        operator.fit(context, LocalExecutor())
        made = operator.open(context)(context.shards.read_source(0, ["row_id", name]))
        faults[name] = [fault["error"] for fault in made["x_fault"].to_pylist()[:2]]
    word = "is a text that stands for a missing value"
    assert faults == {"a": [word, "is null"], "d": [word, "is null"], "n": ["is NaN", "is null"]}


def test_booleans(tmp_path):
    table = source()
    x, state = same_for_all_shards(table, tmp_path, "member")
    values = frame(table, "member")["member"]
    np.testing.assert_array_equal(x[:, 0], values.fillna(False).astype(float))
    np.testing.assert_array_equal(x[:, 1], values.isna())
    assert labels(state) == ["member", "member is missing"]


@pytest.mark.parametrize(("min_share", "max_columns"), [(0.0, 30), (0.02, 30), (0.1, 30), (0.0, 4), (0.1, 3)])
def test_categories_are_one_hot_encoders(tmp_path, min_share, max_columns):
    table = source()
    options = {"min_share": min_share, "max_columns": max_columns, "rare": "bucket"}
    x, state = same_for_all_shards(table, tmp_path, "city", "sex", categorical=options)
    theirs = OneHotEncoder(
        min_frequency=min_share or None,
        max_categories=max_columns,
        handle_unknown="infrequent_if_exist",
        drop="if_binary",
        sparse_output=False,
    )
    values = frame(table, "city", "sex").astype(object).where(lambda f: f.notna(), None)
    expected = theirs.fit_transform(values)
    names = [
        name.replace("_None", " is missing").replace("_infrequent_sklearn", " is infrequent")
        for name in theirs.get_feature_names_out()
    ]
    names = [name.replace("_", " = ", 1) for name in names]
    kept = np.array([name in labels(state) for name in names])
    infrequent = expected[:, ~kept].mean(axis=0)
    assert all(name == "city is infrequent" for name in np.array(names)[~kept])
    assert (infrequent < min_share).all()  # rare together: no feature, unlike there
    assert labels(state) == [name for name in names if name in labels(state)]
    np.testing.assert_array_equal(x, expected[:, kept])


@pytest.mark.parametrize(
    ("given", "n_features", "n_values"),
    [({}, 41, 40), ({"max_columns": 30}, 31, 40), ({}, 71, 70), ({}, 65, 110)],
)
def test_common_categories_have_a_feature_each_however_many_they_are(tmp_path, given, n_features, n_values):
    """50 further values have one feature; where more rows are rare, class shares stand beside it."""
    own = [f"a{k:02d}" for k in range(n_values) for _ in range(20 + 2 * (k % 3))]
    rare = [f"r{k:02d}" for k in range(50) for _ in range(2)]
    table = pa.table({"c": own + rare, "y": (["no", "yes"] * len(own + rare))[: len(own + rare)]})
    _, state = same_for_all_shards(table, tmp_path, "c", categorical=given)
    assert len(labels(state)) == n_features
    assert "c is infrequent" in labels(state)


def test_infrequent_categories_that_are_rare_together_have_no_feature(tmp_path):
    table = pa.table({"c": ["a"] * 300 + ["b"] * 298 + ["x", "y"], "y": ["no", "yes"] * 300})
    x, state = same_for_all_shards(table, tmp_path, "c")
    assert labels(state) == ["c = a", "c = b"]
    assert x.sum() == 598


def test_an_empty_text_is_a_category_if_it_is_no_missing_value(tmp_path):
    values = [""] * 150 + ["a"] * 150 + [f"r{k}" for k in range(100)]
    table = pa.table({"c": values, "y": ["no", "yes"] * 200})
    rules = {"categorical": {"rare": "bucket"}, "missing_values": []}
    _, state = encoded(table, 1, tmp_path, "c", **rules)
    assert labels(state) == ["c = ", "c = a", "c is infrequent"]


def test_new_categories_fall_into_the_infrequent_ones(tmp_path):
    table = source()
    _, state = encoded(table, 2, tmp_path, "city", "sex", categorical={"min_share": 0.08})
    new = pa.table({"city": ["Nowhere", None, " Oslo "], "sex": ["Female", "Other", "Male"]})
    x, codes = state.transform(new)
    assert labels(state) == ["city = Lima", "city = Oslo", "city = Rome", "city is infrequent", "sex = Male"]
    assert x.tolist() == [[0, 0, 0, 1, 0], [0, 0, 0, 1, 0], [0, 1, 0, 0, 1]]
    assert not codes.any()


def test_hashes_are_feature_hashers(tmp_path):
    table = source()
    options = {"rare": "hash", "min_share": 0.05, "hash_columns": 8}
    x, state = same_for_all_shards(table, tmp_path, "zip", categorical=options)
    n_frequent = len(state.columns[0].frequent)
    values = table["zip"].to_pylist()
    rare = [[] if value in state.columns[0].frequent else [value] for value in values]
    expected = FeatureHasher(8, input_type="string").transform(rare).toarray()
    np.testing.assert_array_equal(x[:, n_frequent:], expected)


@pytest.mark.parametrize("label", ["y", "three"])
def test_class_shares_are_target_encoders_out_of_fold(tmp_path, label):
    table = source()
    three = np.random.default_rng(5).choice(["a", "b", "c"], N)
    table = table.append_column("three", pa.array(three))
    options = {"rare": "target", "min_share": 0.5, "smoothing": 10.0}
    x, state = same_for_all_shards(table, tmp_path, "zip", label=label, categorical=options)
    rows, y = frame(table, "zip"), frame(table, label)[label]
    folds = folds_of(np.arange(N), N_FOLDS, 0, PURPOSE)
    n_classes = y.nunique()
    expected = np.empty((N, 1 if n_classes == 2 else n_classes))
    for fold in range(N_FOLDS):
        inside = folds == fold
        theirs = TargetEncoder(smooth=10.0).fit(rows[~inside], y[~inside])
        expected[inside] = theirs.transform(rows[inside])
    np.testing.assert_allclose(x[:, -expected.shape[1] :], expected, atol=1e-6)
    every = TargetEncoder(smooth=10.0).fit(rows, y).transform(rows)
    x, state = encoded(table, 2, tmp_path / "new", "zip", label=label, categorical=options, new_rows=True)
    np.testing.assert_allclose(x[:, -expected.shape[1] :], every, atol=1e-6)
    unseen = state.transform(pa.table({"zip": ["never seen"]}))[0][0, -expected.shape[1] :]
    np.testing.assert_allclose(unseen, y.value_counts(normalize=True).sort_index()[-expected.shape[1] :])


def test_class_shares_do_not_leak_the_label(tmp_path):
    """Of random categories with few rows the own share tells the label; that of other folds does not."""
    rng = np.random.default_rng(0)
    n = 4000
    table = pa.table({"zip": [f"z{k}" for k in rng.integers(0, 1000, n)], "y": rng.choice(["no", "yes"], n)})
    y = np.array(table["y"].to_pylist()) == "yes"
    options = {"rare": "target", "smoothing": 1.0}
    kept, _ = encoded(table, 3, tmp_path / "a", "zip", categorical=options)
    leaking, _ = encoded(table, 3, tmp_path / "b", "zip", categorical=options, new_rows=True)
    assert abs(np.corrcoef(kept[:, -1], y)[0, 1]) < 0.05
    assert np.corrcoef(leaking[:, -1], y)[0, 1] > 0.3


def test_dates_are_skrubs(tmp_path):
    skrub = pytest.importorskip("skrub")
    table = source()
    parts = ["elapsed", "year", "month", "day", "weekday", "hour"]
    x, state = same_for_all_shards(table, tmp_path, "hired", datetime={"parts": parts})
    theirs = skrub.DatetimeEncoder(resolution="hour", add_weekday=True, periodic_encoding="circular")
    expected = theirs.fit_transform(frame(table, "hired")["hired"])
    elapsed = expected["hired_total_seconds"].to_numpy(float)
    centre = state.columns[0].centre
    np.testing.assert_allclose(x[:, 0], (elapsed - centre) / 86_400, atol=2e-3)
    np.testing.assert_array_equal(x[:, 1], expected["hired_year"])
    start = 2
    for part in ("month", "day", "weekday", "hour"):
        both = expected[[f"hired_{part}_circular_0", f"hired_{part}_circular_1"]].to_numpy()
        np.testing.assert_allclose(x[:, start : start + 2], both, atol=1e-5)
        start += 2
    assert labels(state)[:3] == ["hired", "hired: year", "hired: month (sin)"]


def test_dates_before_1677_after_2262_and_missing(tmp_path):
    days = [dt.date(1066, 10, 14), None, dt.date(2500, 1, 1), dt.date(1999, 12, 31)] * 10
    table = pa.table({"d": days, "y": ["no", "yes"] * 20})
    x, state = same_for_all_shards(table, tmp_path, "d", datetime={"parts": ["elapsed", "month"]})
    assert np.isfinite(x).all()
    assert x[2, 0] - x[0, 0] == pytest.approx((days[2] - days[0]).days, rel=1e-6)
    assert x[1].tolist() == [0, 0, 0, 1]
    assert labels(state)[-1] == "d is missing"
    text = pa.table({"d": [str(day) if day else "" for day in days], "y": table["y"]})
    again, _ = same_for_all_shards(text, tmp_path / "text", "d", datetime={"parts": ["elapsed", "month"]})
    np.testing.assert_array_equal(again, x)


def test_a_missing_date_has_the_median_year(tmp_path):
    days = [None, dt.date(2014, 5, 1), dt.date(2016, 5, 1), dt.date(2018, 5, 1)] * 10
    table = pa.table({"d": days, "y": ["no", "yes"] * 20})
    x, state = same_for_all_shards(table, tmp_path, "d", datetime={"parts": ["year"]})
    assert x[:4].tolist() == [[2016, 1], [2014, 0], [2016, 0], [2018, 0]]
    words = state.words(["d"])[0]
    assert words.condition(Gap(2014.0, 2016.0)) == "d in 2016 or later or is missing"
    assert words.condition(Gap(2016.0, 2018.0)) == "d in 2018 or later"


def test_a_number_beyond_float32_after_scaling_is_a_fault():
    values = np.random.default_rng(0).normal(0, 1e-3, 400)
    values[0] = 1e37
    encoding = NumberEncoding("a", "numeric", fit_scale(Histogram.of(values), "robust"), 0.0, False, False)
    x, codes = np.zeros((400, 1), np.float32), np.zeros(400, np.uint8)
    encoding.encode(pa.chunked_array([values]), x, codes)
    assert np.isfinite(x).all()
    assert codes[:2].tolist() == [Reason.RANGE, Reason.GOOD]


@pytest.mark.parametrize("unit", [1e-7, 1e-12])
def test_quantiles_do_not_depend_on_the_unit(unit):
    values = np.random.default_rng(0).uniform(0, 1, 400)
    plain, small = (fit_scale(Histogram.of(x), "quantile").forward(x) for x in (values, values * unit))
    assert small == pytest.approx(plain, rel=1e-6)


def test_parts_of_a_date_follow_its_span_and_its_zone(tmp_path):
    hours = pa.array(np.datetime64("2024-04-30T15", "us") + np.arange(80) * np.timedelta64(1, "h"))
    table = pa.table({"t": hours.cast(pa.timestamp("us", "Asia/Tokyo")), "y": ["no", "yes"] * 40})
    x, state = encoded(table, 2, tmp_path, "t")
    assert labels(state) == ["t", "t: hour (sin)", "t: hour (cos)"]
    assert x[0, 1:].tolist() == pytest.approx([0, 1])  # midnight in Tokyo


def test_vectors_stay_as_they_are(tmp_path):
    table = source()
    x, state = same_for_all_shards(table, tmp_path, "pixels", "score")
    np.testing.assert_array_equal(x[:, :3], np.array(table["pixels"].to_pylist(), np.float32))
    assert labels(state) == ["pixels[0]", "pixels[1]", "pixels[2]", "score"]
    assert blocks(tmp_path / "1") == [3, 1]


def test_the_state_is_small_and_read_back(tmp_path):
    table = source()
    columns = [name for name in table.column_names if name != "y"]
    x, state = encoded(table, 3, tmp_path, *columns, categorical={"rare": "target"})
    again, codes = state.transform(table, folds_of(np.arange(N), N_FOLDS, 0, PURPOSE))
    np.testing.assert_array_equal(again, x)
    assert not codes.any()


def test_more_distinct_values_than_are_counted_exactly(tmp_path):
    """Ids are unused and say why; categories take a bounded table, whose frequent values are exact."""
    n = MAX_VALUES + 50_000
    rng = np.random.default_rng(0)
    common = rng.random(n) < 0.3
    values = np.where(common, "often", np.char.add("id ", np.arange(n).astype(str)))
    table = pa.table({"c": values, "y": np.where(common & (rng.random(n) < 0.9), "yes", "no")})
    unique = pa.table(
        {"c": np.char.add("id ", np.arange(n).astype(str)), "x": rng.normal(size=n), "y": table["y"]}
    )
    _, state = encoded(unique, 2, tmp_path / "ids", "c", "x")
    assert state.about["uses"]["c"]["reason"] == "identifier"
    assert state.about["uses"]["c"]["note"].startswith("about 1")
    x, state = encoded(table, 3, tmp_path / "told", "c", columns={"c": "categorical"})
    assert labels(state)[0] == "c = often"
    np.testing.assert_array_equal(x[:, 0], common)
    assert all(output.source == "c" for output in state.outputs)
    assert sum(path.stat().st_size for path in (tmp_path / "told").iterdir()) < 2**24


@pytest.mark.slow
def test_a_million_distinct_values_take_a_bounded_table(tmp_path):
    n, n_values = 1_200_000, 1_000_003
    codes = [f"value {i * 7919 % n_values}" for i in range(n)]
    table = pa.table({"c": codes, "y": np.where(np.arange(n) % 2 == 0, "yes", "no")})
    x, state = encoded(table, 3, tmp_path, "c", columns={"c": "categorical"})
    assert len(x) == n
    assert x.shape[1] == len(state.outputs) < 1000
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2**24


def test_only_equal_values_have_no_variance():
    """Neither a large mean nor a small unit makes a column constant."""
    for low, step in [(1e15, 1.0), (3.0, 1e-14), (1.0, 1e-13)]:
        mean, variance, kurtosis = moments(Histogram.of(low + step * np.arange(2.0).repeat([30, 10])))
        assert variance > 0, (low, step)
        assert kurtosis > 1
        assert mean == pytest.approx(low + step / 4, rel=1e-12)
    assert moments(Histogram.of(np.full(7, 0.1)))[1:] == (0.0, 0.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"kind": "numeric", "rare": "hash"},
            "of the kind numeric reads missing, scaling alone: remove 'rare'",
        ),
        ({"kind": "categorical", "format": "%Y"}, "reads min_share, max_columns, rare alone"),
        ({"kind": "text", "min_share": 0.1}, "a column of the kind text has no settings of its own"),
    ],
)
def test_settings_that_a_kind_does_not_read_are_errors(settings, message):
    with pytest.raises(ValueError, match=message):
        EncodeParams.model_validate({"columns": {"a": settings}})
    EncodeParams.model_validate({"columns": {"a": {**settings, "kind": None}}})
    # A version of an earlier release may record them.
    plain = EncodeParams.model_validate({"columns": {"a": settings["kind"], "b": {"rare": "hash"}}})
    recorded = plain.model_dump(mode="json")
    assert EncodeParams.recorded(recorded) == plain
    recorded["columns"]["a"].update(settings)
    assert EncodeParams.recorded(recorded) == plain
