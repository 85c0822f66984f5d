"""Per-sample gradients of linear layers as factors, exact and without flat gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from operators.factored import FactoredLayer
from operators.gradients.kernel import (
    MAX_CHUNK,
    Classes,
    Features,
    Rows,
    by_layers,
    copy_to_host,
    in_chunks,
    rows_at_once,
    select_parameters,
)
from operators.gradients.layers import Factors, Gradient, evaluating


def packed_gradients(
    model: nn.Module, X: Features, y: Classes, *, parameters: str | None = None, chunk_size: int | None = None
) -> tuple[NDArray[np.float32], list[FactoredLayer]]:
    """Compute the gradients of each row as one matrix (n, width) of factors, layer by layer, with its layout.

    ``operators.factored.unpack`` reads the matrix; ``flat()`` of its result is what
    :func:`~operators.gradients.per_sample_gradients` returns, to 1e-5 of a row's norm. The layers are in the
    order of their first chosen parameter.

    Parameters
    ----------
    model, X, y, parameters : as in ``per_sample_gradients``. Every chosen parameter must be that of an
        ``nn.Linear`` which sees one vector a row.
    chunk_size : rows per forward pass, halved while a GPU runs out of memory. Default: 4,096; on a GPU
        512 MiB of factors, at most 16,384 rows.

    Raises
    ------
    ValueError
        As there; or a chosen parameter's gradient has no such factors, which the text names.
    """
    selected = select_parameters(model, parameters)
    rows = Rows(X, y, next(iter(selected.values())))
    if not len(rows):
        raise ValueError("X has no rows, so the factors of the gradients are unknown; give at least one row")
    with evaluating(model):
        trial = rows.try_on(model)
        compute, fault = by_layers(model, selected, trial)
        if compute is None:
            raise ValueError(f"the gradients of this model have no factors: {fault}. Use flat gradients.")
        parts = _parts(selected, compute(trial, rows.chunk(slice(0, 1))[1].expand(2)))
        packed = np.empty((len(rows), sum(part.width for part in parts)), np.float32)

        def fill(some: slice) -> None:
            gradients = dict(zip(selected, compute(*rows.chunk(some)), strict=True))
            start = 0
            for values in (piece for part in parts for piece in _pieces(part, gradients)):
                stop = start + values.shape[1]
                copy_to_host(values, torch.from_numpy(packed[some, start:stop]))
                start = stop

        on_cpu = trial.device.type == "cpu"
        usual = MAX_CHUNK if on_cpu else rows_at_once(None, packed.shape[1], trial.device)
        in_chunks(fill, len(rows), chunk_size or usual)
    return packed, parts


def _parts(selected: Mapping[str, nn.Parameter], gradients: Sequence[Gradient]) -> list[FactoredLayer]:
    """Find the layers behind the chosen parameters, from trial gradients of two rows."""
    found = dict(zip(selected, gradients, strict=True))
    paths = dict.fromkeys(name.rpartition(".")[0] for name in selected)
    parts = []
    for path in paths:
        names = {name.rpartition(".")[2]: name for name in selected if name.rpartition(".")[0] == path}
        weight = found[names["weight"]] if "weight" in names else None
        bias: Any = found.get(names.get("bias", ""))
        one_vector = isinstance(weight, Factors) and weight.errors.shape[1] == 1
        if not (names.keys() <= {"weight", "bias"} and (one_vector or weight is None)):
            raise ValueError(
                f"the gradients in {', '.join(repr(name) for name in names.values())} are not products of "
                "one activation and one error per row; only those of nn.Linear layers with one vector per "
                "row are. Choose such layers by `parameters`, or use flat gradients."
            )
        n_outputs, n_inputs = selected[names["weight"]].shape if weight is not None else (bias.shape[1], 0)
        parts.append(FactoredLayer(path, n_inputs, n_outputs, weight is not None, bias is not None))
    return parts


def _pieces(part: FactoredLayer, gradients: Mapping[str, Gradient]) -> list[Tensor]:
    """Return the activations (m, n_inputs) and errors (m, n_outputs) of a layer."""
    prefix = f"{part.path}." if part.path else ""
    if not part.weight:
        return [gradients[f"{prefix}bias"]]  # type: ignore[list-item]
    factors = cast(Factors, gradients[f"{prefix}weight"])
    return [factors.activations[:, 0], factors.errors[:, 0]]
