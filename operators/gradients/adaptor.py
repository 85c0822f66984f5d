"""Streams shards through the per-sample gradient kernel with the trained probe."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from operators.base import (
    FEATURES,
    GRADIENT,
    LABEL,
    VECTOR,
    Apply,
    Context,
    Operator,
    OperatorError,
    OperatorParams,
    Resources,
)
from operators.columns import numpy_to_vectors, vectors_to_numpy
from operators.gradients.params import GradientsParams
from operators.gradients.projection import Projection


class Gradients(Operator[GradientsParams]):
    """Adds each row's gradient of the probe's softmax cross-entropy."""

    name = "gradients"
    version = 2
    Params: ClassVar[type[OperatorParams]] = GradientsParams
    uses = ("probe",)
    keeps_open = True
    prefers_gpu = True

    @property
    def requires(self) -> tuple[str, ...]:
        """Features and labels."""
        return FEATURES, LABEL

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """One vector a row: as long as the probe has chosen parameters, or the projection dimensions."""
        return (pa.field(GRADIENT, VECTOR),)

    @property
    def resources(self) -> Resources:
        """Resources of one actor."""
        return self.params.resources

    def open(self, context: Context) -> Apply:
        """Load the probe once. Raises OperatorError where ``parameters`` matches none of its parameters.

        Chunks are counted from each shard's first row, so that results do not depend on how many actors
        share the shards.
        """
        # Not at the top: planning imports this module, and needs no torch.
        from operators.gradients.kernel import per_sample_gradients
        from operators.gradients.rows import select_parameters
        from operators.models import load, prepare_device

        params = self.params
        resources = params.resources.on(float("inf"), prefers_gpu=True)
        device = prepare_device(resources.cpus, resources.gpus)
        model = load(context.states["probe"]).to(device)
        try:
            select_parameters(model, params.parameters)
        except ValueError as error:
            raise OperatorError(f"operators.gradients.parameters: {error}.") from error
        projection = None if params.projection is None else Projection(params.projection, context.seed)

        def apply(table: pa.Table) -> pa.Table:
            gradients = per_sample_gradients(
                model,
                vectors_to_numpy(table.column(FEATURES)),
                table.column(LABEL).to_numpy(),
                parameters=params.parameters,
                chunk_size=params.chunk_size,
                projection=projection,
            )
            return pa.table({GRADIENT: numpy_to_vectors(gradients)})

        return apply
