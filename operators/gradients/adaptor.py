"""The operator ``gradients``, which computes per-sample gradients of the trained probe shard by shard."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from operators.arrays import Float32
from operators.base import (
    FACTORS,
    FEATURES,
    GRADIENT,
    LABEL,
    ROW_ID,
    VECTOR,
    Apply,
    Context,
    Cost,
    Executor,
    Operator,
    OperatorError,
    OperatorParams,
    ReportContext,
    ShardReader,
)
from operators.bounded_json import read_json
from operators.columns import numpy_to_vectors, vectors_to_numpy
from operators.gradients.names import exactly, found_in
from operators.gradients.params import GradientsParams
from operators.gradients.projection import Projection
from operators.hashing import draw_rows, row_hashes, uniform
from operators.report import ReportSection

if TYPE_CHECKING:
    from torch import nn

    from operators.factored import FactoredLayer

SAMPLE_ROWS, SAMPLE_BYTES = 512, 2**28
"""Largest number of rows on which a projection is measured, and largest size of their gradients."""
TRIAL_ROWS = 256
"""Rows from which the factors of gradients are determined."""
SPARE = 2
"""Rows with a hash below a limit, per row of the sample."""
PURPOSE = "gradients/sample"
CHUNK = 512
"""Rows per forward pass on the CPU, unless the recipe has a number. A GPU has more; see the kernel."""
PROJECTION = "projection.json"
"""File of the state with the projection and its error of cosines."""
BIAS = "bias.json"
"""File of the state with the length of the inputs of each layer, for balanced biases."""
_log = logging.getLogger(__name__)


class Gradients(Operator[GradientsParams]):
    """Adds each row's gradient of the probe's softmax cross-entropy."""

    name = "gradients"
    version = 5
    cost = Cost(19.7, 6.45, 63)
    Params: ClassVar[type[OperatorParams]] = GradientsParams
    uses = ("probe",)
    keeps_open = True
    prefers_gpu = True

    @classmethod
    def variant(cls, params: Mapping[str, Any]) -> type[Operator[Any]]:
        """Return another class if gradients are ``stored``, since it computes none."""
        if params.get("stored") is None:
            return cls
        from operators.gradients.stored_adaptor import StoredGradients

        return StoredGradients

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the required columns: features and labels."""
        return FEATURES, LABEL

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """Return the added column of vectors: one number per chosen parameter, or per projected dimension.

        Factored gradients have a column of another name, with the factors layer by layer.
        """
        return (pa.field(self._column, VECTOR),)

    @property
    def _column(self) -> str:
        return FACTORS if self.params.form == "factored" else GRADIENT

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Measure a projection on at most 512 rows, or find the layers of factored gradients.

        Stores ``bias.json`` if biases are balanced, and ``projection.json`` or ``factors.json``.

        Returns
        -------
        For a projection ``projection_error_mean`` and ``projection_error_p99``, absolute errors of centred
        cosines, and ``projection_pairs``, the number of pairs, without errors if there is none;
        ``numbers_per_row`` for factored gradients.

        Raises
        ------
        OperatorError
            Gradients in a chosen parameter cannot be factored.
        """
        params = self.params
        projected = params.form != "factored" and params.projection is not None
        rows = _draw(context, executor, SAMPLE_ROWS) if projected or params.bias == "balanced" else None
        if params.bias == "balanced":
            measure = partial(_measure_inputs, params, rows)
            list(executor.map(measure, [context]))  # few rows, which need no GPU
        if not projected and params.form != "factored":
            return {}
        work = partial(_measure, params, rows) if projected else partial(_find_factors, params)
        found = next(iter(executor.map(work, [context], resources=params.resources)))
        if "projection_error_mean" in found and params.projection and not params.projection.accept_error:
            _log.warning(
                "operators.gradients: the projection changes cosines by %.3f on average, and by more than "
                "%.3f in 1 %% of pairs, so groups may differ from those of the gradients. Leave out "
                "`projection`, or set projection.accept_error: true.",
                found["projection_error_mean"],
                found["projection_error_p99"],
            )
        return found

    @property
    def can_predict(self) -> bool:
        """Return True: new rows use the lengths of biases and the layout of factors of ``fit``."""
        return True

    def report_section(self, context: ReportContext) -> ReportSection | None:
        """Return the section with maps of gradient space."""
        from operators.gradients.report import gradient_section

        return gradient_section(context, self._column)

    def open(self, context: Context) -> Apply:
        """Return a function that computes the gradients of a shard's rows. The probe is loaded once.

        Raises OperatorError if ``parameters`` matches none of the probe's parameters. Chunks are counted from
        each shard's first row, so that results do not depend on how many actors share the shards.
        """
        compute = _opened(self.params, context)
        return lambda table: pa.table({self._column: numpy_to_vectors(compute(table, self.params))})


class _Opened:
    """A loaded probe on its device."""

    def __init__(self, model: nn.Module, pattern: str | None, size: int, seed: int) -> None:
        self._model, self._pattern, self.size, self._seed = model, pattern, size, seed

    def __call__(self, table: pa.Table, params: GradientsParams) -> Float32:
        """Compute the gradients of a shard's rows.

        Raises OperatorError if the model or the rows do not allow any.
        """
        from operators.gradients.kernel import per_sample_gradients

        if params.form == "factored":
            return self.factored(table, params)[0]
        wanted = params.projection
        try:
            return per_sample_gradients(
                self._model,
                vectors_to_numpy(table.column(FEATURES)),
                table.column(LABEL).to_numpy(),
                parameters=self._pattern,
                chunk_size=self._rows_at_once(params),
                route=params.route,
                projection=Projection(wanted.dim, self._seed, wanted.method) if wanted else None,
            )
        except ValueError as error:
            raise OperatorError(f"operators.gradients: {error}") from error

    def factored(self, table: pa.Table, params: GradientsParams) -> tuple[Float32, list[FactoredLayer]]:
        """Compute the packed gradients of a shard's rows, and their layout.

        Raises OperatorError as a call does.
        """
        from operators.gradients.factoring import packed_gradients

        if not table.num_rows:
            return np.empty((0, 0), np.float32), []
        try:
            return packed_gradients(
                self._model,
                vectors_to_numpy(table.column(FEATURES)),
                table.column(LABEL).to_numpy(),
                parameters=self._pattern,
                chunk_size=self._rows_at_once(params),
            )
        except ValueError as error:
            raise OperatorError(
                f"operators.gradients: {error} In a recipe flat gradients are `gradients: {{form: flat}}`."
            ) from error

    def _rows_at_once(self, params: GradientsParams) -> int | None:
        on_gpu = next(self._model.parameters()).is_cuda
        return params.chunk_size or (None if on_gpu else CHUNK)


def _opened(params: GradientsParams, context: Context) -> _Opened:
    # Imported here because planning imports this module and must not load torch.
    from operators.gradients.balanced_bias import balanced
    from operators.models import load, prepare_device

    resources = params.resources.on(float("inf"), prefers_gpu=True)
    device = prepare_device(resources.cpus, resources.gpus)
    model = load(context.states["probe"]).to(device)
    pattern = _pattern(model, params)
    size = sum(parameter.numel() for parameter in _chosen(model, pattern).values())
    if params.bias == "balanced":
        lengths = read_json(context.state / BIAS)
        model, pattern = balanced(model, lengths, pattern)
    return _Opened(model.eval(), pattern, size, context.seed)


def _pattern(model: nn.Module, params: GradientsParams) -> str | None:
    """Return an expression of exactly the parameters that the recipe's pattern names; None: of all.

    Raises OperatorError if it names none.
    """
    if params.parameters is None:
        return None
    names = [name for name, _ in model.named_parameters()]
    if found := found_in(names, params.parameters):
        return exactly(found)
    raise OperatorError(
        f"operators.gradients.parameters: {params.parameters!r} matches no trainable parameter of the model. "
        f"It has: {', '.join(names)}."
    )


def _chosen(model: nn.Module, pattern: str | None) -> Mapping[str, nn.Parameter]:
    from operators.gradients.kernel import select_parameters

    try:
        return select_parameters(model, pattern)
    except ValueError as error:
        raise OperatorError(f"operators.gradients.parameters: {error}.") from error


def _measure_inputs(params: GradientsParams, sample: pa.Table, context: Context) -> None:
    """Store the lengths of the inputs of each linear layer on a sample of rows."""
    import torch

    from operators.gradients.balanced_bias import input_lengths
    from operators.models import load

    model, lengths = load(context.states["probe"]), {}
    pattern = _pattern(model, params)
    _chosen(model, pattern)
    if sample.num_rows:
        X = torch.tensor(vectors_to_numpy(sample.column(FEATURES)))
        lengths = input_lengths(model, X, pattern)
    (context.state / BIAS).write_text(json.dumps(lengths), "utf-8")


def _measure(params: GradientsParams, sample: pa.Table, context: Context) -> dict[str, float]:
    from operators.gradients.projection import cosine_distortion

    compute = _opened(params, context)
    n_rows = max(2, min(SAMPLE_ROWS, SAMPLE_BYTES // (4 * compute.size)))
    drawn = draw_rows(sample.column(ROW_ID).to_numpy(), n_rows, context.seed, PURPOSE)
    sample = sample.take(drawn)
    flat = compute(sample, params.model_copy(update={"projection": None}))
    found = cosine_distortion(flat, compute(sample, params), sample.column(LABEL).to_numpy())
    figures = {"projection_pairs": float(found.pairs)}
    if found.pairs:
        figures |= {"projection_error_mean": found.mean, "projection_error_p99": found.p99}
    else:
        _log.warning(
            "operators.gradients: the error that the projection causes in cosines is not known, because no "
            "two of %d rows drawn at random have the same class.",
            sample.num_rows,
        )
    record = {**params.model_dump(mode="json")["projection"], **figures}
    (context.state / PROJECTION).write_text(json.dumps(record, indent=1), "utf-8")
    return figures


def _find_factors(params: GradientsParams, context: Context) -> dict[str, float]:
    """Store the layout of packed rows, from the first rows of the first shard that has any."""
    from operators.factored.packed_rows import write_parts

    compute = _opened(params, context)
    parts: list[FactoredLayer] = []
    for shard in context.shards.shards:
        table = context.shards.read(shard.index, [FEATURES, LABEL]).slice(0, TRIAL_ROWS)
        if table.num_rows:
            parts = compute.factored(table, params)[1]
            break
    write_parts(context.state, parts)
    return {"numbers_per_row": float(sum(part.width for part in parts))}


def _draw(context: Context, executor: Executor, n: int) -> pa.Table:
    """Draw n rows at random, by the hashes of their ids: the draw does not depend on shards or their order.

    Features are read of the shards that have a row of the draw, or nearly one.
    """
    shards = context.shards.shards
    total = sum(shard.n_rows for shard in shards)
    limit = min(1.0, SPARE * n / max(total, 1))
    while True:
        find = partial(_candidates, context.shards, limit, context.seed)
        found = [
            table for table in executor.map(find, [shard.index for shard in shards]) if table is not None
        ]
        if limit == 1 or sum(table.num_rows for table in found) >= n:
            break
        limit = min(1.0, 8 * limit)  # most rows are rejected or held out
    if not found:
        return context.shards.read(shards[0].index, [FEATURES, LABEL])
    table = pa.concat_tables(found).sort_by(ROW_ID)
    return table.take(draw_rows(table.column(ROW_ID).to_numpy(), n, context.seed, PURPOSE))


def _candidates(shards: ShardReader, limit: float, seed: int, shard: int) -> pa.Table | None:
    """Return the rows of a shard whose hashes are below the share ``limit`` of all; None without any."""
    row_ids = shards.read(shard, []).column(ROW_ID).to_numpy()
    near = uniform(row_hashes(row_ids, seed, PURPOSE)) < limit
    if not near.any():
        return None
    return shards.read(shard, [FEATURES, LABEL]).filter(pa.array(near))
