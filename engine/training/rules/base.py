"""The protocol that every rule implements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64

RuleState = dict[str, Float64]


@dataclass(frozen=True)
class Batch:
    """Rows of one step: all of them for a rule that ``sees_all``, else some."""

    loss: Float64
    """(b,) of a classification in the objective's unit, nats of the cross-entropy; of a regression divided by
    the mean loss of the train rows' mean as a constant answer."""
    weight: Float64
    """(b,) >= 0, mean 1 over the train rows."""
    group: npt.NDArray[np.int64]
    """(b,) index of the group; -1 where a row is in none."""
    n_rows: int
    """Rows of the whole step."""


@runtime_checkable
class Rule(Protocol):
    """Called once a step, on every worker alike; it must not be random.

    The step goes down the gradient of sum_i c_i loss_i, with the c_i taken as constants.
    """

    sees_all: bool
    """Whether ``weigh`` needs the rows of the whole step; else it gets a slot's, which is cheaper."""
    state: RuleState
    """State that changes from step to step: part of every checkpoint."""

    def weigh(self, batch: Batch) -> Float64:
        """Return the factor of each row, c (b,) >= 0. May change ``state`` if ``sees_all``."""
        ...
