"""Amounts: texts with a currency, a unit or thousands marks are numbers by one rule, kept for new rows."""

import itertools
import json

import numpy as np
import pyarrow as pa
import pytest
import yaml

from engine.execution.local_executor import LocalExecutor
from operators.base import Context, OperatorError
from operators.encode.adaptor import Encode
from operators.encode.amount_use import amounts_in, several_units
from operators.encode.amounts import MAX_UNITS, AmountForms, AmountRule
from operators.encode.column_use import Kind, KindOptions
from operators.encode.encoding import TableEncoding
from operators.encode.kinds import decide_kind
from operators.encode.params import EncodeParams
from operators.encode.sketches import ValueCounts
from operators.encode.summary import TextRules, summarise
from tests.unit.in_memory import MemoryReader

N = 2000
CENTS = np.random.default_rng(0).integers(1, 900_000, N)
DOLLARS = [f"US$ {x / 100:,.2f}" for x in CENTS.tolist()]
EUROS = [f"{x / 100:,.2f} €".replace(",", "_").replace(".", ",").replace("_", ".") for x in CENTS.tolist()]


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("$1,004.38", "$", 1004.38),
        ("US$ 1,004.38", "US$", 1004.38),
        ("CHF 1'004.38", "CHF", 1004.38),
        ("CHF\u00a01’004.38", "CHF", 1004.38),
        ("£15.39", "£", 15.39),
        ("-$5", "$", -5.0),
        ("$-5", "$", -5.0),
        ("−5 $", "$", -5.0),
        ("(48)", "", -48.0),
        ("($1,200.50)", "$", -1200.5),
        ("$(48)", "$", -48.0),
        ("(0)", "", 0.0),
        ("12%", "%", 12.0),
        ("30.3 %", "%", 30.3),
        ("12 kg", "kg", 12.0),
        ("5 km/h", "km/h", 5.0),
        ("1 unit", "unit", 1.0),
        ("3 units", "unit", 3.0),
        ("₹1,00,000", "₹", 100_000.0),
        ("1 234 567.5", "", 1_234_567.5),
        ("8.44E+03", "", 8440.0),
        (".5", "", 0.5),
    ],
)
def test_texts_are_read_with_a_point_before_decimals(text, unit, number):
    assert AmountRule(".", unit).read(pa.array([text]))[0] == number
    assert np.isnan(AmountRule(".", "other").read(pa.array([text]))[0]) == bool(unit)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.004,38 €", 1004.38),
        ("1.234.567", 1_234_567.0),
        ("1.234", 1234.0),
        ("1 234,5 €", 1234.5),
        ("12", 12),
    ],
)
def test_texts_are_read_with_a_comma_before_decimals(text, number):
    assert AmountRule(",", "€").read(pa.array([text]))[0] == number


@pytest.mark.parametrize(
    "text",
    [
        *("", "unknown", "05619", "1,2345", "1,234 567", "(48", "48)", "+-5", "(-5)", "51-200", "5h 39m"),
        *(">90", "(212) 5551234", "12:30", "C12", "29-Apr-2025", "1.234.567", "1.004,38 €", "12 34", "1/2"),
        "٣",
    ],
)
def test_other_texts_are_no_amounts(text):
    units = ("", "€", "h", "C")
    assert all(np.isnan(AmountRule(".", unit).read(pa.array([text]))[0]) for unit in units)


def use_of(texts, decimal=None, **options):
    summary = summarise(pa.table({"c": texts}), TextRules(amounts=frozenset("c")))["c"]
    return decide_kind(summary, KindOptions(Kind.AMOUNT, decimal=decimal, **options))


def test_the_mark_and_the_unit_are_those_of_most_values():
    assert use_of(DOLLARS).parameters == {"parse": "amount", "rule": {"decimal": ".", "unit": "US$"}}
    assert use_of(EUROS).parameters == {"parse": "amount", "rule": {"decimal": ",", "unit": "€"}}
    use = use_of(["1.234 kg", "2.500 kg"] * 30)
    assert use.parameters["rule"] == {"decimal": ".", "unit": "kg"}
    assert "no value tells whether ',' or '.' stands before decimals, such as '1.234 kg'" in use.warning
    entries = [yaml.safe_load(entry) for entry in use.warning.split("`")[1::2]]
    assert entries == [{"c": {"kind": "amount", "decimal": mark}} for mark in (".", ",")]
    told = use_of(["1.234 kg", "2.500 kg"] * 30, decimal=",")
    assert told.parameters["rule"] == {"decimal": ",", "unit": "kg"}
    assert use_of(["1.234 kg", "2,5 kg", "7 kg"] * 30).parameters["rule"]["decimal"] == ","


def test_values_that_are_not_read_are_counted_and_the_first_one_is_named():
    texts = [*DOLLARS]
    texts[1700], texts[250], texts[900] = "€ 5", "n/k", "12"
    use = use_of(texts)
    assert use.kind == Kind.NUMERIC
    assert "2 of 2,000 values are not written so and count as missing, such as 'n/k' in row 250" in use.note
    assert "1 of 2,000 values have no unit and are taken to have it too" in use.note


def test_too_many_values_of_another_unit_or_form_are_an_error():
    with pytest.raises(OperatorError) as caught:
        use_of([*DOLLARS[:1000], *EUROS[1000:]])
    message = str(caught.value)
    assert "'c' cannot be amount: 1,000 of its 2,000 values (50.0%, and at most 5% may)" in message
    assert f"such as {EUROS[1000]!r} in row 1,000" in message
    assert "The units are 'US$' (1,000), '€' (1,000): convert them into one at the source" in message
    with pytest.raises(OperatorError, match=r"such as 'low' in row 3\. .*source\.missing"):
        use_of([*DOLLARS[:3], *["low"] * 200, *DOLLARS[3:]])
    with pytest.raises(OperatorError, match="more than 64 units"):
        use_of([f"{k} {'abcdefghij'[k % 10]}{'klmnopqrst'[k // 10 % 10]}" for k in range(N)])


def test_a_column_that_has_become_numbers_is_one_of_numbers():
    assert use_of([1.5, 2.5, 3.5]).parameters == {}


def test_forms_are_those_of_any_division():
    texts = pa.array([*DOLLARS[:40], "low", "5 kg", *EUROS[:3], "1,234", "7", "low", *DOLLARS[:5]])

    def forms(first, last):
        part = texts.slice(first, last - first)
        rules = TextRules(amounts=frozenset("c"))
        return summarise(pa.table({"c": part}), rules)["c"]

    whole = forms(0, len(texts)).amounts
    for first, second in ((1, 2), (17, 41), (40, 47)):
        bounds = itertools.pairwise([0, first, second, len(texts)])
        a, b, c = (forms(*bound) for bound in bounds)
        assert a.merge(b).merge(c).amounts == a.merge(b.merge(c)).amounts == whole
    assert whole.seen["", "none"].rows == 2
    assert whole.seen["", "none"].first == 40
    many = AmountForms({(f"u{k}", "."): whole.seen["", "none"] for k in range(MAX_UNITS + 1)}, 99)
    assert many.merge(whole, 99).seen.keys() == AmountForms({}, 9).merge(whole, 9).seen.keys() == set()


def encoded(tmp_path, *tables, held_out=(), **params):
    """Fit tables as shards; return the state's files, its content and the features of the shards."""
    tmp_path.mkdir()
    everything = MemoryReader([*tables, *held_out])
    context = Context(MemoryReader([*tables]), tmp_path, all_shards=everything if held_out else None)
    encode = Encode(EncodeParams(features=("c",), columns={"c": "amount"}, **params))
    encode.fit(context, LocalExecutor())
    state = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    made = encode.open(Context(everything, tmp_path))
    found = [made(everything.read(shard, ["c"])) for shard in range(len(everything.shards))]
    return state, json.loads(state["encoding.json"]), pa.concat_tables(found)


def test_features_are_the_numbers_and_the_state_is_that_of_any_sharding(tmp_path):
    texts = [*EUROS]
    texts[7:27] = ["unknown"] * 20
    table = pa.table({"c": texts})
    scaling = {"numeric": {"scaling": "none"}}
    whole, about, made = encoded(tmp_path / "1", table, **scaling)
    for n_shards in (2, 7):
        bounds = np.linspace(0, N, n_shards + 1).astype(int)
        parts = [table.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
        state, _, again = encoded(tmp_path / f"{n_shards}", *parts, **scaling)
        assert state == whole
        assert again["x"].to_pylist() == made["x"].to_pylist()
    x = np.array(made["x"].to_pylist())
    expected = (CENTS / 100).astype(np.float32)
    expected[7:27] = np.median(np.delete(CENTS / 100, range(7, 27)))
    np.testing.assert_array_equal(x[:, 0], expected)
    assert x[:, 1].sum() == x[7:27, 1].sum() == 20
    assert about["summaries"]["c"]["missing"] == 20
    assert about["encodings"][0]["amounts"] == {"decimal": ",", "unit": "€"}


def test_new_rows_are_read_by_the_kept_rule(tmp_path):
    encoded(tmp_path / "fit", pa.table({"c": EUROS}), numeric={"scaling": "none"})
    reader = MemoryReader([pa.table({"c": ["1.234 €", "2,5", "$ 7", "who knows", None]})])
    encode = Encode(EncodeParams(features=("c",), columns={"c": "amount"}))
    made = encode.open_for_new_rows(Context(reader, tmp_path / "fit"))(reader.read(0, ["c"]))
    assert made["x_fault"].null_count == 5
    median = float(np.float32(np.median(CENTS / 100)))
    assert [x[0] for x in made["x"].to_pylist()] == [1234.0, 2.5, median, median, median]
    loaded = TableEncoding.load(tmp_path / "fit").columns[0]
    assert type(loaded).from_json(loaded.to_json()).to_json() == loaded.to_json()
    with pytest.raises(ValueError, match="decimal mark"):
        AmountRule.from_json({"decimal": ";", "unit": ""})


def test_held_out_rows_decide_the_rule_too_and_leave_the_figures_alone(tmp_path):
    learnt, held_out = ["1.234 €"] * 30 + ["5.678 €"] * 30, [f"{k}.234,5 €" for k in range(1, 9)]
    _, about, made = encoded(
        tmp_path / "a",
        pa.table({"c": learnt}),
        held_out=[pa.table({"c": held_out})],
        numeric={"scaling": "none"},
    )
    assert about["encodings"][0]["amounts"]["decimal"] == ","
    assert about["summaries"]["c"]["rows"] == 60
    assert [x[0] for x in made["x"].to_pylist()][:61:60] == [1234.0, 1234.5]


def counts(texts):
    return ValueCounts.of(pa.array(texts), np.ones(len(texts), np.int64))


def test_amounts_are_recognised_where_nearly_all_values_are_written_so():
    assert amounts_in(counts(DOLLARS)) == AmountRule(".", "US$")
    assert amounts_in(counts([f"({k})" if k % 5 == 0 else f"{k}" for k in range(N)])) == AmountRule(".", "")
    assert amounts_in(counts([f"{k} kg" for k in range(19)])) is None
    assert amounts_in(counts([*DOLLARS[:1800], *["low"] * 200])) is None
    assert amounts_in(counts([*(f"{k}" for k in range(N)), "low", "mid", "1,234"])) is None
    half = counts([f"{k} kg" if k % 2 else f"{k}" for k in range(N)])
    assert amounts_in(half) == AmountRule(".", "kg")
    assert amounts_in(half, max_bare_share=0.05) is None
    assert amounts_in(counts([f"{k:05}" for k in range(N)])) is None


def test_several_units_are_told_and_codes_are_not():
    mixed = counts([*DOLLARS[:1500], *EUROS[1500:]])
    assert amounts_in(mixed) is None
    assert several_units(mixed) == "'US$' (1,500), '€' (500)"
    assert several_units(counts([f"{k}{'AB'[k % 2]}" for k in range(N)])) == ""
    assert several_units(counts(DOLLARS)) == ""
