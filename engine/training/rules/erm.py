"""Empirical risk minimisation: the weighted mean."""

from __future__ import annotations

from engine.training.rules.base import Batch, RuleState
from operators.arrays import Float64


class Erm:
    """c_i = w_i / n, with weights of mean 1 over all train rows: a step of heavy rows is a larger one."""

    sees_all = False

    def __init__(self) -> None:
        self.state: RuleState = {}

    def weigh(self, batch: Batch) -> Float64:
        """Implement the method of :class:`engine.training.rules.base.Rule`."""
        return batch.weight / batch.n_rows
