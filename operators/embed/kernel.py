"""Rows through an encoder, in batches of equal shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from operators.arrays import Float32
from operators.embed.preparation import Prepared, attempt

WINDOW = 16
"""Number of batches that are prepared together: they fill batches of equal shape, in bounded memory."""


Key = tuple[type, Any]
"""A value with its type: 1 and True are not the same."""


class Encoder(Protocol):
    """A pretrained network, loaded and in eval mode."""

    @property
    def takes(self) -> Literal["text", "image"]:
        """Kind of value that ``prepare`` takes: a str, or for images the bytes or Path of one."""
        ...

    def prepare(self, value: Any) -> NDArray[Any]:
        """Return one row's input. Raises ValueError with the reason if the value cannot be used."""
        ...

    def encode(self, batch: NDArray[Any]) -> Float32:
        """Map stacked inputs of one shape (b, ...) to vectors (b, d); d is the same for every shape."""
        ...


@runtime_checkable
class PreparesTogether(Protocol):
    """An encoder that prepares many rows faster than one by one, such as on several threads."""

    def prepare_all(self, values: Sequence[Any]) -> list[Prepared]:
        """Return what ``prepare`` returns for each value, or the ValueError that it raises."""
        ...


def embed_rows(
    encoder: Encoder, values: Sequence[Any], *, batch_size: int = 32
) -> tuple[Float32, dict[int, str]]:
    """Encode every value that can be used.

    Rows whose prepared inputs have the same shape (texts of nearly the same number of tokens) share a batch,
    so that a row's vector does not depend on the length of its neighbours. Values that occur again are
    prepared and encoded once. The others fill batches in row order within windows of 16 batches: the result
    depends on the values and ``batch_size`` alone, to the byte on one kind of device and number of threads.

    Parameters
    ----------
    values : n rows; None where there is none.
    batch_size : most rows of a forward pass.

    Returns
    -------
    vectors, reasons
        (m, d) float32 of the m usable rows, in row order, and row -> reason for the others.
    """
    keys = [(type(value), value) for value in values]
    distinct = list(dict.fromkeys(keys))
    found: dict[Key, Float32] = {}
    refused: dict[Key, str] = {}
    step = WINDOW * batch_size
    for start in range(0, len(distinct), step):
        inputs, reasons = _prepare_all(encoder, distinct[start : start + step])
        found |= _encode_window(encoder, inputs, batch_size)
        refused |= reasons
    vectors = [found[key] for key in keys if key in found]
    return (
        np.stack(vectors) if vectors else np.empty((0, 0), np.float32),
        {row: refused[key] for row, key in enumerate(keys) if key in refused},
    )


def _prepare_all(encoder: Encoder, distinct: Sequence[Key]) -> tuple[dict[Key, NDArray[Any]], dict[Key, str]]:
    """Return the input of every value that can be used, and the reason for the others."""
    present = [key for key in distinct if key[1] is not None]
    values = [value for _, value in present]
    if isinstance(encoder, PreparesTogether):
        prepared = encoder.prepare_all(values)
    else:
        prepared = [attempt(encoder.prepare, value) for value in values]
    inputs: dict[Key, NDArray[Any]] = {}
    refused = {key: "is null" for key in distinct if key[1] is None}
    for key, found in zip(present, prepared, strict=True):
        if isinstance(found, ValueError):
            refused[key] = str(found)
        else:
            inputs[key] = found
    return inputs, refused


def _encode_window(encoder: Encoder, inputs: dict[Key, NDArray[Any]], batch_size: int) -> dict[Key, Float32]:
    by_shape: dict[tuple[int, ...], list[Key]] = {}
    for key, array in inputs.items():
        by_shape.setdefault(array.shape, []).append(key)
    found: dict[Key, Float32] = {}
    for keys in by_shape.values():
        for start in range(0, len(keys), batch_size):
            batch = keys[start : start + batch_size]
            encoded = encoder.encode(np.stack([inputs[key] for key in batch]))
            found.update(zip(batch, encoded, strict=True))
    return found
