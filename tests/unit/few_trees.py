"""The evidence of ``outliers`` from few models in few rounds, for tests that look at other things.

Most recipes have this operator. It took a third of the time of the tests that run one. Many of them have the
same rows, from which the same is learnt.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

from operators.outliers import flip_share, mixture, trees, verdict
from operators.outliers.verdict import VerdictState, fit

LEARNT: dict[tuple[Any, ...], VerdictState] = {}
"""What was learnt from rows, by the arguments of the last ``MOST`` fits."""
MOST = 100


@contextmanager
def learn_from_few_trees() -> Iterator[None]:
    """Set it within the block and restore it behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees, "MAX_TREES", 4)
        patch.setattr(trees, "MIN_ROUNDS", 4)
        patch.setattr(mixture, "FLIP_ROUNDS", 1)
        patch.setitem(mixture.fit_ratios.__kwdefaults__, "rounds", 1)
        patch.setattr(flip_share, "STARTS", flip_share.STARTS[2:3])
        patch.setattr(flip_share, "LABEL_STARTS", flip_share.LABEL_STARTS[4:5])
        patch.setattr(verdict, "Config", partial(verdict.Config, n_folds=2))
        patch.setattr(verdict, "fit", fit_once)
        yield


@contextmanager
def learn_anew() -> Iterator[None]:
    """Let each run within the block learn for itself, for tests that compare what several have learnt."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verdict, "fit", fit)
        yield


def fit_once(*rows: Any, **options: Any) -> VerdictState:
    """Return what the operator learns, from memory where it has learnt from the same rows before."""
    key = tuple(_hashable(value) for value in (*rows, *sum(sorted(options.items()), ())))
    if key not in LEARNT:
        LEARNT[key] = fit(*rows, **options)
        if len(LEARNT) > MOST:
            del LEARNT[next(iter(LEARNT))]
    return LEARNT[key]


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return value
