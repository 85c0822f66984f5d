"""MinHash: estimates of the similarity, and the older row of each pair as comparing all pairs finds it."""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import numpy.typing as npt
import pytest

from operators.duplicates import minhash
from operators.duplicates.minhash import (
    N_HASHES,
    RECALL,
    band_keys,
    choose_bands,
    older_in_band,
    plain_text,
    shingles,
    signatures,
    similarities,
)
from tests.unit.operators.duplicates.on_texts import find_duplicates

pytest.importorskip("rensa", reason="needs rensa, of rowsieve[duplicates]")


def texts(n: int, seed: int = 0, changes: int = 6) -> list[str]:
    """Texts of 40 words; each of the second half is one of the first with up to ``changes`` other words."""
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(list("abcdefghijklmnop"), rng.integers(2, 9))) for _ in range(2000)]
    found = [rng.choice(words, 40) for _ in range(n // 2)]
    for _ in range(n - n // 2):
        copy = found[rng.integers(n // 2)].copy()
        copy[rng.integers(0, 40, rng.integers(0, changes + 1))] = rng.choice(words)
        found.append(copy)
    return [" ".join(one) for one in found]


def all_pairs(given: list[str], threshold: float) -> list[int]:
    """The oldest near row of each text, by comparing each with all older ones."""
    has_any, found = signatures(given, 8)
    places = np.cumsum(has_any) - 1
    result = []
    for row in range(len(given)):
        older = np.flatnonzero(has_any[:row]) if has_any[row] else np.empty(0, np.int64)
        near = similarities(found, np.full(len(older), places[row]), places[older]) >= threshold
        result.append(int(older[near][0]) if near.any() else -1)
    return result


@pytest.mark.parametrize("threshold", [0.6, 0.8, 0.95, 1.0])
def test_nearly_all_pairs_are_found_and_no_others(threshold: float) -> None:
    given = texts(600)
    expected, found = np.array(all_pairs(given, threshold)), find_duplicates(given, threshold).of
    assert (expected >= 0).sum() > 40
    assert (found[expected < 0] < 0).all()
    assert np.mean(found[expected >= 0] == expected[expected >= 0]) >= RECALL


def test_the_similarity_is_that_of_the_sets() -> None:
    given = texts(400, seed=1, changes=20)
    _, found = signatures(given, 8)
    rng = np.random.default_rng(0)
    rows, others = np.arange(200, 400), rng.integers(0, 200, 200)
    sets = [set(shingles(plain_text(text), 8)) for text in given]
    copies = [max(range(200), key=lambda other, row=row: len(sets[row] & sets[other])) for row in rows]  # type: ignore[misc]
    for pairs in (others, np.array(copies)):
        exact = np.array(
            [len(sets[a] & sets[b]) / len(sets[a] | sets[b]) for a, b in zip(rows, pairs, strict=True)]
        )
        error = similarities(found, rows, pairs) - exact
        assert abs(error.mean()) < 0.01
        assert np.abs(error).max() < 4.5 * 0.5 / N_HASHES**0.5


def test_case_spaces_and_forms_of_characters_do_not_matter() -> None:
    given = [
        "A naïve  example of a TEXT",
        "a nai\u0308ve example\nof a text",
        "\uff41 naïve example of a text",
    ]
    assert find_duplicates(given).of.tolist() == [-1, 0, 0]


def test_texts_without_characters_are_no_duplicates() -> None:
    found = find_duplicates(["", "  \n", "", "x", "x", "y"])
    assert found.of.tolist() == [-1, -1, -1, -1, 3, -1]
    assert found.similarity.tolist() == [0, 0, 0, 0, 1, 0]


def test_equal_texts_belong_to_the_oldest_however_many_there_are() -> None:
    given = ["the same sentence again", "quite another sentence"] * 400
    assert find_duplicates(given).of.tolist() == [-1, -1, *([0, 1] * 399)]


def test_old_rows_stay_what_they_are_when_new_ones_come() -> None:
    given = texts(300, seed=2)
    whole = find_duplicates(given)
    first = find_duplicates(given[:200])
    assert whole.of[:200].tolist() == first.of.tolist()
    assert whole.similarity[:200].tolist() == first.similarity.tolist()


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8, 0.99, 1.0])
def test_bands_find_pairs_at_the_threshold(threshold: float) -> None:
    bands, length = choose_bands(threshold)
    assert bands * length <= N_HASHES
    assert 1 - (1 - threshold**length) ** bands >= RECALL


def test_a_row_is_compared_with_a_bounded_number_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minhash, "COMPARED", 2)
    compared: list[int] = []
    exact = minhash.similarities
    monkeypatch.setattr(
        minhash, "similarities", lambda *given: compared.append(len(given[1])) or exact(*given)
    )
    given = texts(400, seed=3)
    assert (find_duplicates(given).of >= 0).sum() > 40
    assert len(compared) <= 2 * choose_bands(0.8)[0]


def test_the_memory_of_a_text_does_not_grow_with_its_shingles() -> None:
    """A cell may have as many bytes as a shard, and a shingle takes sixty in memory."""
    text = "lorem ipsum  " * 40_000
    signatures(["a warm start"], 8)
    tracemalloc.start()
    try:
        signatures([text], 8)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(text)
    assert signatures([text], 8)[1].tolist() == signatures(["LOREM\tipsum " * 400], 8)[1].tolist()


def test_every_space_of_unicode_is_one() -> None:
    spaces = [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()]
    assert len(spaces) > 20
    assert (
        plain_text("".join(f"{space}A{space}{space}" for space in spaces)) == "a " * (len(spaces) - 1) + "a"
    )


class Recorded:
    """Signatures that note how many are read at a time."""

    def __init__(self, found: npt.NDArray[np.uint32]) -> None:
        self.found, self.most = found, 0

    def __getitem__(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
        self.most = max(self.most, len(rows))
        return self.found[rows]


def test_signatures_in_memory_are_bounded_where_all_texts_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = signatures(["n/a"] * 100 + texts(60), 8)
    (keys, *_), ids = band_keys(found, 0.8), np.arange(160)
    expected = older_in_band(keys, ids, found, 0.8, ids >= 20)
    recorded = Recorded(found)
    monkeypatch.setattr(minhash, "ROWS_AT_ONCE", 16)
    rows, others, similar = older_in_band(keys, ids, recorded, 0.8, ids >= 20)
    order = np.argsort(rows)
    assert recorded.most == 16
    for ours, theirs in zip((rows, others, similar), expected, strict=True):
        assert ours[order].tolist() == theirs[np.argsort(expected[0])].tolist()
