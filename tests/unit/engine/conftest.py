"""Tests of the engine learn the evidence of ``outliers`` from few trees in few rounds.

Most recipes have this operator. It took a fifth of the time of these tests, which look at other things.
"""

from collections.abc import Iterator

import pytest

from operators.outliers import mixture, trees


@pytest.fixture(scope="module", autouse=True)
def few_trees() -> Iterator[None]:
    """Set it for the tests of a module and restore it behind them, for those of the operator itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees, "MAX_TREES", trees.MIN_ROUNDS)
        patch.setattr(mixture, "FLIP_ROUNDS", 3)
        yield
