"""The evidence of ``outliers`` from few models in few rounds, for tests that look at other things.

Most recipes have this operator. It took a third of the time of the tests that run one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from operators.outliers import flip_share, mixture, trees, verdict


@contextmanager
def learn_from_few_trees() -> Iterator[None]:
    """Set it within the block and restore it behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees, "MAX_TREES", trees.MIN_ROUNDS)
        patch.setattr(mixture, "FLIP_ROUNDS", 3)
        patch.setattr(flip_share, "STARTS", flip_share.STARTS[2:4])
        patch.setattr(flip_share, "LABEL_STARTS", flip_share.LABEL_STARTS[4:6])
        patch.setattr(verdict, "Config", partial(verdict.Config, n_folds=3))
        yield
