"""Recognition of image files by their first bytes."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

SIGNATURE = re.compile(
    rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n|GIF8[79]a|BM.{4}\x00{4}|RIFF.{4}WEBP|II\*\x00|MM\x00\*", re.DOTALL
)
"""First bytes of the formats in :data:`FORMATS`."""
FORMATS = "JPEG, PNG, GIF, BMP, WEBP or TIFF"
SIGNATURE_LENGTH = 16
"""Most bytes of a signature."""


def count_images(column: pa.ChunkedArray) -> int:
    """Count the rows of a column of bytes, or of structs with ``bytes``, that hold an image file."""
    if pa.types.is_struct(column.type):
        kind = column.type.field(column.type.get_field_index("bytes")).type
        column = pc.struct_field(column, "bytes") if column.num_chunks else pa.chunked_array([], kind)
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        column = column.cast(pa.large_binary())
    starts = pc.binary_slice(column, 0, SIGNATURE_LENGTH)
    return sum(start is not None and SIGNATURE.match(start) is not None for start in starts.to_pylist())
