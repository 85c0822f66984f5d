"""Words that carry a shortcut: told from words of the label by the other words of the texts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from operators.base import FEATURES, LABEL
from operators.columns import numpy_to_vectors
from operators.cues import CueSettings
from operators.cues.named.references import FeatureColumns
from operators.cues.output.verdict import verdict
from operators.cues.params import NOTABLE_LOSS, CuesParams, CueWords
from operators.cues.row_weights import weights
from operators.cues.words.fit_words import find_words, fit_with_words
from operators.cues.words.mentions import contains
from operators.cues.words.shard_texts import SampledTexts
from operators.cues.words.word_shortcuts import WordShortcut, find_word_shortcuts
from operators.cues.words.word_suspects import frequent_words
from tests.unit.in_memory import split_table
from tests.unit.operators.cues.words.test_word_suspects import run_cues

N = 3000
VOCABULARY = tuple(f"{a}{b}" for a in "bdfgklmnpr" for b in ("ale", "ent", "ist", "oma"))
"""Words of the texts; the first half occurs more often in the first class."""
FAMILIES = (("nordwind", "alvora", "kestrel"), ("bramax", "tollins", "juno"))


def labels(seed: int, classes: int = 2, follows: float = 0.92) -> tuple[Any, Any]:
    """Return labels and sides that follow them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, N)
    other = (y + rng.integers(1, classes, N)) % classes
    return y, np.where(rng.random(N) < follows, y, other)


def texts(y: Any, seed: int, tilt: float = 0.3) -> list[str]:
    """Return texts of eight words, whose half of the vocabulary leans to the class."""
    rng = np.random.default_rng(seed + 100)
    half = np.where(rng.random((N, 8)) < 0.5 + tilt * (y[:, None] == 0) - tilt * (y[:, None] == 1), 0, 20)
    return [" ".join(VOCABULARY[k] for k in row) for row in half + rng.integers(0, 20, (N, 8))]


def found(written: list[str], y: Any, **more: Any) -> Any:
    words, occurs = frequent_words(written)
    return find_word_shortcuts(words, occurs, y, np.arange(len(y)), **more)


def test_a_word_that_the_others_do_not_tell_is_a_shortcut() -> None:
    y, side = labels(0)
    written = [f"{text} {'verified' if s else ''}" for text, s in zip(texts(y, 0, 0.1), side, strict=True)]
    (one,) = found(written, y)
    assert one.words == ("verified",)
    assert one.gate() == 1
    assert one.inside.tolist() == side.astype(bool).tolist()
    share = [one.inside[y == c].mean() for c in (0, 1)]
    assert one.contrast == pytest.approx(share[1] - share[0])
    assert one.judged.dependence == pytest.approx(0.5, abs=0.07)
    assert found(written, y, answered={"verified"}) == []
    assert found(texts(y, 0, 0.1), y) == [], "without the word"


def test_wrong_labels_do_not_join_an_honest_word_to_a_shortcut() -> None:
    """Among rows that are labelled as the other class both words are missing, so that they go together."""
    y, side = labels(12)
    rng = np.random.default_rng(12)
    honest = rng.random(N) < np.where(y == 1, 0.85, 0.05)
    written = [
        f"{text} {'verified' if s else ''} {'honestly' if h else ''}"
        for text, s, h in zip(texts(y, 12, 0.1), side, honest, strict=True)
    ]
    given = np.where(rng.random(N) < 0.1, 1 - y, y)
    assert [one.words for one in found(written, given)] == [("verified",)]


@pytest.mark.parametrize("classes", [2, 3])
def test_words_that_replace_each_other_are_one_shortcut(classes: int) -> None:
    y, side = labels(1, classes)
    rng = np.random.default_rng(301)
    families = (*FAMILIES, ("fennel", "sorrel", "chervil"))
    brands = [families[s][k] for s, k in zip(side, rng.integers(0, 3, N), strict=True)]
    written = [f"{brand} {text}" for brand, text in zip(brands, texts(y, 1, 0.15), strict=True)]
    got = found(written, y)
    sets = [set(one.words) for one in got]
    assert len(sets) == classes - (classes == 2), "with two classes one side says what the other one does"
    assert all(one in map(set, families) for one in sets)


@pytest.mark.parametrize(("kind", "words"), [("cue", [("kindly",)]), ("topic", []), ("told", [])])
def test_a_word_of_two_classes_of_four_is_a_shortcut_unless_the_others_say_as_much(
    kind: str, words: list[tuple[str]]
) -> None:
    """A word in 93 % of two classes stands out from no class, and a model leans on it all the same."""
    y, _ = labels(13, 4)
    pair = y // 2
    follows = np.random.default_rng(13).random(N) < 0.93
    side = np.where(follows, pair, 1 - pair)
    tilt = {"cue": 0.1, "topic": 0.3, "told": 0.45}[kind]
    written = [
        f"{text} {'kindly' if s else ''}"
        for text, s in zip(texts(side if kind == "topic" else pair, 13, tilt), side, strict=True)
    ]
    assert [one.words for one in found(written, y)] == words


def test_words_that_divide_four_classes_in_the_same_two_parts_are_one_shortcut() -> None:
    y, _ = labels(14, 4)
    follows = np.random.default_rng(14).random(N) < 0.93
    side = np.where(follows, y // 2, 1 - y // 2)
    written = [
        f"{text} {'kindly' if s else 'urgent'}" for text, s in zip(texts(y // 2, 14, 0.1), side, strict=True)
    ]
    (one,) = found(written, y)
    assert one.classes == 2


def test_a_phrase_is_one_shortcut() -> None:
    y, side = labels(2)
    phrases = ("sent from a phone", "written at the desk")
    written = [f"{text} {phrases[s]}" for text, s in zip(texts(y, 2, 0.1), side, strict=True)]
    (one,) = found(written, y)
    assert len(one.words) == 1
    assert one.judged.label_accuracy < 0.6, "no other word of the phrases judges"


def test_words_of_a_topic_are_none() -> None:
    """The label is the topic in 96 rows of 100, and other words tell the topic, not the label."""
    y, topic = labels(3, follows=0.96)
    written = [f"{text} {'goal' if s else 'vote'}" for text, s in zip(texts(topic, 3), topic, strict=True)]
    assert found(written, y) == []


def test_wrong_labels_do_not_make_a_word_of_the_label_a_shortcut() -> None:
    y, _ = labels(4)
    rng = np.random.default_rng(304)
    given = np.where(rng.random(N) < 0.06, 1 - y, y)
    written = [f"{text} {'awful' if s else 'lovely'}" for text, s in zip(texts(y, 4, 0.2), y, strict=True)]
    assert found(written, given) == []


def test_of_two_that_tell_the_label_as_well_none_is_taken() -> None:
    y, side = labels(5)
    written = [f"{text} {'verified' if s else ''}" for text, s in zip(texts(y, 5, 0.3), side, strict=True)]
    assert found(written, y) == []


def test_a_word_that_says_a_little_more_than_the_others_is_taken() -> None:
    y, side = labels(5)
    written = [f"{text} {'verified' if s else ''}" for text, s in zip(texts(y, 5, 0.2), side, strict=True)]
    (one,) = found(written, y)
    assert one.words == ("verified",)
    assert 0.1 < one.contrast - one.judged.label_accuracy < 0.2
    assert one.gate() > 0.5


def test_words_that_are_hardly_trusted_are_only_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, ids, _, sampled = problem(7)
    columns = FeatureColumns(("x",), (X.shape[1],))
    monkeypatch.setattr(WordShortcut, "gate", lambda _: 0.49)
    assert find_words(sampled, X, y, ids, columns, CueSettings()) is None
    monkeypatch.setattr(WordShortcut, "gate", lambda _: 0.51)
    words = find_words(sampled, X, y, ids, columns, CueSettings())
    assert words is not None
    assert words.gate == 0.51


def test_texts_without_words_or_with_one_class() -> None:
    y = np.zeros(N, np.int64)
    assert found(texts(y, 6), y) == []
    assert find_word_shortcuts([], np.zeros((4, 0), np.float32), np.arange(4), np.arange(4)) == []


def vectors(y: Any, inside: Any, seed: int) -> Any:
    """Return features that tell the label a little and the words well, like sentence vectors."""
    rng = np.random.default_rng(seed + 200)
    signal = np.column_stack([0.7 * (2 * y - 1), *([1.2 * (2 * inside - 1)] * 3), *([0 * y] * 8)])
    return (signal + rng.normal(size=signal.shape)).astype(np.float32)


def problem(seed: int) -> tuple[Any, ...]:
    y, side = labels(seed)
    written = [f"{text} {'verified' if s else ''}" for text, s in zip(texts(y, seed, 0.1), side, strict=True)]
    return vectors(y, side, seed), y, np.arange(N), side, SampledTexts(np.arange(N), {"note": written})


def test_words_are_balanced_as_if_they_were_named() -> None:
    X, y, ids, side, sampled = problem(7)
    s, columns = CueSettings(), FeatureColumns(("x",), (X.shape[1],))
    words = find_words(sampled, X, y, ids, columns, s)
    assert words is not None
    assert words.sets == (CueWords(column="note", words=("verified",)),)
    fitted = fit_with_words(words, X, X, y, ids, s, np.bincount(y))
    assert fitted is not None
    state, extended = fitted
    assert state.blend == pytest.approx(s.named_share * words.gate)
    given = weights(replace(state, scaler=replace(state.scaler, directions=words.directions)), X, y, ids)
    assert np.array_equal(given, weights(state, extended, y, ids))
    for c in (0, 1):
        rare = given[(y == c) & (side != c)].mean()
        assert rare > 2.5 * given[(y == c) & (side == c)].mean()


def test_words_that_the_features_do_not_tell_are_left_alone() -> None:
    X, y, ids, _, sampled = problem(8)
    X = X[:, [0, 5, 6]]
    assert find_words(sampled, X, y, ids, FeatureColumns(("x",), (3,)), CueSettings()) is None


def test_the_other_columns_judge_as_well() -> None:
    """The words of the texts do not tell the label, and another column does."""
    y, side = labels(9)
    written = [f"{text} {'verified' if s else ''}" for text, s in zip(texts(y, 9, 0.0), side, strict=True)]
    assert found(written, y) == []
    others = (0.5 * (2 * y - 1) + np.random.default_rng(309).normal(size=N))[:, None].astype(np.float32)
    (one,) = found(written, y, others=others)
    assert one.gate() > 0.5
    assert contains(written, one.words).tolist() == one.inside.tolist()


def test_a_class_of_few_rows_says_nothing_of_words() -> None:
    """One row of a third class contains a word that occurs anywhere by chance."""
    y, _ = labels(11)
    inside = np.random.default_rng(311).random(N) < 0.05
    y[0], inside[0] = 2, True
    written = [f"{text} {'kestrel' if k else ''}" for text, k in zip(texts(y, 11, 0.1), inside, strict=True)]
    sampled, X = SampledTexts(np.arange(N), {"note": written}), vectors(y, inside.astype(int), 11)
    found = find_words(sampled, X, y, np.arange(N), FeatureColumns(("x",), (X.shape[1],)), CueSettings())
    assert found is None


def test_any_cut_into_shards_gives_the_same_weights(tmp_path: Path) -> None:
    X, y, _, side, sampled = problem(10)
    columns = {FEATURES: numpy_to_vectors(X), LABEL: pa.array(y, pa.int32()), "note": sampled.texts["note"]}
    one, listed = run_cues(tmp_path / "one", [pa.table(columns)], CuesParams())
    many, again = run_cues(tmp_path / "many", split_table(pa.table(columns), [10, 11, 2000]), CuesParams())
    assert np.array_equal(one, many)
    assert listed == again
    assert one[(y == 1) & (side == 0)].mean() > 2.5 * one[(y == 1) & (side == 1)].mean()
    record = json.loads(listed)
    (words,) = record["found_words"]
    assert (words["column"], words["words"], record["part"] > 0.5) == ("note", ["verified"], True)
    assert "'verified' in `note`" in verdict(record)
    assert record["named_cost"] > NOTABLE_LOSS
    assert "name them under `legitimate`" in verdict(record)
    assert record["suspects"][0]["reference"] == {"column": "note", "words": ["verified"]}

    honest = CuesParams(legitimate=(CueWords(column="note", words=("verified",)),))
    _, listed = run_cues(tmp_path / "answered", [pa.table(columns)], honest)
    assert json.loads(listed)["found_words"] == []
