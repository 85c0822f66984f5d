"""Components of words: scikit-learn's own pipeline, the same for any shards, and what does not fit."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from operators.base import ShardInfo, ShardReader
from operators.encode.word_components import WordComponents, sampled_texts

THINGS, KINDS = ("lamp", "chair", "kettle", "drill"), ("red", "blue", "green")


def texts(n: int = 300) -> list[str]:
    draw = np.random.default_rng(0)
    return [
        f"The {draw.choice(KINDS)} {draw.choice(THINGS)} and the {draw.choice(THINGS)}, number {k}"
        for k in range(n)
    ]


def fitted(n: int = 300, width: int = 5) -> WordComponents:
    found = WordComponents.fit(texts(n), width, seed=1)
    assert found is not None
    return found


def test_components_are_those_of_scikit_learn() -> None:
    found, counter = fitted(), TfidfVectorizer(min_df=3, sublinear_tf=True)
    expected = TruncatedSVD(5, random_state=1).fit_transform(counter.fit_transform(texts()))
    assert found.vocabulary == tuple(counter.get_feature_names_out())
    np.testing.assert_allclose(found.idf, counter.idf_, rtol=1e-5)
    np.testing.assert_allclose(found.transform(texts()), expected, atol=2e-3)  # half precision


class Reader:
    """300 texts as a column, cut into shards of one size."""

    def __init__(self, size: int) -> None:
        self.shards = [ShardInfo(k, f"s{k}", k * size, size, 0) for k in range(300 // size)]

    def read_source(self, shard: int, columns: Sequence[str]) -> pa.Table:
        info = self.shards[shard]
        rows = texts()[info.first_row : info.first_row + info.n_rows]
        return pa.table({columns[0]: pa.array([None, *rows[1:]])})


@pytest.mark.slow
def test_the_sample_does_not_depend_on_the_shards() -> None:
    def drawn(size: int) -> list[str]:
        reader = cast(ShardReader, Reader(size))
        found = (sampled_texts(reader, "note", 0.4, 7, k) for k in range(300 // size))
        return [text for part in found for text in part]

    assert 90 < len(drawn(300)) < 150
    lost = {text for text in drawn(300) if text not in drawn(50)}
    assert lost <= {texts()[k] for k in range(0, 300, 50)}  # the gaps at the beginning of each shard
    assert drawn(50) == [text for text in drawn(300) if text not in lost]


def test_each_row_by_itself() -> None:
    found, some = fitted(), texts(20)
    together = found.transform(some)
    assert np.array_equal(together, np.vstack([found.transform([text]) for text in some]))
    assert not found.transform([None, "", "§ unknown §"]).any()


def test_the_state_is_json_and_gives_the_same_bytes() -> None:
    found = fitted()
    again = WordComponents.from_json(json.loads(json.dumps(found.to_json())))
    assert json.dumps(again.to_json()) == json.dumps(found.to_json())
    assert np.array_equal(again.transform(texts(9)), found.transform(texts(9)))


@pytest.mark.parametrize("some", [[], ["", ""], ["a b c"] * 9, ["only once", "never twice"], ["word"] * 50])
def test_too_few_words_give_none(some: list[str]) -> None:
    assert WordComponents.fit(some, 5, seed=0) is None


def test_no_more_components_than_words() -> None:
    found = WordComponents.fit(["red lamp", "blue lamp", "red chair"] * 5, 64, seed=0)
    assert found is not None
    assert found.width == 3


@pytest.mark.parametrize("change", ["fewer words", "a word twice", "not finite", "no base64", "too wide"])
def test_a_forged_state_is_refused(change: str) -> None:
    forged = fitted().to_json()
    if change == "fewer words":
        del forged["vocabulary"][0]
    if change == "a word twice":
        forged["vocabulary"][0] = forged["vocabulary"][1]
    if change == "not finite":
        forged["idf"] = "AADAfwAA"[:8] + forged["idf"][8:]
    if change == "no base64":
        forged["components"] = "§"
    if change == "too wide":  # every row would have as many features
        wide = np.zeros(len(forged["vocabulary"]) * 513, "<f2").tobytes()
        forged["components"] = base64.b64encode(wide).decode()
    with pytest.raises(ValueError, match=r"differ in number|not finite|ASCII|base64|513 components"):
        WordComponents.from_json(forged)
