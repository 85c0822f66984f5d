"""Values, recipes and files with random changes, and the outcomes that are allowed."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from connectors.base import ConnectorError
from engine.core.errors import RowsieveError

HOW_MANY = pytest.mark.parametrize("examples", [150, pytest.param(3000, marks=pytest.mark.faults)])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
)


def often(examples: int) -> settings:
    return settings(max_examples=examples, suppress_health_check=list(HealthCheck))


def judged(call: Callable[[], Any], *words: str) -> Any:
    """Return the result of a call; None if it refuses with an error of ours that contains the words."""
    try:
        return call()
    except (RowsieveError, ConnectorError) as error:
        text = str(error)
    assert text
    assert [word for word in words if word not in text] == []
    return None


def mutated(value: Any, data: st.DataObject) -> Any:
    """A JSON-able value with one part, anywhere, replaced, removed or added."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(value)))
        changed = dict(value)
        if data.draw(st.integers(0, 9)) == 0:
            del changed[key]
        else:
            changed[key] = mutated(value[key], data)
        return changed
    if isinstance(value, list) and value and data.draw(st.booleans()):
        index = data.draw(st.integers(0, len(value) - 1))
        return [*value[:index], mutated(value[index], data), *value[index + 1 :]]
    return data.draw(VALUES)
