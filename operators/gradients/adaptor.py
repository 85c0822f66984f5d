"""Streams shards through the per-sample gradient kernel with the trained probe."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from operators.base import (
    FEATURES,
    GRADIENT,
    LABEL,
    VECTOR,
    Apply,
    Context,
    Executor,
    Operator,
    OperatorError,
    OperatorParams,
    Resources,
)
from operators.columns import numpy_to_vectors, vectors_to_numpy
from operators.gradients.params import GradientsParams
from operators.gradients.projection import Projection

if TYPE_CHECKING:
    from torch import nn

SAMPLE_ROWS, SAMPLE_BYTES = 512, 2**28
"""Most rows on which a projection is measured, and most memory for their gradients."""
_log = logging.getLogger(__name__)


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

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Measure the projection, if there is one, on at most 512 rows; otherwise nothing.

        Returns
        -------
        ``projection_error_mean`` and ``projection_error_p99`` of centred cosines, absolute;
        ``projection_pairs`` they were measured on.
        """
        wanted = self.params.projection
        if wanted is None:
            return {}
        measure = partial(_measure, self.params)
        found = next(iter(executor.map(measure, [context], resources=self.params.resources)))
        if not wanted.accept_error:
            _log.warning(
                "operators.gradients: projected gradients are for looking, not for deciding on eps. Their "
                "cosines are off by %.3f on average, and by more than %.3f in 1 %% of pairs; groups found in "
                "them can be others. Leave out `projection`, or accept that: projection.accept_error: true.",
                found["projection_error_mean"],
                found["projection_error_p99"],
            )
        return found

    def open(self, context: Context) -> Apply:
        """Load the probe once. Raises OperatorError where ``parameters`` matches none of its parameters.

        Chunks are counted from each shard's first row, so that results do not depend on how many actors
        share the shards.
        """
        compute = _opened(self.params, context)
        return lambda table: pa.table({GRADIENT: numpy_to_vectors(compute(table, self.params))})


class _Opened:
    """A probe, ready where it computes."""

    def __init__(self, model: nn.Module, size: int, seed: int) -> None:
        self._model, self.size, self._seed = model, size, seed

    def __call__(self, table: pa.Table, params: GradientsParams) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Gradients of a shard's rows. Raises OperatorError where the model or the rows do not allow any."""
        from operators.gradients.kernel import per_sample_gradients

        wanted = params.projection
        try:
            return per_sample_gradients(
                self._model,
                vectors_to_numpy(table.column(FEATURES)),
                table.column(LABEL).to_numpy(),
                parameters=params.parameters,
                chunk_size=params.chunk_size,
                route=params.route,
                projection=Projection(wanted.dim, self._seed, wanted.method) if wanted else None,
            )
        except ValueError as error:
            raise OperatorError(f"operators.gradients: {error}") from error


def _opened(params: GradientsParams, context: Context) -> _Opened:
    # Not at the top: planning imports this module, and needs no torch.
    from operators.gradients.rows import select_parameters
    from operators.models import load, prepare_device

    resources = params.resources.on(float("inf"), prefers_gpu=True)
    device = prepare_device(resources.cpus, resources.gpus)
    model = load(context.states["probe"]).to(device)
    try:
        chosen = select_parameters(model, params.parameters)
    except ValueError as error:
        raise OperatorError(f"operators.gradients.parameters: {error}.") from error
    return _Opened(model, sum(parameter.numel() for parameter in chosen.values()), context.seed)


def _measure(params: GradientsParams, context: Context) -> dict[str, float]:
    from operators.gradients.distortion import cosine_distortion

    compute = _opened(params, context)
    rows = max(2, min(SAMPLE_ROWS, SAMPLE_BYTES // (4 * compute.size)))
    sample = pa.concat_tables(_sample(context, rows))
    flat = compute(sample, params.model_copy(update={"projection": None}))
    found = cosine_distortion(flat, compute(sample, params), sample.column(LABEL).to_numpy())
    return {
        "projection_error_mean": found.mean,
        "projection_error_p99": found.p99,
        "projection_pairs": float(found.pairs),
    }


def _sample(context: Context, n: int) -> Iterator[pa.Table]:
    """About n rows of at most eight shards, evenly spread over both."""
    shards = context.shards.shards
    chosen = shards[:: max(1, -(-len(shards) // 8))]
    step = max(1, -(-sum(shard.n_rows for shard in chosen) // n))
    for shard in chosen:
        table = context.shards.read(shard.index, [FEATURES, LABEL])
        yield table.take(pa.array(np.arange(0, table.num_rows, step)))
