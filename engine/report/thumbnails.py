"""Pictures of example rows: of vectors of pixels, or of image files in a column of bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.plan.model import Plan
from engine.recipe.recipe import ImageSection
from engine.report.survey import gather
from operators.counts import count

LONGEST_SIDE = 96
"""Pixels of a thumbnail; larger images are thinned out."""
FILE_SIDE = 72
"""Height and width of the thumbnail of an image file, of which the centre square is shown."""
MAX_PIXELS = 2**25
"""Maximum number of pixel values in memory; fewer rows are shown if the images are large."""
UNASKED_BYTES = 2**30
"""Size of the source above which image files are drawn only if ``report.image`` names their column: the
shards of all rows that are shown are read again."""
Pictures = NDArray[np.float32]


def rows_per_request(plan: Plan, n_requests: int) -> int:
    """Return the number of rows to show of each request, so that all images stay within ``MAX_PIXELS``."""
    image = plan.recipe.report.image
    pixels = FILE_SIDE**2 * 3 if image or _column_of_files(plan) else 1
    if image and image.height and image.width:
        pixels = image.height * image.width * image.channels
    return max(1, MAX_PIXELS // (pixels * max(n_requests, 1)))


def thumbnails(plan: Plan, row_ids: NDArray[np.int64]) -> tuple[Pictures | None, str]:
    """Read and scale the images of some rows, in the order of ``row_ids`` (n,), which increase.

    Returns
    -------
    Images in [0, 1], (n, height, width) or (n, height, width, 3), and ""; or None and the reason, which is
    empty where nobody asked for pictures and no operator reads image files.
    """
    image, schema = plan.recipe.report.image, plan.listing.schema
    if image is None:
        column = _column_of_files(plan)
        size = sum(shard.n_bytes for shard in plan.listing.shards)
        if column and size > UNASKED_BYTES:
            return None, (
                f"Rows are not drawn, as the source has {size / 2**30:,.1f} GiB, of which much would be read "
                f"again: `report: {{image: {{column: {column}}}}}` draws them all the same."
            )
        return (_of_files(plan, row_ids, column), "") if column else (None, "")
    if image.column not in schema.names:
        return (
            None,
            f"report.image.column: the source has no column {image.column!r}; fields are shown instead.",
        )
    if _holds_files(schema.field(image.column).type):
        found = _of_files(plan, row_ids, image.column)
        reason = f"report.image: {image.column!r} has no image file in any row that is shown: fields are."
        return found, "" if found is not None else reason
    table = gather(plan, row_ids, [], [image.column])
    return _of_pixels(row_ids, table.column(f"source.{image.column}"), image)


def _column_of_files(plan: Plan) -> str:
    """Return the source column of image files that an operator reads; empty if there is none."""
    schema = plan.listing.schema
    for parameters in plan.recipe.operators.values():
        column = (parameters or {}).get("column")
        if column in schema.names and _holds_files(schema.field(column).type):
            return str(column)
    return ""


def _holds_files(kind: pa.DataType) -> bool:
    """Return whether a column holds bytes, or structs with them, as Hugging Face's image columns do."""
    if pa.types.is_dictionary(kind):
        return _holds_files(kind.value_type)
    if pa.types.is_struct(kind):
        place = kind.get_field_index("bytes")
        return place >= 0 and _holds_files(kind.field(place).type)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _of_files(plan: Plan, row_ids: NDArray[np.int64], column: str) -> Pictures | None:
    """Decode image files, those of one shard at a time; a row without one is white. None: no row has one."""
    # Not at the top: most reports draw no image files.
    from operators.image_files import open_image

    reader = plan.reader()
    found, n_drawn = np.ones((len(row_ids), FILE_SIDE, FILE_SIDE, 3), np.float32), 0
    for shard in plan.shards:
        mine = np.flatnonzero((row_ids >= shard.first_row) & (row_ids < shard.first_row + shard.n_rows))
        if not len(mine):
            continue
        values = reader.read_with_truth(shard.index, [column]).column(column)
        for place, value in zip(mine, values.take(pa.array(row_ids[mine] - shard.first_row)), strict=True):
            content = value.as_py()
            content = content.get("bytes") if isinstance(content, dict) else content
            try:
                pixels = open_image(bytes(content or b""), FILE_SIDE)
            except ValueError:
                continue
            found[place] = pixels.transpose(1, 2, 0) / np.float32(255)
            n_drawn += 1
    return found if n_drawn else None


def _of_pixels(
    row_ids: NDArray[np.int64], values: pa.ChunkedArray, image: ImageSection
) -> tuple[Pictures | None, str]:
    """Return images of vectors of pixels, or None and what is wrong with them."""
    if image.height is None or image.width is None:
        return None, "report.image: pictures of pixels need height and width; fields are shown instead."
    shape = (image.height, image.width, image.channels)
    step = -(-max(image.height, image.width) // LONGEST_SIDE)
    images = []
    for row_id, value in zip(row_ids.tolist(), values, strict=True):
        pixels = flat_numbers(value.as_py())
        if len(pixels) != math.prod(shape):
            size = " x ".join(map(str, shape))
            return None, (
                f"report.image: column {image.column!r} has {count(len(pixels), 'number')} in row {row_id}, "
                f"but {size} = {math.prod(shape):,} are needed; fields are shown instead. "
                "Correct height, width or channels."
            )
        images.append(pixels.reshape(shape)[::step, ::step])
    found = scaled(np.stack(images))
    return (found[..., 0] if image.channels == 1 else found), ""


def flat_numbers(value: Any) -> NDArray[np.float32]:
    """Flatten a (nested) list of numbers; anything else gives an empty array."""
    try:
        return np.asarray(value, dtype=np.float32).ravel()
    except (TypeError, ValueError):
        return np.empty(0, np.float32)


def scaled(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale values to [0, 1]: unchanged, divided by 255 if they look like bytes, or by their range."""
    pixels = np.nan_to_num(pixels)
    low, high = float(pixels.min()), float(pixels.max())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif low >= 0 and 127 < high <= 255:
        low, high = 0.0, 255.0
    return np.asarray((pixels - low) / max(high - low, 1e-12), np.float32)
