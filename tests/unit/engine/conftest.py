"""Tests of the engine learn the evidence of ``outliers`` from few trees in few rounds."""

from collections.abc import Iterator

import pytest

from tests.unit.few_trees import learn_from_few_trees


@pytest.fixture(scope="module", autouse=True)
def few_trees() -> Iterator[None]:
    """Set it for the tests of a module and restore it behind them, for those of the operator itself."""
    with learn_from_few_trees():
        yield
