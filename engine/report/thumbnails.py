"""Rows as small pictures."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.recipe.recipe import ImageSection
from engine.report.words import count
from operators.base import ROW_ID

LONGEST_SIDE = 96
"""Pixels of a thumbnail; larger pictures are thinned out."""
MOST_PIXELS = 2**25
"""At most so many numbers of pictures are held; where pictures are large, fewer rows are shown."""


def rows_at_most(image: ImageSection | None, n_albums: int) -> int:
    """Rows of each album, so that all pictures together stay within ``MOST_PIXELS``."""
    pixels = image.height * image.width * image.channels if image else 1
    return max(1, MOST_PIXELS // (pixels * n_albums))


def thumbnails(table: pa.Table, image: ImageSection) -> tuple[NDArray[np.float32] | None, str]:
    """Pictures in [0, 1], (n, height, width) or (n, height, width, 3); or None and what is wrong."""
    name = f"source.{image.column}"
    if name not in table.column_names:
        return (
            None,
            f"report.image.column: the source has no column {image.column!r}; fields are shown instead.",
        )
    shape = (image.height, image.width, image.channels)
    step = -(-max(image.height, image.width) // LONGEST_SIDE)
    pictures = []
    for row_id, value in zip(table.column(ROW_ID).to_pylist(), table.column(name), strict=True):
        pixels = flat_numbers(value.as_py())
        if len(pixels) != math.prod(shape):
            size = " x ".join(map(str, shape))
            return None, (
                f"report.image: column {image.column!r} has {count(len(pixels), 'number')} in row {row_id}, "
                f"and {size} = {math.prod(shape):,} are needed; fields are shown instead. Correct height, "
                f"width or channels."
            )
        pictures.append(pixels.reshape(shape)[::step, ::step])
    found = scaled(np.stack(pictures))
    return (found[..., 0] if image.channels == 1 else found), ""


def flat_numbers(value: Any) -> NDArray[np.float32]:
    """A (nested) list of numbers, flat; empty for anything else."""
    try:
        return np.asarray(value, dtype=np.float32).ravel()
    except (TypeError, ValueError):
        return np.empty(0, np.float32)


def scaled(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Bring values to [0, 1]: as they are, or from 0..255, else from their own range."""
    pixels = np.nan_to_num(pixels)
    low, high = float(pixels.min()), float(pixels.max())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif low >= 0 and 127 < high <= 255:
        low, high = 0.0, 255.0
    return np.asarray((pixels - low) / max(high - low, 1e-12), np.float32)
