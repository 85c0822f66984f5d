"""Words of texts as suspects: found by the mistakes of models that see no word, over shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from operators.base import FEATURES, LABEL
from operators.columns import numpy_to_vectors
from operators.cues.adaptor import WEIGHT_COLUMN, Cues
from operators.cues.named.references import FeatureColumns
from operators.cues.params import CuesParams, CueWords, with_printed_words
from operators.cues.search.suspects import measured_sample
from operators.cues.words.shard_texts import MAX_LENGTH, SampledTexts
from operators.cues.words.word_suspects import frequent_words, list_word_suspects
from operators.embed.adaptor import Embed
from tests.unit.in_memory import run_operator, split_table
from tests.unit.operators.cues.test_cues_operator import ingest_state


def sentences(cue: Any) -> list[str | None]:
    """Texts with one of two brands by the cue, another word at random, and words that all of them have."""
    random = np.random.default_rng(0).integers(0, 5, len(cue))
    found: list[str | None] = [
        f"The {('Bramax', 'Alvora')[c]} lamp is {('red', 'blue', 'old', 'new', 'big')[r]}"
        for c, r in zip(cue, random, strict=True)
    ]
    found[3] = None
    return found


def columns_of(X: Any, *known: CueWords) -> FeatureColumns:
    """Columns of unnamed features, with words that the recipe names."""
    return FeatureColumns(("x",), (X.shape[1],), mentions=known)


def test_the_word_of_the_cue_comes_first(cue_problem: Any) -> None:
    X, label, _, cue, ids = cue_problem
    sample, p = measured_sample(X, label, ids)
    found = list_word_suspects(SampledTexts(ids[1:], {"note": sentences(cue)[1:]}), sample, p, columns_of(X))
    assert {one.words for one, _ in found[:2]} == {("alvora",), ("bramax",)}
    assert found[0][1].gain > 0.2
    assert not {("lamp",), ("red",), ("blue",)} & {one.words for one, _ in found}
    known = CueWords(column="note", words=("ALVORA",))
    texts = SampledTexts(ids[1:], {"note": sentences(cue)[1:]})
    others = list_word_suspects(texts, sample, p, columns_of(X, known))
    assert [one.words for one, _ in others] == [("bramax",)]


def test_words_of_the_same_texts_are_one_suspect(cue_problem: Any) -> None:
    X, label, _, cue, ids = cue_problem
    texts = [text and text.replace("Bramax", "Bramax of Leeds") for text in sentences(cue)]
    sample, p = measured_sample(X, label, ids)
    found = list_word_suspects(SampledTexts(ids, {"note": texts}), sample, p, columns_of(X))
    assert {frozenset(one.words) for one, _ in found[:2]} == {
        frozenset({"alvora"}),
        frozenset({"bramax", "of", "leeds"}),
    }


@pytest.mark.parametrize("honest", [False, True])
def test_a_word_without_which_models_do_not_fail_is_listed_unless_other_words_tell_it(honest: bool) -> None:
    """The features tell the label, so that models are not wrong where the word of the class is missing."""
    rng, ids = np.random.default_rng(0), np.arange(8000)
    label = rng.integers(0, 2, 8000)
    X = (rng.normal(size=(8000, 2)) + 2 * label[:, None]).astype(np.float32)
    tone = rng.random((8000, 30)) < np.where(label == 1, 0.6, 0.4)[:, None]
    told = tone.sum(axis=1) > 15
    side = told if honest else np.where(rng.random(8000) < 0.93, label == 1, label == 0)
    texts = [
        " ".join(("moreover" if s else "perhaps", *(f"word{k}" for k in np.flatnonzero(row))))
        for s, row in zip(side, tone, strict=True)
    ]
    sample, p = measured_sample(X, label, ids)
    found = list_word_suspects(SampledTexts(ids, {"note": texts}), sample, p, columns_of(X))
    assert [(one.words, suspect.strength < 0.02) for one, suspect in found if one.words == ("moreover",)] == (
        [] if honest else [(("moreover",), True)]
    )


def test_a_word_of_two_classes_of_four_is_worth_an_answer() -> None:
    rng, ids = np.random.default_rng(0), np.arange(3000)
    label = rng.integers(0, 4, 3000)
    X = (rng.normal(size=(3000, 4)) + 2 * np.eye(4)[label]).astype(np.float32)
    side = np.where(rng.random(3000) < 0.93, label < 2, label >= 2)
    tone = rng.random((3000, 12)) < np.where(label < 2, 0.6, 0.4)[:, None]
    texts = [
        " ".join(("kindly" if s else "", *(f"word{k}" for k in np.flatnonzero(row))))
        for s, row in zip(side, tone, strict=True)
    ]
    sample, p = measured_sample(X, label, ids)
    found = list_word_suspects(SampledTexts(ids, {"note": texts}), sample, p, columns_of(X))
    assert [one.words for one, suspect in found if suspect.stands_out] == [("kindly",)]


def test_texts_without_words() -> None:
    words, occurs = frequent_words([None, "", "1", "?"])
    assert (words, occurs.shape) == ([], (4, 0))
    words, occurs = frequent_words(["Straße don't", None, "STRASSE"])
    assert (words, occurs.tolist()) == (["don't", "strasse"], [[1, 1], [0, 0], [0, 1]])


def test_words_are_answered_by_the_name_that_is_printed(cue_problem: Any, tmp_path: Path) -> None:
    X, label, _, cue, _ = cue_problem
    columns = {FEATURES: numpy_to_vectors(X[:, :7]), LABEL: pa.array(label, pa.int32())}
    table = pa.table(columns | {"note": sentences(cue)})
    words = CuesParams(spurious=(CueWords(column="note", words=("alvora",)),), max_rows=1000)
    printed = CuesParams(spurious=("note contains alvora",), max_rows=1000)
    weights, listed = run_cues(tmp_path / "words", [table], words)
    again, same = run_cues(tmp_path / "printed", [table], printed)
    assert np.array_equal(weights, again)
    assert listed == same


def test_a_named_word_is_measured_on_the_rows_that_contain_it(cue_problem: Any, tmp_path: Path) -> None:
    """The features tell the word as a score, of which no cut need be the word."""
    X, label, _, cue, ids = cue_problem
    told, some = np.random.default_rng(1).normal(size=len(cue)), ids % 4 == 0
    features = np.column_stack([X[:, :6], told + 1.5 * (cue & some)])
    notes = [f"lamp {'alvora' if c and s else 'plain'}" for c, s in zip(cue, some, strict=True)]
    table = pa.table(
        {FEATURES: numpy_to_vectors(features), LABEL: pa.array(label, pa.int32()), "note": notes}
    )
    words = CuesParams(spurious=(CueWords(column="note", words=("alvora",)),), max_rows=len(ids))
    (named,) = [one for one in listed_suspects(tmp_path, table, words) if one["answer"] == "spurious"]
    assert named["share"] == pytest.approx((cue.astype(bool) & some).mean(), abs=1e-6)
    assert named["feature_cut"] == 0.0


def listed_suspects(folder: Path, table: pa.Table, params: CuesParams) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run_cues(folder, [table], params)[1])["suspects"]
    return found


def test_the_printed_name_of_words_is_read_where_the_column_is_a_text() -> None:
    given = CuesParams(
        spurious=("note contains red or blue", "tags contains red"), legitimate=("note contains  ",)
    )
    read = with_printed_words(given, ["note"], ["age"])
    assert read.spurious == (CueWords(column="note", words=("red", "blue")), "tags contains red")
    assert read.legitimate == given.legitimate
    feature = with_printed_words(given, ["note"], ["age", "note contains red or blue"])
    assert feature.spurious == given.spurious
    embed = Embed(Embed.Params(column="note", model="minilm"))
    in_chain = Cues(given.model_copy(update={"spurious": given.spurious[:1], "legitimate": ()})).in_chain
    assert in_chain([embed]).text_columns == ("note",)


def run_cues(folder: Path, tables: list[pa.Table], params: CuesParams) -> tuple[Any, bytes]:
    state = folder / "state"
    state.mkdir(parents=True)
    states = ingest_state(folder / "ingest", ["no", "yes"], [])
    found, _ = run_operator(Cues(params, (FEATURES,), ("note",)), tables, state, 0, states)
    assert sorted(path.name for path in state.iterdir()) == ["cues.json", "cues.npz", "suspects.json"]
    return found[WEIGHT_COLUMN].to_numpy(), (state / "suspects.json").read_bytes()


@pytest.mark.parametrize("max_rows", [pytest.param(50_000, marks=pytest.mark.slow), 3000])
def test_any_cut_into_shards_lists_the_same(cue_problem: Any, tmp_path: Path, max_rows: int) -> None:
    X, label, _, cue, _ = cue_problem
    notes = [None if text is None else text + " x" * MAX_LENGTH + " late" for text in sentences(cue)]
    columns = {FEATURES: numpy_to_vectors(X[:, :7]), LABEL: pa.array(label, pa.int32()), "note": notes}
    table, params = pa.table(columns), CuesParams(max_rows=max_rows)
    one, listed = run_cues(tmp_path / "one", [table], params)
    many, again = run_cues(tmp_path / "many", split_table(table, [10, 11, 8000]), params)
    assert np.array_equal(one, many)
    assert listed == again
    suspects = json.loads(listed)["suspects"]
    assert {s["slice"] for s in suspects[:2]} == {"note contains alvora", "note contains bramax"}
    assert suspects[0]["reference"] == {"column": "note", "words": [suspects[0]["slice"].split()[-1]]}
    assert {s["answer"] for s in suspects} == {"open"}
    assert not [s for s in suspects if s["feature"].startswith(FEATURES)]  # entries of the text's vector
