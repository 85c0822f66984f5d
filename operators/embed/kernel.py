"""Rows through an encoder, in batches of equal shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

WINDOW = 16
"""So many batches are prepared together: enough to fill batches of equal shape, and bounded memory."""

Floats = NDArray[np.float32]


class Encoder(Protocol):
    """A pretrained network, loaded and in eval mode."""

    @property
    def takes(self) -> Literal["text", "image"]:
        """Kind of value that ``prepare`` takes: a str, or for images the bytes or Path of one."""
        ...

    def prepare(self, value: Any) -> NDArray[Any]:
        """Return one row's input. Raises ValueError with the reason if the value cannot be used."""
        ...

    def encode(self, batch: NDArray[Any]) -> Floats:
        """Map stacked inputs of one shape (b, ...) to vectors (b, d); d is the same for every shape."""
        ...


def embed_rows(
    encoder: Encoder, values: Sequence[Any], *, batch_size: int = 32
) -> tuple[Floats, dict[int, str]]:
    """Encode every value that can be used.

    Rows whose prepared inputs have the same shape (texts of the same number of tokens) share a batch, so
    that nothing is padded and a row's vector does not depend on the length of its neighbours. Batches are
    filled in row order within windows of 16 batches: the result depends on the values and ``batch_size``
    alone, to the byte on one kind of device and number of threads.

    Parameters
    ----------
    values : n rows; None where there is none.
    batch_size : most rows of a forward pass.

    Returns
    -------
    vectors, reasons
        (m, d) float32 of the m usable rows, in row order, and row -> reason for the others.
    """
    vectors: list[Floats] = []
    reasons: dict[int, str] = {}
    step = WINDOW * batch_size
    for start in range(0, len(values), step):
        inputs: dict[int, NDArray[Any]] = {}
        for row, value in enumerate(values[start : start + step], start=start):
            try:
                inputs[row] = _prepare(encoder, value)
            except ValueError as error:
                reasons[row] = str(error)
        vectors += _encode_window(encoder, inputs, batch_size)
    return (np.stack(vectors) if vectors else np.empty((0, 0), np.float32)), reasons


def _prepare(encoder: Encoder, value: Any) -> NDArray[Any]:
    if value is None:
        raise ValueError("is null")
    return encoder.prepare(value)


def _encode_window(encoder: Encoder, inputs: dict[int, NDArray[Any]], batch_size: int) -> list[Floats]:
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for row, array in inputs.items():
        by_shape.setdefault(array.shape, []).append(row)
    found: dict[int, Floats] = {}
    for rows in by_shape.values():
        for start in range(0, len(rows), batch_size):
            batch = rows[start : start + batch_size]
            encoded = encoder.encode(np.stack([inputs[row] for row in batch]))
            found.update(zip(batch, encoded, strict=True))
    return [found[row] for row in inputs]
