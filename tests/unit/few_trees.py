"""The evidence of ``outliers`` from few trees in few rounds, for tests that look at other things.

Most recipes have this operator. It took a fifth of the time of the tests that run one.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from operators.outliers import mixture, trees


@contextmanager
def learn_from_few_trees() -> Iterator[None]:
    """Set it within the block and restore it behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees, "MAX_TREES", trees.MIN_ROUNDS)
        patch.setattr(mixture, "FLIP_ROUNDS", 3)
        yield
