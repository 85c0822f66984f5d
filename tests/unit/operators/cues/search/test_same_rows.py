"""Columns that say the same of the rows are one suspect, and have one answer."""

from __future__ import annotations

import numpy as np
import pytest

from operators.cues.search.same_rows import equal_but_for_sign, grouped, occur_together, with_same

RNG = np.random.default_rng(0)
SIDE = RNG.integers(0, 2, 400)
OTHER = RNG.normal(size=400)
Z = np.column_stack([OTHER, 2.0 * SIDE - 1, OTHER + 0.01 * SIDE, 1.0 - 2 * SIDE]).astype(np.float32)


def test_a_column_and_its_complement_say_the_same() -> None:
    assert equal_but_for_sign(Z[:, 1], Z[:, 3])
    assert not equal_but_for_sign(Z[:, 0], Z[:, 2])
    changed = Z[:, 3].copy()
    changed[-1] *= -1
    assert not equal_but_for_sign(Z[:, 1], changed)


def test_words_of_nearly_the_same_texts_say_the_same() -> None:
    one = np.repeat([1.0, 0.0], [100, 300])
    assert occur_together(one, np.roll(one, 2))
    assert not occur_together(one, np.roll(one, 5))
    assert not occur_together(one, 1 - one)


@pytest.mark.parametrize(
    ("top", "always", "expected"),
    [
        (4, (), [(1, 3), (0,), (2,)]),
        (2, (), [(1, 3), (0,)]),
        (1, (2,), [(1, 3), (2,)]),
        (1, (3,), [(3, 1)]),
    ],
)
def test_a_twin_takes_no_place_of_another_suspect(
    top: int, always: tuple[int, ...], expected: list[tuple[int, ...]]
) -> None:
    assert grouped([1, 3, 0, 2], Z, equal_but_for_sign, top=top, always=always) == expected


def test_an_answer_holds_for_columns_that_say_the_same_unless_they_have_their_own() -> None:
    assert with_same([3], Z) == {1, 3}
    assert with_same([3], Z, [1]) == {3}
    assert with_same([0, 9], Z) == {0, 9}
