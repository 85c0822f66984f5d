"""Levels of JSON in a Delta table's log, which the library follows by recursion: 30,000 ended the process.

A commit has a line of JSON for each action. The statistics of a data file are a text within it, which is JSON
again; in a checkpoint they are a column.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as fs

from connectors.base import ConnectorError
from connectors.jsonl_source import too_deep
from connectors.parquet_footer import open_parquet

MAX_LEVELS = 100
"""Levels of lists and objects in an action, and in its statistics."""
SAFE_BRACKETS = 5_000
"""A text with fewer brackets is not looked at: the library has enough stack for as many levels."""
STATISTICS = "add.stats"
BATCH_ROWS = 256
"""Rows of a checkpoint that are expanded at once, as a text may stand in each of them."""


def check_levels(filesystem: fs.FileSystem, info: fs.FileInfo) -> None:
    """Raise ConnectorError for a file of a log whose JSON has too many levels.

    A file that is neither JSON nor Parquet is left to the library, which refuses it.
    """
    try:
        texts = _statistics if info.path.endswith(".parquet") else _lines
        for text in texts(filesystem, info):
            if too_deep(text, MAX_LEVELS) is not None:
                raise ConnectorError(
                    f"{info.path}, a file of the table's log, has JSON of more than {MAX_LEVELS} levels, "
                    f"which its readers follow by recursion. It may be forged. Write the table anew."
                )
    except (pa.ArrowException, OSError):
        return


def _lines(filesystem: fs.FileSystem, info: fs.FileInfo) -> Iterator[bytes]:
    """Yield the actions with many brackets, each followed by the texts within it."""
    if (info.size or 0) < SAFE_BRACKETS:
        return
    with filesystem.open_input_stream(info.path) as stream:
        data = stream.read()
    if _brackets(data) < SAFE_BRACKETS:
        return
    for line in data.split(b"\n"):
        if _brackets(line) >= SAFE_BRACKETS:
            yield line
            with suppress(ValueError):  # the library refuses a line that is no JSON
                # A key that is there twice counts twice, as readers disagree which one holds.
                value = json.loads(line, object_pairs_hook=tuple, parse_int=str)
                yield from (text.encode("utf-8", "replace") for text in _texts(value))


def _brackets(data: bytes) -> int:
    escaped = data.lower() if b"\\u00" in data else b""
    return sum(data.count(sign) for sign in (b"{", b"[")) + sum(
        escaped.count(sign) for sign in (b"\\u007b", b"\\u005b")
    )


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value of JSON of few levels, whose objects are tuples of pairs."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)


def _statistics(filesystem: fs.FileSystem, info: fs.FileInfo) -> Iterator[bytes]:
    """Yield the statistics with many brackets in a checkpoint."""
    with filesystem.open_input_file(info.path) as file:
        parquet = open_parquet(file, info.path)
        leaves = [parquet.schema.column(index).path for index in range(len(parquet.schema))]
        if STATISTICS not in leaves:
            return
        for batch in parquet.iter_batches(BATCH_ROWS, columns=[STATISTICS]):
            texts = pc.struct_field(batch.column(0), "stats").cast(pa.binary())
            counts = pc.add(pc.count_substring(texts, "{"), pc.count_substring(texts, "["))
            many = pc.fill_null(pc.greater_equal(counts, SAFE_BRACKETS), False)
            yield from texts.filter(many).to_pylist()
