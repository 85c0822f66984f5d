"""Suspects are told in words of the source, and the words are accepted as an answer."""

import json
import re
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import rowsieve
from operators.base import OperatorError
from operators.cues import CueSettings, fit, weights
from operators.cues.named.name_checks import check_references
from operators.cues.named.recipe_text import yaml_reference
from operators.cues.named.references import FeatureColumns, _unknown, columns_of
from operators.cues.output.listing import recipe_reference
from operators.cues.params import CueSlice, CuesParams
from operators.cues.settings import Named
from operators.encode.words import ElapsedWords, NumberWords, PartWords
from operators.encoded_features import Output


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """The label says in 92 % of the rows whether a flight left between 20:00 and 05:00."""
    rng = np.random.default_rng(0)
    n = 1500
    y = rng.integers(0, 2, n)
    night = np.where(rng.random(n) < 0.92, y, 1 - y)
    hour = np.where(night, (rng.integers(20, 29, n)) % 24, rng.integers(5, 20, n))
    day = rng.integers(0, 120, n)
    return pd.DataFrame(
        {
            "time_hour": pd.Timestamp("2013-03-01") + pd.to_timedelta(day * 24 + hour, unit="h"),
            "dep": rng.normal(size=n) + 0.8 * y,
            "late": np.where(y, "yes", "no"),
        }
    )


def curated(frame: pd.DataFrame, folder: Path, **cues: object) -> list[dict[str, object]]:
    few = {"evidence": {"max_rows": 200}}  # not tested here, and most of the time otherwise
    chain = {"groups": {"method": "none"}, "cues": cues, "outliers": few}
    chain |= {"weights": {"method": "robust"}, "split": {}}
    rowsieve.curate(frame, label="late", operators=chain, output=str(folder))
    (path,) = folder.rglob("suspects.json")
    return json.loads(path.read_text())["suspects"]


def test_a_suspected_part_of_a_date_is_read_and_answered_in_words(frame, tmp_path):
    first = curated(frame, tmp_path / "a")[0]
    assert re.fullmatch(r"time_hour between (19|20):00 and 0[56]:00", first["slice"])
    assert first["reference"] == first["slice"]
    for number, answer in enumerate([first["reference"], "time_hour"]):
        again = curated(frame, tmp_path / str(number), spurious=[answer])
        assert next(one for one in again if one["slice"] == first["slice"])["answer"] == "spurious"


def test_the_answer_on_a_point_in_time_is_none_on_the_other_parts_of_the_date(tmp_path):
    """The answer to copy was the column, and so named hours and weekdays as spurious, too."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 1500)
    late = np.where(rng.random(1500) < 0.92, y, 1 - y)
    hours = late * 8760 + rng.integers(0, 8760, 1500)
    frame = pd.DataFrame(
        {
            "hired": pd.Timestamp("2019-01-01") + pd.to_timedelta(hours, unit="h"),
            "dep": rng.normal(size=1500) + 0.8 * y,
            "late": np.where(y, "yes", "no"),
        }
    )
    first = curated(frame, tmp_path / "a")[0]
    assert first["slice"].startswith("hired on or after 20")
    again = curated(frame, tmp_path / "b", spurious=[first["reference"]])
    assert [one["slice"] for one in again if one["answer"] == "spurious"] == [first["slice"]]
    parts = [one for one in again if one["feature"].startswith("hired")]
    assert all(one["answer"] == "open" for one in parts if one["slice"] != first["slice"])


LEVELS = ((" = Lyon", "category"), (" is infrequent", "infrequent"), (" is missing", "missing"))


@pytest.fixture
def columns() -> FeatureColumns:
    outputs = [
        Output("time", "datetime", "time", "value"),
        Output("time", "datetime", "time: hour (sin)", "part"),
        Output("time", "datetime", "time: hour (cos)", "part"),
        Output("age", "numeric", "age", "value"),
        Output("v", "vector", "v[0]", "entry"),
        Output("v", "vector", "v[1]", "entry"),
    ]
    words = {
        0: ElapsedWords("time", 0.0),
        1: PartWords("time", "hour", "sin"),
        2: PartWords("time", "hour", "cos"),
        3: NumberWords("age"),
    }
    return FeatureColumns(("time", "age", "v"), (3, 1, 2), tuple(outputs), words)


def test_slices_in_words_are_features_with_their_cuts(columns):
    def named(reference: object):
        return columns.named(CuesParams.model_validate({"spurious": [reference]}).spurious[0])

    night = named("time between 20:00 and 05:00")
    assert night.columns == (2,)
    assert np.cos(2 * np.pi * 5 / 24) < night.cut < np.cos(2 * np.pi * 4 / 24)
    assert named("time on or after 1970-01-03").columns == (0,)
    assert named("time on or after 1970-01-03").cut == pytest.approx(2)
    assert named("time before 1970-01-03").cut == named("time on or after 1970-01-03").cut
    assert (named("age > 35").columns, named("age > 35").cut) == ((3,), 35)
    assert 34.9 < named("age >= 35").cut < 35
    assert (named("v[1] > -0.5").columns, named("v[1] > -0.5").cut) == ((5,), -0.5)
    assert named("time").columns == (0, 1, 2)
    assert named("time").one_of
    assert named({"column": "time", "cut": 4}).columns == (0,)
    assert columns.meaning("time between 20:00 and 05:00").positions == (2,)
    with pytest.raises(OperatorError, match="no cut of one divides the rows so"):
        columns.meaning("time between 21:00 and 05:00")
    with pytest.raises(OperatorError, match="time on or after 2016-02-30"):
        columns.meaning("time on or after 2016-02-30")


@pytest.mark.parametrize("names", [("n", "n > 3", "z"), ("n > 3", "n", "z")])
def test_the_name_of_a_column_is_no_slice_of_another_one(names):
    """The slice of the column that came first was balanced in place of the named column, without a word."""
    known = FeatureColumns(names, (1, 1, 1))
    place = names.index("n > 3")
    assert known.named("n > 3") == Named((place,))
    assert known.answered("n > 3") == (place,)
    assert known.named("n > 4") == Named((names.index("n"),), 4.0)
    assert known.named("n > 3 > 0.5") == Named((place,), 0.5)
    assert columns_of("n > 3", names) == [("n > 3", None)]


def test_columns_of_a_wide_table_are_found_quickly():
    """Each was looked for among all others."""
    names = tuple(f"column {i}" for i in range(20_000))
    known = FeatureColumns(names, (1,) * len(names))
    started = time.process_time()
    assert [known.meaning(name).positions for name in names] == [(i,) for i in range(len(names))]
    assert time.process_time() - started < 2


def test_the_label_of_a_feature_is_found_whichever_columns_begin_like_it():
    outputs = (
        Output("a", "categorical", "a = b = c", "category"),
        Output("a = b", "categorical", "a = b = d", "category"),
    )
    known = FeatureColumns(("a", "a = b", "gone"), (1, 1, 0), outputs)
    assert (known.named("a = b = c"), known.named("a = b = d")) == (Named((0,)), Named((1,)))
    with pytest.raises(OperatorError, match=r"no feature 'a = b = e'.*There are: 'a = b = d'"):
        known.named("a = b = e")
    with pytest.raises(OperatorError, match="'gone' is not used as a feature"):
        known.named("gone > 3")


def test_the_slice_of_a_number_with_two_values_is_read_as_it_is_printed():
    outputs = (Output("flag", "numeric", "flag", "value"), Output("v", "vector", "v[0]", "entry"))
    for known in (FeatureColumns(("flag", "v"), (1, 1), outputs), FeatureColumns(("flag", "v"), (1, 1))):
        assert known.named("flag is 1 (not 0)") == Named((0,))
        assert known.named("v[0] is 1 (not -1e-05) or is missing") == Named((1,))
    check_references(["flag is 1 (not 0)", "v[0] is 1 (not 0)"], ["flag", "v"], "spurious")


def test_a_text_that_is_no_slice_is_not_read_as_the_whole_column():
    with pytest.raises(OperatorError, match="no feature 'age > old', and no cut"):
        FeatureColumns(("age", "n"), (1, 1)).named("age > old")


def test_a_named_column_of_many_values_means_their_class_shares():
    """Its infrequent values are one level, which is all rows where no value is frequent."""
    rare = Output("branch", "categorical", "branch is infrequent", "infrequent")
    levels = [Output("branch", "categorical", f"branch = {name}", "category") for name in "ab"]
    shares = [Output("branch", "categorical", f"branch: share of {name}", "target") for name in "xyz"]
    for outputs, named in (
        ([rare, shares[0]], (1,)),
        ([*levels, rare, shares[0]], (3,)),
        ([rare, *shares], (1, 2, 3)),
        ([*levels, rare], (0, 1, 2)),
    ):
        known = FeatureColumns(("branch",), (len(outputs),), tuple(outputs), {})
        assert known.named("branch").columns == named


def test_a_named_column_of_many_values_means_one_of_its_class_shares():
    """Of three classes it has three; to name it was refused as a category that is not one-hot."""
    shares = [Output("code", "categorical", f"code: share of {c}", "target") for c in "abc"]
    missing = Output("code", "categorical", "code is missing", "missing")
    known = FeatureColumns(
        ("code", "age"), (4, 1), (*shares, missing, Output("age", "numeric", "age", "value")), {}
    )
    assert known.named("code") == Named((0, 1, 2, 3), one_of=True)
    assert known.named("code: share of b") == Named((1,))
    alone = FeatureColumns(("code",), (2,), (shares[0], missing), {})
    assert alone.named("code") == Named((0,))


def test_a_named_number_with_gaps_means_its_value_or_its_gaps():
    outputs = (
        Output("income", "numeric", "income", "value"),
        Output("income", "numeric", "income is missing", "missing"),
        Output("age", "numeric", "age", "value"),
    )
    known = FeatureColumns(("income", "age"), (2, 1), outputs, {})
    assert known.named("income") == Named((0, 1), one_of=True)
    assert known.named("income is missing") == Named((1,))
    assert known.named(CueSlice(column="income", cut=3.0)) == Named((0,), 3.0)
    assert known.named("age") == Named((2,))


def test_where_the_gaps_are_the_shortcut_they_are_balanced():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4000)
    gap = np.where(rng.random(4000) < 0.93, y, 1 - y)
    core = rng.normal(size=(4000, 4)) + 0.5 * (2 * y[:, None] - 1)
    X = np.column_stack([rng.normal(size=4000) * (1 - gap), gap, core]).astype(np.float32)
    state = fit(X, y, np.arange(4000), CueSettings(spurious=(Named((0, 1), one_of=True),)))
    assert [sides.columns for sides in state.named] == [(1,)]
    w = weights(state, X, y, np.arange(4000))
    before, after = (np.average(gap[y == 1], weights=v[y == 1]) for v in (np.ones(4000), w))
    assert before > 0.9
    assert after < 0.6


def test_the_plan_knows_the_column_of_a_slice_in_words():
    known = ("time", "age", "v")
    assert columns_of("time in Nov-Feb or is missing", known)[0][0] == "time"
    assert columns_of("v[1] > 0.5", known) == [("v", 1)]
    with pytest.raises(OperatorError, match="no column 'tim in Nov'"):
        columns_of("tim in Nov", known)


def test_a_suspected_level_is_named_by_its_column_unless_that_means_class_shares():
    levels = [Output("depot", "categorical", f"depot{end}", role) for end, role in LEVELS]
    columns = FeatureColumns(("depot",), (3,), tuple(levels))
    named = [recipe_reference(place, columns, columns.name(place)) for place in range(3)]
    assert named == ["depot", "depot", "depot"]
    shares = Output("depot", "categorical", "depot: share of yes", "target")
    columns = FeatureColumns(("depot",), (4,), (*levels, shares))
    named = [recipe_reference(place, columns, columns.name(place)) for place in range(4)]
    assert named == ["depot = Lyon", "depot is infrequent", "depot is missing", "depot"]
    tags = (Output("tags", "tags", "tags: red", "category"),)
    assert recipe_reference(0, FeatureColumns(("tags",), (1,), tags), "tags: red") == "tags: red"


def test_words_of_other_scripts_are_shown_as_they_are_and_hidden_characters_are_not() -> None:
    assert yaml_reference({"column": "text", "words": ["大家好"]}) == '{column: text, words: ["大家好"]}'
    assert yaml_reference("a\u202eb") == '"a\\u202eb"'


def test_a_word_in_place_of_a_column_is_told_how_to_name_it():
    assert _unknown("mirror", ["summary", "amount"]) == (
        "the features have no column 'mirror'. The source's columns are: summary, amount; `rowsieve "
        "validate` without this name tells which of them are features: constants and identifiers are none. A "
        "word of a text is named with its column: {column: NAME, words: [mirror]}."
    )
    assert "column_29 and 5 more; `rowsieve validate` without" in _unknown(
        "mirror", [f"column_{k}" for k in range(35)]
    )
    assert _unknown("sumary", ["summary", "amount"]).endswith("Did you mean 'summary'?")


def test_the_label_in_place_of_a_feature_is_said_to_be_the_label():
    with pytest.raises(
        OperatorError, match=r"^operators\.cues\.spurious: 'label' is the label\. Name columns"
    ):
        check_references(["amount", "label"], ["summary", "amount"], "spurious", "label")
