"""Tests of the engine learn from few trees, and once from the same rows, and render no figures."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from tests.unit.blank_pictures import draw_blank_pictures
from tests.unit.few_trees import learn_from_few_trees
from tests.unit.learnt_once import remember_fits

RENDERED = {"report", "compare", "evaluation"}
"""Folders whose tests look at figures."""
REPEATED = {"test_full_chain.py", "test_operator_runner.py", "test_run.py"}
"""Tests of whole runs that learn the same from the same rows."""


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


@pytest.fixture(scope="module", autouse=True)
def learnt_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set it for the tests of a module, but for those of runs that learn again."""
    with nullcontext() if request.path.name in REPEATED else remember_fits():
        yield
