"""Texts of the rows of shards: read from the source, kept for a part of the sample, and read again.

Each shard writes the texts of its drawn rows into a file beside that of their features (``gather``); the task
that fits reads the files of all shards. What the texts say is in the other modules of this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from operators.arrays import Integers
from operators.base import ROW_ID, OperatorError, ShardReader
from operators.cues.params import CueWords
from operators.cues.words.mentions import Mentions, contains
from operators.encode.column_forms import holds_texts
from operators.hashing import row_hashes, uniform

PURPOSE = "cues/texts"
"""Name of the draw of the rows whose texts are kept."""
TEXT_ROWS = 10_000
"""Rows of the sample whose texts are looked at."""
MAX_LENGTH = 2_000
"""Characters of a text that are looked at."""
Texts = Mapping[str, Sequence[str | None]]


@dataclass(frozen=True)
class SampledTexts:
    """Texts of some rows of the sample: row ids (n,) in increasing order, and the texts of each column."""

    ids: Integers
    texts: Texts


def texts_of(reader: ShardReader, shard: int, column: str, ids: Integers) -> list[str | None]:
    """Return the texts of some rows of a shard. Raises OperatorError for a column of another type."""
    table = reader.read_source(shard, [column])
    values = table[column]
    if not (holds_texts(values.type) or pa.types.is_null(values.type)):  # null: all of the shard is missing
        raise OperatorError(
            f"operators.cues: {column!r} has the type {values.type}; words are looked for in texts. Name the "
            "column itself to balance it, or a column of texts."
        )
    if ROW_ID in table.column_names:
        rows = pa.array(np.searchsorted(table[ROW_ID].to_numpy(), ids))
    else:
        rows = pa.array(ids - reader.shards[shard].first_row)
    found: list[str | None] = values.take(rows).to_pylist()
    return found


def read_mentions(reader: ShardReader, shard: int, ids: Integers, sets: Sequence[CueWords]) -> Mentions:
    """Return which of the rows ``ids`` of a shard contain each word, shape (n, words).

    The columns are those of the words of all sets, one after the other.

    Raises
    ------
    OperatorError
        A column does not hold texts.

    """
    texts = {name: texts_of(reader, shard, name, ids) for name in {one.column for one in sets}}
    found = [contains(texts[one.column], [word]) for one in sets for word in one.words]
    return np.column_stack(found) if found else np.zeros((len(ids), 0), bool)


def text_file(rows: Path) -> Path:
    """Return the file of the texts beside a shard's file of sampled rows."""
    return rows.with_suffix(".parquet")


def write_texts(
    reader: ShardReader,
    shard: int,
    ids: Integers,
    columns: Sequence[str],
    share: float,
    seed: int,
    file: Path,
) -> None:
    """Write the texts of a share of a shard's sampled rows, drawn by a hash of their ids."""
    drawn = ids[uniform(row_hashes(ids, seed, PURPOSE)) < share]
    texts = {name: [_short(text) for text in texts_of(reader, shard, name, drawn)] for name in columns}
    table = {ROW_ID: pa.array(drawn, pa.int64())}
    pq.write_table(
        pa.table(table | {name: pa.array(found, pa.string()) for name, found in texts.items()}), file
    )


def read_texts(rows: Sequence[Path]) -> SampledTexts:
    """Return what :func:`write_texts` wrote beside the shards' files of sampled rows."""
    table = pa.concat_tables([pq.read_table(text_file(file)) for file in rows]).sort_by(ROW_ID)
    texts = {name: table[name].to_pylist() for name in table.column_names if name != ROW_ID}
    return SampledTexts(table[ROW_ID].to_numpy(), texts)


def _short(text: str | None) -> str | None:
    return None if text is None else text[:MAX_LENGTH]
