"""Summaries of columns and the kinds that follow from them."""

import datetime as dt
import itertools
import json
from functools import reduce

import numpy as np
import pyarrow as pa
import pytest
import yaml

from operators.base import OperatorError
from operators.encode.column_forms import Form, as_texts, form_of
from operators.encode.column_use import Kind, KindOptions, Unused
from operators.encode.kinds import decide_kind
from operators.encode.numeric import fit_number
from operators.encode.summary import TextRules, summarise


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    words = ["the", "parcel", "arrived", "late", "and", "was", "damaged", "again"]
    days = [dt.date(2020, 1, 1) + dt.timedelta(int(k)) for k in rng.integers(0, 900, n)]
    return pa.table(
        {
            "age": pa.array(rng.integers(18, 90, n), mask=rng.random(n) < 0.1),
            "income": rng.lognormal(8, 2, n),
            "zero_one": rng.integers(0, 2, n),
            "rate": pa.array(rng.random(n)).cast(pa.decimal128(12, 9), safe=False),
            "member": pa.array(rng.random(n) < 0.3),
            "city": pa.array(rng.choice([" Oslo", "Rome", "?", "Lima "], n)),
            "city_category": pa.array(rng.choice(["Oslo", "Rome"], n)).dictionary_encode(),
            "typed": pa.array([f"{x:.2f}" for x in rng.normal(size=n)]),
            "zip": pa.array([f"0{k}" for k in rng.integers(1000, 1060, n)]),
            "hired": pa.array(days),
            "seen": pa.array(days).cast(pa.timestamp("us", "Europe/Berlin")),
            "written": pa.array([day.strftime("%d.%m.%Y") for day in days]),
            "note": pa.array([" ".join(rng.choice(words, 9)) for _ in range(n)]),
            "waited": pa.array(rng.integers(0, 100, n)).cast(pa.duration("s")),
            "pixels": pa.array(rng.random((n, 4)).tolist()),
            "row_number": np.arange(n) + 7,
            "customer_id": rng.permutation(n) * 1000,
            "unique_but_number": rng.permutation(n * 9)[:n] * 1000,
            "token": pa.array([f"{k:08x}" for k in rng.integers(0, 2**32, n)]),
            "constant": pa.array(["x"] * n),
            "empty": pa.array([""] * n),
            "nothing": pa.nulls(n),
            "image": pa.array([b"\xff\xd8\xff\xe0"] * n),
            "digest": pa.array([b"x"] * n),
            "snowflake": 2**60 + np.arange(n) % 7,
            "huge": np.where(np.arange(n) < n // 2, np.inf, 1e300),
            "ragged": pa.array([[1.0] * (1 + k % 3) for k in range(n)]),
            "place": pa.array([{"lat": 1.0}] * n),
        }
    )


USED = {
    "age": Kind.NUMERIC,
    "income": Kind.NUMERIC,
    "zero_one": Kind.NUMERIC,
    "rate": Kind.NUMERIC,
    "member": Kind.BOOLEAN,
    "city": Kind.CATEGORICAL,
    "city_category": Kind.CATEGORICAL,
    "typed": Kind.NUMERIC,
    "zip": Kind.CATEGORICAL,
    "hired": Kind.DATETIME,
    "seen": Kind.DATETIME,
    "written": Kind.DATETIME,
    "waited": Kind.NUMERIC,
    "pixels": Kind.VECTOR,
    "unique_but_number": Kind.NUMERIC,
}
REASONS = {
    "note": Unused.TEXT,
    "row_number": Unused.IDENTIFIER,
    "customer_id": Unused.IDENTIFIER,
    "token": Unused.IDENTIFIER,
    "constant": Unused.CONSTANT,
    "empty": Unused.MISSING,
    "nothing": Unused.MISSING,
    "image": Unused.IMAGE,
    "digest": Unused.TYPE,
    "snowflake": Unused.IDENTIFIER,
    "huge": Unused.RANGE,
    "ragged": Unused.TYPE,
    "place": Unused.TYPE,
}


def summary_of(*values, type=None, name="c", rules=None):
    return summarise(pa.table({name: pa.array(values, type)}), rules)[name]


def test_every_column_has_a_kind_or_a_reason():
    found = {name: decide_kind(summary) for name, summary in summarise(rows()).items()}
    assert {name: use.kind for name, use in found.items() if use.used} == USED
    assert {name: use.reason for name, use in found.items() if not use.used} == REASONS
    assert all(use.note for use in found.values() if not use.used)
    assert "rowsieve[embed]" in found["note"].note
    assert "place.FIELD" in found["place"].note
    assert found["typed"].parameters == {"parse": "number"}
    assert found["written"].parameters == {"parse": "%d.%m.%Y"}
    json.dumps([use.to_json() for use in found.values()])


@pytest.mark.parametrize("n_shards", [2, 7])
def test_merged_summaries_are_those_of_the_gathered_table(n_shards):
    table = rows()
    bounds = np.linspace(0, table.num_rows, n_shards + 1).astype(int)
    parts = [table.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
    for order in (parts, parts[::-1]):
        found = [summarise(part) for part in order]
        for name, whole in summarise(table).items():
            merged = reduce(lambda left, right: left.merge(right), [part[name] for part in found])
            assert merged.to_json() == whole.to_json(), name
            assert decide_kind(merged) == decide_kind(whole)


def test_figures():
    found = summary_of(1.0, None, np.nan, np.inf, 1e300, 2.0)
    assert (found.rows, found.missing, found.unusable, found.distinct) == (6, 2, 2, 2)
    found = summary_of(" a", "a", "?", None, "bb c", name="t")
    assert (found.rows, found.missing, found.distinct, found.longest) == (5, 2, 2, 4)
    assert found.values.most_frequent(9) == [("a", 2), ("bb c", 1)]
    assert found.to_json()["most_frequent"] == [["a", 2], ["bb c", 1]]


@pytest.mark.parametrize("scaling", ["none", "standard", "robust", "quantile", "auto"])
def test_numbers_beyond_float32_are_treated_alike_as_text(scaling):
    """One text 1e300 made the standard deviation infinite, and all other rows 0."""
    numbers = [1e300, -4e38, *np.random.default_rng(0).normal(size=500).round(3).tolist()]
    texts = [f"{x!r}" for x in numbers]
    of_numbers, of_texts = summary_of(*numbers), summary_of(*texts)
    halves = summary_of(*texts[:99]).merge(summary_of(*texts[99:]))
    assert of_numbers.unusable == of_texts.unusable == halves.unusable == 2
    options = {"missing": "median", "min_missing_share": 0.005, "missing_texts": ()}
    expected = fit_number(of_numbers, "numeric", scaling=scaling, **options)
    for found in (of_texts, halves):
        assert fit_number(found, "numeric", scaling=scaling, **options).to_json() == expected.to_json()


def test_texts_of_numbers_beyond_float32_are_no_usable_number_unless_they_are_categories():
    found = summary_of(*["1e300", "1e301"] * 50)
    assert decide_kind(found).reason == Unused.RANGE
    table = pa.table({"a": ["1e300", "1e301"] * 50})
    named = summarise(table, TextRules(as_text=frozenset("a")))["a"]
    assert decide_kind(named, KindOptions(Kind.CATEGORICAL)).kind == Kind.CATEGORICAL
    assert decide_kind(found, KindOptions(Kind.TEXT, text_model=True)).kind == Kind.TEXT
    assert found.merge(summary_of(*["low"] * 100)).unusable == 0


def test_text_rules():
    assert summary_of("A", "a", rules=TextRules(fold_case=True)).distinct == 1
    assert summary_of("a ", "a", rules=TextRules(strip=False)).distinct == 2
    assert summary_of("none given", "a", rules=TextRules(missing=("none given",))).missing == 1
    counted = summary_of(3, 1, 3, rules=TextRules(as_text=frozenset({"c"})))
    assert counted.values.most_frequent(2) == [("3", 2), ("1", 1)]
    counted = summary_of(3.0, 1.5, np.nan, None, rules=TextRules(as_text=frozenset({"c"})))
    assert counted.values.values.to_pylist() == ["1.5", "3"]
    assert counted.missing == 2


def test_subnormal_numbers_and_dates_far_away():
    assert summary_of(5e-324, -5e-324, 0.0).distinct == 3
    far = summary_of(dt.date(1, 1, 1), dt.date(9999, 12, 31))
    assert far.examples(2) == ["0001-01-01", "9999-12-31"]
    assert summary_of("1066-10-14", "9999-12-31").parsed["%Y-%m-%d"].rows == 2


def test_a_column_that_changes_its_type_between_shards():
    whole, part, text = summary_of(1, 2), summary_of(1.5), summary_of("x")
    assert whole.merge(part).form == Form.NUMBER
    assert whole.merge(part).types == ("double", "int64")
    empty = summary_of(None, None, type=pa.null())
    assert decide_kind(empty.merge(text).merge(empty)).kind == Kind.CATEGORICAL
    with pytest.raises(
        OperatorError, match=r"'c' changes its type between shards: int64 and then string.*exclude"
    ):
        whole.merge(text)


def test_a_shard_without_values_does_not_decide_how_text_is_read():
    dated = summary_of("2020-01-01", "2021-01-01")
    for merged in (dated.merge(summary_of("", None)), summary_of("", None, type=pa.string()).merge(dated)):
        assert decide_kind(merged).kind == Kind.DATETIME
    assert decide_kind(dated.merge(summary_of("soon"))).kind == Kind.CATEGORICAL


@pytest.mark.parametrize(
    "text",
    ["这本书真的很不错，我非常喜欢，值得推荐给大家看看", "この本はとても面白くて、みなさんにお勧めします。"],
)
def test_texts_of_scripts_without_spaces_are_texts(text):
    texts = summary_of(*(f"{text}{number}" for number in range(60)))
    assert decide_kind(texts, KindOptions(text_model=True)).kind == Kind.TEXT
    assert decide_kind(summary_of(*(f"货号-{number}" for number in range(60)))).reason == Unused.IDENTIFIER


def test_the_recipe_decides():
    tell = KindOptions
    ints, texts = summary_of(1, 2, 1), summary_of("a", "b")
    as_text = summary_of(1, 2, 1, rules=TextRules(as_text=frozenset({"c"})))
    assert decide_kind(as_text, tell(kind=Kind.CATEGORICAL)).kind == Kind.CATEGORICAL
    assert decide_kind(ints, tell(kind=Kind.UNUSED)).reason == Unused.EXCLUDED
    assert decide_kind(texts, tell(kind=Kind.TEXT)).reason == Unused.TEXT
    assert decide_kind(texts, tell(kind=Kind.TEXT, text_model=True)).kind == Kind.TEXT
    with pytest.raises(
        OperatorError, match=r"'c' cannot be numeric: its type is string, .*'a', 'b'\. 0 of its 2"
    ):
        decide_kind(texts, tell(kind=Kind.NUMERIC))
    with pytest.raises(OperatorError, match="cannot be datetime: its type is int64"):
        decide_kind(ints, tell(kind=Kind.DATETIME))


def test_halves_can_be_categories():
    """Arrow has no `floor` of the type."""
    values = pa.array(np.array([1, 2.5, np.nan, np.inf], np.float16))
    assert as_texts(pa.chunked_array([values])).to_pylist() == ["1", "2.5", None, "inf"]
    found = summarise(pa.table({"c": values}), TextRules(as_text=frozenset({"c"})))["c"]
    assert decide_kind(found, KindOptions(kind=Kind.CATEGORICAL)).kind == Kind.CATEGORICAL


def test_a_given_format_of_dates():
    rules = TextRules(formats={"c": "%d %b %Y"})
    found = summary_of("14 Oct 2020", "1 Jan 1999", rules=rules)
    use = decide_kind(found, KindOptions(kind=Kind.DATETIME, date_format="%d %b %Y"))
    assert use.parameters == {"parse": "%d %b %Y"}
    wrong = summary_of("14 Oct 2020", "soon", rules=rules)
    with pytest.raises(OperatorError, match="1 of its 2 values could be read so"):
        decide_kind(wrong, KindOptions(kind=Kind.DATETIME, date_format="%d %b %Y"))


def test_day_or_month_first_is_said():
    assert "%d/%m/%Y fits too" in decide_kind(summary_of("01/02/2020", "03/04/2020")).note
    assert decide_kind(summary_of("01/02/2020", "13/04/2020")).parameters == {"parse": "%d/%m/%Y"}


def test_a_named_feature_is_used_though_it_looks_like_an_identifier():
    found = summarise(rows())
    for name in ("row_number", "token", "constant"):
        assert decide_kind(found[name], KindOptions(explicit=True)).used


def one_of(name, values):
    return summarise(pa.table({name: pa.array(values)}))[name]


@pytest.mark.parametrize("name", ["ID", "uid", "patient_id", "patientId", "customer.uuid"])
def test_a_column_that_is_named_an_identifier_may_repeat_values(name):
    numbers = np.random.default_rng(0).permutation(10**6)[:400] * 7
    repeated = np.r_[numbers, numbers[:200]]
    for values in (repeated, [f"C{value}" for value in repeated]):
        use = decide_kind(one_of(name, values))
        assert use.reason == Unused.IDENTIFIER
        assert "400 distinct values in 600 rows" in use.note
    assert decide_kind(one_of(name, repeated), KindOptions(explicit=True)).used


@pytest.mark.parametrize("name", ["rownames", "row.names", "Row Number", "row_num"])
def test_row_numbers_of_a_part_of_a_table_are_identifiers(name):
    numbers = np.random.default_rng(0).permutation(10**5)[:400]
    assert decide_kind(one_of(name, numbers)).reason == Unused.IDENTIFIER


@pytest.mark.parametrize("name", ["price_index", "paid", "bid", "balance", "house_no"])
def test_whole_numbers_of_another_name_are_a_measure_where_they_repeat(name):
    numbers = np.random.default_rng(0).permutation(10**6)[:400] * 7
    assert decide_kind(one_of(name, np.r_[numbers, numbers[:200]])).kind == Kind.NUMERIC


def test_an_identifier_of_few_values_is_a_category():
    assert decide_kind(one_of("store_id", [f"s{row % 40}" for row in range(600)])).kind == Kind.CATEGORICAL


def test_an_estimated_number_of_distinct_values_does_not_exceed_the_rows():
    use = decide_kind(one_of("row", np.arange(20_000)))
    assert use.note.startswith("about ")
    assert int(use.note.split()[1].replace(",", "")) <= 20_000


def test_a_category_of_ten_megabytes_and_a_million_distinct_values():
    long = summary_of("x" * 10_000_000, "y", "y")
    assert long.longest == 10_000_000
    assert max(len(text) for text in long.values.values.to_pylist()) < 200
    many = pa.array(np.arange(1_000_000) // 2).cast(pa.string())
    found = summarise(pa.table({"c": pa.compute.binary_join_element_wise("k", many, "")}))["c"]
    assert found.distinct == pytest.approx(500_000, rel=0.1)
    assert decide_kind(found).kind == Kind.CATEGORICAL


def test_form_of_types():
    assert form_of(pa.dictionary(pa.int8(), pa.large_string())) == Form.CATEGORY
    assert form_of(pa.time32("s")) == Form.NUMBER
    assert form_of(pa.list_(pa.string())) == Form.TAGS
    assert form_of(pa.list_(pa.float32(), 3)) == Form.VECTOR


@pytest.mark.parametrize("name", ["c", "id: of whom", "[id]"])
def test_remedies_are_yaml_whatever_the_name_of_the_column(name):
    """The text that a note offers between backticks is an entry of ``operators.encode.columns``."""
    numbering = list(range(100))
    large = [2**60 + k for k in range(100)]
    columns = [
        (numbering, "numeric"),
        (large, "categorical"),
        (["01-Mar-2000", "15-Apr-2001"] * 3, {"format": "%d-%b-%Y"}),
    ]
    for values, wanted in columns:
        note = decide_kind(summarise(pa.table({name: values}))[name]).note
        assert yaml.safe_load(note.split("`")[1]) == {name: wanted}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (["01-Mar-2000", "15-Apr-2001"], "`c: {format: '%d-%b-%Y'}`"),
        (["Jan 1, 2000", "Mar 12, 2001"], "`c: {format: '%b %d, %Y'}`"),
        (["2010-01", "2011-12"], "`c: {format: '%Y-%m'}`"),
        (["1/1/2020 3:45 PM", "2/3/2020 11:05 AM"], "`c: {format: '%m/%d/%Y %I:%M %p'}` or '%d/%m/%Y"),
        (["$1,234.50", "$12.00"], "amounts such as '$1,234.50': used as numbers if"),
        (["12.3%", "4%"], "such as '12.3%'"),
        (["1,234", "12"], "operators.encode.columns says `c: amount`"),
        (["00502", "10001"], ""),
        (["a", "b"], ""),
        (["10-12", "3-4"], ""),
    ],
)
def test_texts_that_could_be_dates_or_numbers_are_told(values, told):
    use = decide_kind(summary_of(*values * 3))
    assert use.kind == Kind.CATEGORICAL
    assert told in use.note
    assert bool(told) == bool(use.note)
    format = told.partition("format: '")[2].partition("'")[0]
    if format:
        rules = TextRules(formats={"c": format})
        options = KindOptions(Kind.DATETIME, date_format=format)
        assert decide_kind(summary_of(*values, rules=rules), options).kind == Kind.DATETIME
