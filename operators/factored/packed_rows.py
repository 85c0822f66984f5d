"""Factored gradients as rows of one matrix, and the record of its layout."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from operators.factored.gradients import FactoredGradients, Layer

RECORD = "factors.json"


class FactoredLayer(NamedTuple):
    """A layer whose gradients are factored.

    ``n_inputs`` activations (0 where only the bias was chosen) come before ``n_outputs`` errors in a
    packed row.
    """

    path: str
    n_inputs: int
    n_outputs: int
    weight: bool
    bias: bool

    @property
    def width(self) -> int:
        """Numbers of a packed row."""
        return self.n_inputs + self.n_outputs


def unpack(packed: NDArray[Any], parts: Sequence[FactoredLayer]) -> FactoredGradients:
    """Return packed rows (n, width) as factored gradients; they are views, not copies.

    Raises ValueError where the rows are not as wide as the parts.
    """
    width = sum(part.width for part in parts)
    if packed.shape[1] != width:
        raise ValueError(
            f"packed gradients have {packed.shape[1]} numbers per row, but their layers "
            f"({', '.join(part.path or 'the model itself' for part in parts)}) have {width}"
        )
    layers, start = [], 0
    for part in parts:
        middle, stop = start + part.n_inputs, start + part.width
        layers.append(Layer(packed[:, start:middle], packed[:, middle:stop], part.weight, part.bias))
        start = stop
    return FactoredGradients(layers)


def parts_of(gradients: FactoredGradients) -> list[FactoredLayer]:
    """Return the parts into which gradients are packed; their layers are numbered."""
    sizes = ((layer.activations.shape[1], layer.errors.shape[1]) for layer in gradients.layers)
    return [
        FactoredLayer(str(number), *size, layer.weight, layer.bias)
        for number, (size, layer) in enumerate(zip(sizes, gradients.layers, strict=True))
    ]


def write_parts(folder: Path, parts: Sequence[FactoredLayer]) -> None:
    """Store the layers of packed rows."""
    record = {"layers": [part._asdict() for part in parts]}
    (folder / RECORD).write_text(json.dumps(record, indent=1), "utf-8")


def read_parts(folder: Path) -> list[FactoredLayer]:
    """Read the layers that :func:`write_parts` stored."""
    from operators.bounded_json import read_json  # pyarrow, which the check of a GPU does without

    record = read_json(folder / RECORD)
    return [FactoredLayer(**layer) for layer in record["layers"]]
