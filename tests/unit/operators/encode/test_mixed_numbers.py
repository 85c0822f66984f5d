"""A few words in a column of numbers are missing values, and named; the column stays numeric."""

import html
import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from engine.execution.local_executor import LocalExecutor
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from operators.base import Context
from operators.encode.adaptor import Encode
from operators.encode.column_use import Kind, KindOptions, Unused
from operators.encode.kinds import decide_kind
from operators.encode.params import EncodeParams
from operators.encode.summary import TextRules, summarise
from tests.data import recipe_for
from tests.unit.in_memory import MemoryReader

N = 2000
NUMBERS = [f"{x:.2f}" for x in np.random.default_rng(0).normal(50, 9, N)]


def column(*words, numbers=NUMBERS):
    """Texts of numbers of which the first ones are replaced by words."""
    return pa.table({"c": [*words, *numbers[len(words) :]]})


def use_of(table, rules=None, **options):
    return decide_kind(summarise(table, rules)["c"], KindOptions(**options))


@pytest.mark.parametrize("word", ["n.d.", "unknown", "-", ">100", "12 kg", "1,5", "1e999"])
def test_one_word_leaves_the_column_numeric(word):
    use = use_of(column(word))
    assert use.kind == Kind.NUMERIC
    assert use.parameters == {"parse": "number", "words": [word]}
    assert f"1 of 2,000 values is no number and counts as missing: {word!r} (1)" in use.warning
    assert yaml.safe_load(use.warning.split("`")[1]) == {"c": "categorical"}


def test_numbers_beyond_float32_are_faults_and_scale_nothing():
    """One cell 1e300 made the standard deviation infinite, and all other rows 0."""
    expected = summarise(column("0", "x"))["c"].mixed
    found = summarise(column("1e300", "x"))["c"].mixed
    assert found.words == expected.words == {"x": 1}
    assert found.numbers.rows == expected.numbers.rows - 1 == N - 2
    assert found.numbers.high[-1] < 100


def test_the_message_names_the_most_frequent_words():
    warning = use_of(column(*["x"] * 3, *["unknown"] * 9, "w", "v", "u")).warning
    assert "15 of 2,000 values are no number and count as missing: 'unknown' (9), 'x' (3), 'u' (1)" in warning
    assert "and 2 further texts" in warning


@pytest.mark.parametrize(
    "table",
    [
        column(*["low"] * 50),
        column(*(f"word {k}" for k in range(21))),
        column("K", numbers=[f"{k % 12}" for k in range(N)]),
        column("136A", numbers=[f"{k % 400}" for k in range(N)]),
        column("C12", numbers=[f"{k % 400}" for k in range(N)]),
    ],
    ids=["many cells", "many words", "grades", "codes", "codes with a letter before them"],
)
def test_more_words_and_codes_leave_the_column_categorical(table):
    assert use_of(table).kind in (Kind.CATEGORICAL, Kind.UNUSED)
    assert not use_of(table).warning


def test_the_recipe_overrides_the_rule():
    assert use_of(column("unknown"), kind=Kind.CATEGORICAL).kind == Kind.CATEGORICAL
    assert use_of(column("unknown"), kind=Kind.UNUSED).reason == Unused.EXCLUDED
    many = use_of(column(*["low"] * 500), kind=Kind.NUMERIC)
    assert many.parameters["words"] == ["low"]
    assert "500 of 2,000 values are no number and count as missing" in many.note
    known = use_of(column("unknown"), TextRules(missing=("unknown",)))
    assert known.parameters == {"parse": "number"}
    assert not known.warning


def test_numbers_of_rows_stay_identifiers_with_a_word_among_them():
    numbers = [f"{k}" for k in range(N)]
    assert use_of(column("unknown", numbers=numbers)).reason == Unused.IDENTIFIER


def test_a_word_counts_as_missing_whatever_the_case_of_categories():
    rules = TextRules(fold_case=True)
    assert use_of(column("Unknown"), rules).parameters["words"] == ["Unknown"]


def encoded(tmp_path, *tables, held_out=(), **params):
    """Fit tables as shards; return the state's files, its content and the features of the shards."""
    tmp_path.mkdir()
    everything = MemoryReader([*tables, *held_out])
    context = Context(MemoryReader([*tables]), tmp_path, all_shards=everything)
    encode = Encode(EncodeParams(features=("c",), **params))
    encode.fit(context, LocalExecutor())
    state = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    made = encode.open(Context(everything, tmp_path))
    names = range(len(everything.shards))
    found = [made(everything.read(shard, ["c"])) for shard in names]
    return state, json.loads(state["encoding.json"]), pa.concat_tables(found)


def test_the_state_is_that_of_any_sharding(tmp_path):
    table = column(">100", "-", *["unknown"] * 17)
    whole, about, made = encoded(tmp_path / "1", table)
    for n_shards in (2, 7):
        bounds = np.linspace(0, N, n_shards + 1).astype(int)
        parts = [table.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
        assert encoded(tmp_path / f"{n_shards}", *parts[::-1])[0] == whole
    alone = encoded(tmp_path / "words", table.slice(0, 19), table.slice(19), table.schema.empty_table())[0]
    assert alone == whole
    assert about["summaries"]["c"]["missing"] == 19
    assert made["x_fault"].null_count == N


def test_words_have_the_median_and_an_indicator_where_they_are_many(tmp_path):
    _, about, made = encoded(tmp_path / "few", column("unknown"))
    assert [output["label"] for output in about["outputs"]] == ["c"]
    x = np.array(made["x"].to_pylist())
    assert x[0, 0] == pytest.approx(np.median(x[1:, 0]), rel=1e-6)
    _, about, made = encoded(tmp_path / "many", column(*["unknown"] * 15))
    assert [output["label"] for output in about["outputs"]] == ["c", "c is missing"]
    assert np.array(made["x"].to_pylist())[:, 1].sum() == 15


def test_a_word_of_a_held_out_row_is_missing_too(tmp_path):
    held_out = pa.table({"c": ["withheld", "3.5"]})
    for name, table in {"none": column(), "another": column("unknown")}.items():
        _, about, made = encoded(tmp_path / name, table, held_out=[held_out])
        assert about["uses"]["c"]["kind"] == "numeric"
        assert "withheld" in about["uses"]["c"]["parameters"]["words"]
        assert about["summaries"]["c"]["rows"] == N
        assert made["x_fault"].null_count == N + 2


def test_new_rows_may_have_a_known_word_and_another_one_is_a_fault(tmp_path):
    encoded(tmp_path / "fit", column("unknown"))
    reader = MemoryReader([pa.table({"c": ["unknown", "3.5", "who knows"]})])
    made = Encode(EncodeParams(features=("c",))).open(Context(reader, tmp_path / "fit"))
    faults = made(reader.read(0, ["c"]))["x_fault"].to_pylist()
    assert faults[:2] == [None, None]
    assert faults[2]["value"] == "'who knows'"


def test_the_report_names_the_words(tmp_path):
    y = np.arange(N) % 2
    table = column("unknown").append_column("label", pa.array(np.where(y, "yes", "no")))
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data" / "0.parquet")
    sections = {
        "truth": {"group": None},
        "report": {"enabled": True},
        "operators": {"groups": {"method": "none"}},
    }
    result = run(Recipe.parse(recipe_for(tmp_path / "data", tmp_path / "out", **sections)))
    page = html.unescape((tmp_path / "out" / "reports" / f"{result.version}.html").read_text("utf-8"))
    assert "Column c: 1 of 2,000 values is no number and counts as missing: 'unknown' (1)." in page
