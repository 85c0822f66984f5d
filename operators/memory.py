"""Returns unused memory to the operating system."""

from __future__ import annotations

import pyarrow as pa


def release_memory() -> None:
    """Return the memory that Arrow keeps for reuse to the operating system; takes some milliseconds.

    Reading and writing Parquet take several times the memory of the rows for a moment. Without this call a
    process holds that memory while the next step takes its own, and its peak is the sum of both.
    """
    pa.default_memory_pool().release_unused()
