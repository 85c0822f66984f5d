"""Words of a text as a named shortcut: the features that tell them, over shards, and what is refused."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from engine.core.errors import InputError
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from engine.runs.status import status_of
from operators.cues.models.linear import Scaler, with_directions
from operators.cues.named.references import FeatureColumns
from operators.cues.params import CuesParams, CueWords
from operators.cues.row_weights import breaks, weights
from operators.cues.serialise import load_state
from operators.cues.words.mentions import (
    absent_words,
    by_set,
    contains,
    fit_directions,
    unclear_sets,
)
from operators.cues.words.shard_texts import read_mentions
from operators.cues.words.word_suspects import frequent_words
from tests.data import recipe_for, write_shards
from tests.unit.in_memory import MemoryReader

BRANDS = {"column": "note", "words": ["Nordwind", "alvora"]}
FEW = {"evidence": {"max_rows": 300}}  # not tested here, and most of the time otherwise
OPERATORS: dict[str, Any] = {"groups": {"method": "none"}, "outliers": FEW, "weights": {}, "split": {}}


COMPOSED, DECOMPOSED = "café", "cafe\u0301"
"""As most keyboards write it, and as macOS writes names of files."""


@pytest.mark.parametrize("word", [COMPOSED, DECOMPOSED.upper()])
def test_words_are_found_in_either_unicode_form(word: str) -> None:
    assert contains([f"a {COMPOSED}", f"a {DECOMPOSED}", "a cafe"], [word]).tolist() == [True, True, False]


def test_both_unicode_forms_are_one_word_of_a_recipe_and_of_the_list() -> None:
    words, occurs = frequent_words([COMPOSED, DECOMPOSED, None])
    assert (words, occurs.tolist()) == ([COMPOSED], [[1], [1], [0]])
    named = CueWords(column="note", words=(DECOMPOSED,))
    assert FeatureColumns(("x",), (1,), mentions=(named,)).named_words("note") == {COMPOSED}
    with pytest.raises(ValidationError, match="as spurious and as legitimate"):
        CuesParams(spurious=(named,), legitimate=(CueWords(column="note", words=(COMPOSED,)),))


def texts(cue: Any) -> list[str | None]:
    """Sentences: half of those with the cue name one brand, half the other; some rows have no text."""
    brands = ("NORDWIND", "Alvora", "bramax", "alvoras")
    found: list[str | None] = [f"the {brands[2 * (1 - c) + i % 2]} lamp" for i, c in enumerate(cue)]
    found[5] = None
    return found


@pytest.fixture(scope="module")
def table(cue_problem: Any) -> pa.Table:
    """The table of the cue problem with vectors, and a text that names a brand where the cue is 1."""
    X, label, _, cue, _ = cue_problem
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X[:, :7].ravel()), 7)
    return pa.table(
        {"vector": vectors, "note": texts(cue), "n": X[:, 0], "label": np.array(["no", "yes"])[label]}
    )


def recipe(folder: Path, table: pa.Table, shards: int = 1, **cues: Any) -> Recipe:
    data = folder / f"data{shards}"
    write_shards(data, table, shards)
    made = recipe_for(data, folder / f"out{shards}", operators=OPERATORS | {"cues": cues})
    made["source"]["features"] = ["vector"]
    del made["truth"]
    return Recipe.parse(made)


def read(path: Path, *names: str) -> Any:
    parts = [pa.parquet.read_table(part) for part in sorted((path / "data").iterdir())]
    whole = pa.concat_tables(parts)
    return [whole[name].to_numpy() for name in names]


def test_words_are_whole_and_their_case_does_not_matter() -> None:
    found = contains(["STRASSE 1", "Straßen", "(straße)", "a\nb", None], ["straße", "A  b"])
    assert found.tolist() == [True, False, True, True, False]
    assert contains(["1+1=2", "11"], ["1+1"]).tolist() == [True, False]


def test_the_short_form_means_the_same() -> None:
    made = CuesParams(spurious=[{"note": ["a", "b"]}])  # type: ignore[arg-type]
    assert made.spurious == (CueWords(column="note", words=("a", "b")),)


def test_a_direction_tells_unseen_rows(cue_problem: Any) -> None:
    X, _, _, cue, ids = cue_problem
    mentions = np.column_stack(
        [cue == 1, np.zeros(len(cue), bool), np.random.default_rng(0).random(len(cue)) < 0.1]
    )
    found = fit_directions(X[:3000], mentions[:3000], ids[:3000], 0, 1e-3)
    above = with_directions(X[3000:], found.coefficients)[:, 8:] > 0
    assert (above[:, 0] == mentions[3000:, 0]).mean() > 0.999
    assert found.accuracy[0] > 0.999
    assert not found.coefficients[:, 1].any()
    assert np.isnan(found.accuracy[1])
    assert 0.4 < found.accuracy[2] < 0.6
    assert above[:, 2].mean() == pytest.approx(0.1, abs=0.03)


def test_rows_get_the_further_features_once() -> None:
    scaler = Scaler(np.zeros(3, np.float32), np.ones(3, np.float32), np.array([[1.0], [2.0], [0.5]]))
    X = np.array([[1, 2], [3, 4]], np.float32)
    assert scaler.extend(X).tolist() == [[1, 2, 5.5], [3, 4, 11.5]]
    assert scaler.extend(scaler.extend(X)).tolist() == scaler.extend(X).tolist()
    assert scaler.apply(X).tolist() == scaler.extend(X).tolist()


def test_named_words_are_balanced_whatever_the_shards(
    table: pa.Table, cue_problem: Any, tmp_path: Path
) -> None:
    X, y, _, cue, ids = cue_problem
    one = run(recipe(tmp_path, table, 1, spurious=[BRANDS]))
    many = run(recipe(tmp_path, table, 5, spurious=[BRANDS]))
    note, label, weight = read(one.path, "note", "label", "weight")
    assert np.array_equal(weight, read(many.path, "weight")[0])
    named = contains(note.tolist(), BRANDS["words"])
    broken = named != (label == "yes")
    assert weight[broken].mean() > 4 * weight[~broken].mean()
    record = json.loads(next((tmp_path / "out1/store").glob("*/state/suspects.json")).read_text())
    (answered,) = [one for one in record["suspects"] if one["answer"] == "spurious"]
    assert answered["slice"] == answered["feature"] == "note contains Nordwind or alvora"
    assert answered["reference"] == BRANDS
    assert answered["share"] == pytest.approx(named.mean(), abs=0.01)
    assert (record["undivided"], record["unclear"]) == ([], [])
    state = load_state(next((tmp_path / "out1/store").glob("*/state/cues.json")).parent)
    made = weights(state, X[:, :7], y, ids)  # of rows that come without texts
    np.testing.assert_allclose(made / made.mean(), weight / weight.mean(), rtol=1e-4)
    assert (breaks(state, X[:, :7], y, ids) == (cue != y)).mean() > 0.99


def test_words_that_features_do_not_tell_are_reported(
    table: pa.Table, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    noise = np.random.default_rng(1).random(table.num_rows) < 0.3
    table = table.set_column(1, "note", [np.where(noise, "red", "blue")])
    with caplog.at_level(logging.WARNING, "rowsieve"):
        made = recipe(tmp_path, table, 1, spurious=[{"column": "note", "words": ["red"]}, BRANDS])
        result = run(made)
    assert "tell the rows of which note contains red from the others in only 5" in caplog.text
    assert "names {column: note, words: [Nordwind, alvora]}, but no usable cut" in caplog.text
    absent = "no text of the column 'note' contains 'Nordwind' in 4,"
    assert absent in caplog.text
    for warnings in (result.manifest["warnings"], status_of(make_plan(made))["warnings"]):
        assert [text for text in warnings if absent in text and text.startswith("operators.cues: ")]


def test_absent_words_and_sets_that_divide_nothing_are_told() -> None:
    sets = (CueWords(column="a", words=("nordwnd", "Alvora")), CueWords(column="b", words=("the",)))
    words = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 1]], bool)
    assert by_set(words, sets).tolist() == [[True, True], [False, True], [False, True]]
    (told,) = absent_words(sets, words, {"a": ["nordwind", "alvora"], "b": ["nordwn"]})
    assert told == (
        "no text of the column 'a' contains 'nordwnd' in 3 sampled rows. Did you mean 'nordwind'?"
    )
    found = fit_directions(np.ones((3, 1)), by_set(words, sets), np.arange(3), 0, 1e-3)
    assert [*unclear_sets(sets, by_set(words, sets), found)] == [
        "a contains nordwnd or Alvora holds for 1 of 3 sampled rows: that leaves nothing to balance.",
        "b contains the holds for all 3 sampled rows: that leaves nothing to balance.",
    ]


def test_words_of_one_entry_that_cover_all_rows_are_said_to_need_entries_of_their_own() -> None:
    sets = (CueWords(column="note", words=("velora", "nimbo")),)
    words = np.array([[1, 0], [0, 1], [1, 0]], bool)
    found = fit_directions(np.ones((3, 1)), by_set(words, sets), np.arange(3), 0, 1e-3)
    (told,) = unclear_sets(sets, by_set(words, sets), found)
    assert told == (
        "note contains velora or nimbo holds for all 3 sampled rows: that leaves nothing to balance. A row "
        "counts if its text contains any of the words: give words that go with different classes an entry "
        "each, such as [{column: note, words: [velora]}, {column: note, words: [nimbo]}]."
    )


def test_a_shard_without_a_text_has_no_word() -> None:
    reader = MemoryReader([pa.table({"note": pa.nulls(2)}), pa.table({"note": ["x", None]})])
    sets = (CueWords(column="note", words=("x", "y")),)
    assert not read_mentions(reader, 0, np.arange(2), sets).any()


def test_what_is_refused(table: pa.Table, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"operators.cues: the source has no column 'nota'\. .*'note'"):
        make_plan(recipe(tmp_path, table, 1, spurious=[{"column": "nota", "words": ["x"]}]))
    with pytest.raises(InputError, match=r"'n' has the type (float|double), but texts are read here"):
        make_plan(recipe(tmp_path, table, 1, spurious=[{"column": "n", "words": ["x"]}]))
    with pytest.raises(InputError, match=r"operators.cues: 'label' is the label\."):
        make_plan(recipe(tmp_path, table, 1, spurious=[{"column": "label", "words": ["yes"]}]))
    for words, message in (([], "spurious.0.words: needs at least 1 entry"), ("x", "takes a list")):
        with pytest.raises(InputError, match=message):
            make_plan(recipe(tmp_path, table, 1, spurious=[{"column": "note", "words": words}]))
    for words in ([""], ["  "]):
        with pytest.raises(ValidationError):
            CuesParams(spurious=[{"column": "note", "words": words}])  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="'note contains a' is named as spurious and as legitimate"):
        CuesParams(spurious=[{"note": ["A", "b"]}], legitimate=[{"note": ["a"]}])  # type: ignore[arg-type]
    answer = CueWords(column="note", words=("a",))
    with pytest.raises(ValidationError, match="'note contains a' is named as spurious and as legitimate"):
        CuesParams(spurious=(answer,), legitimate=(answer,))
