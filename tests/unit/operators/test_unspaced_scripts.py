"""Words of scripts without spaces between them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from operators.cues.words.mentions import contains
from operators.cues.words.word_suspects import frequent_words
from operators.encode.word_components import WordComponents
from operators.unspaced_scripts import phrase_pattern, separate_words


@pytest.mark.parametrize(
    ("text", "separated"),
    [
        ("房间很好", ["房间", "间很", "很好"]),
        ("好 hotel店", ["好", "hotel", "店"]),
        ("สวัสดี", ["สว", "วั", "ัส", "สด", "ดี"]),
        ("don't touch-this", ["don't", "touch-this"]),
    ],
)
def test_pairs_of_characters_stand_for_words(text: str, separated: list[str]) -> None:
    assert separate_words(text).split() == separated


def test_a_word_is_found_within_a_run_and_one_with_spaces_as_a_whole() -> None:
    texts = ["房间真的很好", "iPhone真的好", "the phone", "其 实", None]
    assert contains(texts, ["真的"]).tolist() == [True, True, False, False, False]
    assert contains(texts, ["iphone", "其 实"]).tolist() == [False, True, False, True, False]
    assert contains(texts, ["phone"]).tolist() == [False, False, True, False, False]
    assert re.search(phrase_pattern(" "), "any text") is None


def test_frequent_words_are_those_that_answers_find() -> None:
    random = np.random.default_rng(0)
    fillers = ["房间", "服务", "早餐", "位置", "价格"]
    texts = ["".join(random.choice(fillers, 4)) + ("真的" if i % 3 else "ok") for i in range(60)]
    words, occurs = frequent_words(texts)
    for word in ("真的", "ok", "房间"):
        np.testing.assert_array_equal(occurs[:, words.index(word)] > 0, contains(texts, [word]))
    components = WordComponents.fit(texts, 4, 0)
    assert components is not None
    assert {"真的", "ok"} <= set(components.vocabulary)
    stored = components.to_json()
    np.testing.assert_array_equal(
        WordComponents.from_json(stored).transform(texts), components.transform(texts)
    )
    earlier = {**stored, "vocabulary": ["很好用", *stored["vocabulary"][1:]]}
    del earlier["separated"]  # a release that did not separate words
    assert WordComponents.from_json(earlier).transform(["很好用"]).any()
