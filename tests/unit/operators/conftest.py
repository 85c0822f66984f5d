"""Tests of other operators learn the evidence of ``outliers`` from few trees in few rounds."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from tests.unit.few_trees import learn_from_few_trees

WHOLE = {"operators", "outliers"}
"""Folders whose tests look at the operator itself, those that look at every operator among them."""


@pytest.fixture(scope="module", autouse=True)
def few_trees(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set it for the tests of a module and restore it behind them, for those of the operator itself."""
    with nullcontext() if request.path.parent.name in WHOLE else learn_from_few_trees():
        yield
