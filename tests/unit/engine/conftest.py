"""Tests of the engine learn the evidence of ``outliers`` from few trees, and render no figures."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from tests.unit.blank_pictures import draw_blank_pictures
from tests.unit.few_trees import learn_from_few_trees

RENDERED = {"report", "compare", "evaluation"}
"""Folders whose tests look at figures."""


@pytest.fixture(scope="module", autouse=True)
def few_trees() -> Iterator[None]:
    """Set it for the tests of a module and restore it behind them, for those of the operator itself."""
    with learn_from_few_trees():
        yield


@pytest.fixture(scope="module", autouse=True)
def blank_pictures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set it for the tests of a module, but for those of figures."""
    with nullcontext() if request.path.parent.name in RENDERED else draw_blank_pictures():
        yield
