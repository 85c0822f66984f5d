"""A GPU is taken where one is preferred and there, unless the recipe decides."""

import pytest
from pydantic import ValidationError

from operators.base import Resources
from operators.probe.params import ProbeParams


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


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e308, -1])
@pytest.mark.parametrize("key", ["cpus", "gpus"])
def test_resources_that_nobody_has_are_refused(key: str, value: float) -> None:
    """They ended in errors of the conversion to threads."""
    with pytest.raises(ValidationError, match=key):
        Resources.model_validate({key: value})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_parameter_is_a_finite_number(value: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        ProbeParams.model_validate({"lr": value})
