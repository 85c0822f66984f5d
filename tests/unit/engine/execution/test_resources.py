"""A GPU is taken where one is preferred and there, unless the recipe decides."""

import pytest

from operators.base import Resources


@pytest.mark.parametrize(
    ("given", "there", "prefers", "expected"),
    [
        ({}, 2, True, 1.0),
        ({}, 0, True, 0.0),
        ({}, 2, False, 0.0),
        ({"gpus": 0}, 2, True, 0.0),
        ({"gpus": 0.5}, 2, True, 0.5),
        ({"gpus": 1}, 0, True, 1.0),
    ],
)
def test_who_gets_a_gpu(given: dict[str, float], there: float, prefers: bool, expected: float) -> None:
    assert Resources(**given).on(there, prefers_gpu=prefers).gpus == expected
