"""``eos`` with ``model: probe``: the recipe's probe, trained again with the weights that its losses give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from operators.base import FEATURES, LABEL, Apply, Context, Executor, Operator, OperatorError, Resources
from operators.columns import vectors_to_numpy
from operators.eos.adaptor import Eos
from operators.eos.params import EosParams
from operators.probe.params import ProbeParams


class EosByProbe(Eos):
    """Starts from the probe as the recipe has trained it: its fit to equal weights."""

    uses = ("ingest", "probe")
    keeps_open = True

    def __init__(self, params: EosParams, probe: ProbeParams | None = None) -> None:
        super().__init__(params)
        self._probe = probe

    def in_chain(self, chain: Sequence[Operator[Any]]) -> EosByProbe:
        """With the parameters of the recipe's probe. Raises OperatorError where it has none."""
        for operator in chain:
            if isinstance(operator.params, ProbeParams):
                return EosByProbe(self.params, operator.params)
        raise OperatorError("operators.eos.model is 'probe', but the recipe has no probe. Add `probe: {}`.")

    @property
    def requires(self) -> tuple[str, ...]:
        """What the probe learns from."""
        return FEATURES, LABEL

    @property
    def resources(self) -> Resources:
        """Resources of one actor, and of one worker of the training: the probe's."""
        return self._probe.resources if self._probe else self.params.resources

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Learn weights in one task or on Ray Train's workers; leaves the model and ``eos.json``.

        Returns what :meth:`Eos.fit` does.
        """
        from operators.eos.probe_job import ProbeJob, run_job

        if self._probe is None:
            raise OperatorError("operators.eos.model 'probe' stands alone; it needs a recipe with a probe.")
        states = context.states
        job = ProbeJob(context.shards, context.state, states["probe"], self.params, self._probe, context.seed)
        if executor.kind == "ray" and job.on_ray:
            # Not at the top: without Ray, and where one task is enough, it costs seconds for nothing.
            from operators.eos.probe_ray import run_on_ray

            return run_on_ray(job)
        (metrics,) = executor.map(run_job, [job], resources=self._probe.resources)
        return metrics

    def open(self, context: Context) -> Apply:
        """Load the trained model."""
        from operators.eos.probe_job import load_scorer

        score = load_scorer(context.state, self.resources)

        def apply(table: pa.Table) -> pa.Table:
            if not table.num_rows:
                return self.columns(np.empty(0))
            return self.columns(
                score(vectors_to_numpy(table.column(FEATURES)), table.column(LABEL).to_numpy())
            )

        return apply
