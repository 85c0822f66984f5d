"""The rows of two versions side by side: matched by a key, by their place in unchanged files, or by content.

Memory is bounded. Rows of unchanged files are read part by part. Of all other rows a digest and the published
values go to temporary files, one for each range of digests, and one range at a time is matched in memory; of
equal rows, which are all in one range, a bounded number at a time.
"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from engine.runs.row_keys import (
    DIGEST_BYTES,
    check_key_types,
    common_columns,
    digests,
    key_texts,
    named_columns,
)
from engine.runs.row_matching import VALUES, CommonRows, PartReader, match_rows, part_places
from engine.training.data.version import Version
from operators.arrays import Ids
from operators.base import DUPLICATE_OF, ROW_ID

FILE, ROW, KEY, CONTENT, DIGEST = "file", "row", "key", "content", "digest"
PLACE = pa.schema([(FILE, pa.string()), (ROW, pa.int64()), (KEY, pa.string())])
STORED = pa.schema(
    [(DIGEST, pa.binary(DIGEST_BYTES)), (CONTENT, pa.binary(DIGEST_BYTES)), *PLACE, *VALUES.items()]
)
"""Columns of a temporary file of rows."""
ROWS_IN_MEMORY = 500_000
"""Rows of each version that are matched at a time, on average."""
MAX_RANGES = 200
"""Maximum number of temporary files that are open at a time."""


@dataclass(frozen=True)
class RowBatch:
    """Rows that stand for each other, line by line, and rows that one version has alone.

    The tables have the columns of ``VALUES`` and of ``PLACE``. ``rewritten`` (n,) says in which pairs other
    source columns than the key have changed.
    """

    then: pa.Table
    now: pa.Table
    gone: pa.Table
    new: pa.Table
    rewritten: npt.NDArray[np.bool_]

    @property
    def other_duplicate(self) -> npt.NDArray[np.bool_]:
        """Mask (n,) of the pairs whose row nearly duplicates an older row in one version alone."""
        then, now = (
            pc.is_valid(side[DUPLICATE_OF]).to_numpy(zero_copy_only=False) for side in (self.then, self.now)
        )
        found: npt.NDArray[np.bool_] = then != now
        return found


@dataclass
class MatchCounts:
    """Numbers of rows of both versions that were matched, by means, and of rows that were not told apart."""

    by_key: int = 0
    by_position: int = 0
    by_content: int = 0
    without_key: list[int] = field(default_factory=lambda: [0, 0])
    """Rows of each version in which a column of the key is null: they match nothing."""
    repeated: list[int] = field(default_factory=lambda: [0, 0])
    """Rows of each version whose key or content an earlier row has too: these are matched in order."""


class RowPairs:
    """The rows of two versions, matched one to one. Use it as a context manager: it keeps temporary files.

    With a key, rows match whose key columns are equal. Without one, rows match that have the same position in
    files with the same bytes; of the others, those whose common source columns are equal. Rows that are
    equal are matched in their order.

    Parameters
    ----------
    key
        Source columns; empty: no key.

    Raises
    ------
    InputError
        A version has no such column, or its type cannot be a key.

    """

    def __init__(self, before: Version, after: Version, key: Sequence[str] = ()) -> None:
        self.before, self.after, self.key = before, after, tuple(dict.fromkeys(key))
        self.content = common_columns(before, after)
        self._compared = named_columns(before, after, self.key) if self.key else self.content
        self.counts = MatchCounts()
        self._pieces = [] if self.key else match_rows(before.manifest, after.manifest)
        self._readers = (PartReader(before), PartReader(after))
        self._places = tuple(part_places(version.manifest) for version in (before, after))
        rest = [sum(rows for _, _, rows in self._rest(side)) for side in (0, 1)]
        self._ranges = min(MAX_RANGES, max(rest) // ROWS_IN_MEMORY + 1)
        self._folder = tempfile.TemporaryDirectory(prefix="rowsieve-diff-")
        self._stored = False
        self._sizes = [[0] * self._ranges for _ in (0, 1)]

    def __enter__(self) -> RowPairs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def batches(self) -> Iterator[RowBatch]:
        """Yield all rows of both versions, each once; also when it is called again."""
        self.counts = MatchCounts()
        for piece in self._pieces:
            yield self._unchanged(piece)
        if not self._compared:
            yield from self._unmatched()
            return
        if not self._stored:
            self._store(0)
            self._store(1)
            self._stored = True
        for number in range(self._ranges):
            if any(self._sizes[side][number] > 2 * ROWS_IN_MEMORY for side in (0, 1)):
                yield from self._matched_by_rank(number)
            else:
                yield self._matched(*(self._load(side, number) for side in (0, 1)))

    def _unchanged(self, piece: CommonRows) -> RowBatch:
        """Return the rows of a piece of an unchanged file."""
        sides = zip(self._readers, piece.parts, piece.starts, strict=True)
        then, now = (
            _with_place(reader.rows(part, start, piece.rows), piece.path, piece.row)
            for reader, part, start in sides
        )
        self.counts.by_position += piece.rows
        return RowBatch(then, now, _NONE, _NONE, np.zeros(piece.rows, np.bool_))

    def _unmatched(self) -> Iterator[RowBatch]:
        """Yield the rows outside unchanged files, where the versions share no source column."""
        for side in (0, 1):
            for part, start, rows in self._rest(side):
                path, first = self._places[side][part]
                alone = _with_place(self._readers[side].rows(part, start, rows), path, first + start)
                gone, new = (alone, _NONE) if side == 0 else (_NONE, alone)
                yield RowBatch(_NONE, _NONE, gone, new, np.zeros(0, np.bool_))

    def _rest(self, side: int) -> Iterator[tuple[int, int, int]]:
        """Yield part, first row and number of rows of a version's rows that no piece covers."""
        version = (self.before, self.after)[side]
        covered: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for piece in self._pieces:
            covered[piece.parts[side]].append((piece.starts[side], piece.starts[side] + piece.rows))
        for part, shard in enumerate(version.manifest["source"]["shards"]):
            first, n_rows = 0, int(shard["rows"])
            for start, stop in [*sorted(covered[part]), (n_rows, n_rows)]:
                if first < start:
                    yield part, first, start - first
                first = max(first, stop)

    def _file(self, side: int, number: int) -> Path:
        return Path(self._folder.name) / f"{side}-{number:05d}.arrow"

    def _store(self, side: int) -> None:
        """Write a version's rows outside unchanged files to the temporary files, by their digests."""
        with ExitStack() as stack:
            writers = [
                stack.enter_context(pa.ipc.new_stream(str(self._file(side, number)), STORED))
                for number in range(self._ranges)
            ]
            for part, start, rows in self._rest(side):
                table = self._digested(side, part, start, rows)
                first = np.frombuffer(b"".join(table.column(DIGEST).to_pylist()), np.uint64)[::2]
                ranges = first % np.uint64(self._ranges)
                for number in np.unique(ranges).tolist():
                    mine = table.filter(pa.array(ranges == number))
                    writers[number].write_table(mine)
                    self._sizes[side][number] += mine.num_rows

    def _digested(self, side: int, part: int, start: int, rows: int) -> pa.Table:
        """Return the rows of a part as the temporary files hold them."""
        path, first = self._places[side][part]
        table = _with_place(self._readers[side].rows(part, start, rows), path, first + start)
        source = self._readers[side].source(part, [column.name for column in self.content])
        source = source.slice(start, rows)
        content = digests(source, self.content)
        found, keys = content, pa.nulls(rows, pa.string())
        if self.key:
            check_key_types(source, self._compared)
            found, keys = digests(source, self._compared), key_texts(source, self._compared)
        columns = {name: table.column(name) for name in table.column_names}
        columns |= {DIGEST: found, CONTENT: content, KEY: keys}
        return pa.table({name: columns[name] for name in STORED.names}, schema=STORED)

    def _load(self, side: int, number: int) -> pa.Table:
        return _read(self._file(side, number))

    def _matched_by_rank(self, number: int) -> Iterator[RowBatch]:
        """Match a range that holds far more rows than the others, since many of them are equal.

        Equal rows match in their order. So those among the first ``ROWS_IN_MEMORY`` of their digest are
        matched first, then those among the next ones.
        """
        files = [_split_by_rank(self._file(side, number)) for side in (0, 1)]
        for later, pair in enumerate(zip_longest(*files)):
            then, now = (STORED.empty_table() if file is None else _read(file) for file in pair)
            yield self._matched(then, now, all_repeat=later > 0)
            for file in filter(None, pair):
                file.unlink()

    def _matched(self, then: pa.Table, now: pa.Table, *, all_repeat: bool = False) -> RowBatch:
        """Match the rows of one range of digests; with ``all_repeat`` each of them repeats an earlier row."""
        sides = []
        for side, table in enumerate((then, now)):
            has_key = pc.is_valid(table.column(KEY)) if self.key else pc.is_valid(table.column(DIGEST))
            kept = np.flatnonzero(has_key.to_numpy(zero_copy_only=False))
            self.counts.without_key[side] += table.num_rows - len(kept)
            words = _words(table.column(DIGEST), kept)
            ranks = _ranks(words, table.column(ROW_ID).to_numpy()[kept])
            self.counts.repeated[side] += len(kept) if all_repeat else int(np.count_nonzero(ranks))
            sides.append((kept, words, ranks))
        first, second = _pairs(sides)
        if self.key:
            self.counts.by_key += len(first)
        else:
            self.counts.by_content += len(first)
        before, after = then.take(first), now.take(second)
        rewritten = np.zeros(len(first), np.bool_)
        if self.key:
            rewritten = pc.not_equal(before.column(CONTENT), after.column(CONTENT)).to_numpy()
        return RowBatch(
            before, after, _without(then, first), _without(now, second), rewritten.astype(np.bool_)
        )


def _read(file: Path) -> pa.Table:
    with pa.OSFile(str(file)) as opened:
        return pa.ipc.open_stream(opened).read_all()


def _split_by_rank(file: Path) -> list[Path]:
    """Copy a file of rows to files by how many earlier rows have a row's digest; return these in order."""
    found: list[Path] = []
    with ExitStack() as stack:
        writers: list[Any] = []
        for number, batch in _by_rank(pa.ipc.open_stream(stack.enter_context(pa.OSFile(str(file))))):
            if number == len(writers):  # ranks have no gaps
                found.append(file.with_name(f"{file.stem}-{number:05d}.arrow"))
                writers.append(stack.enter_context(pa.ipc.new_stream(str(found[-1]), STORED)))
            writers[number].write_batch(batch)
    return found


def _by_rank(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of batches with the number of the file that each belongs to."""
    seen: Counter[bytes] = Counter()
    for batch in batches:
        numbers = _rank_ranges(batch.column(DIGEST).to_pylist(), seen)
        for number in np.unique(numbers).tolist():
            yield number, batch.filter(pa.array(numbers == number))


def _rank_ranges(of_rows: Sequence[bytes], seen: Counter[bytes]) -> Ids:
    """Return for each row (n,) how many times ``ROWS_IN_MEMORY`` rows with its digest come before it."""
    found = np.empty(len(of_rows), np.int64)
    for row, digest in enumerate(of_rows):
        found[row] = seen[digest] // ROWS_IN_MEMORY
        seen[digest] += 1
    return found


def _with_place(values: pa.Table, path: str, row: int) -> pa.Table:
    """Add the place in the source of consecutive rows of a file, of which the first is ``row``."""
    rows = values.num_rows
    places = {
        FILE: pa.array([path] * rows, pa.string()),
        ROW: pa.array(np.arange(row, row + rows, dtype=np.int64)),
        KEY: pa.nulls(rows, pa.string()),
    }
    for name, column in places.items():
        values = values.append_column(name, column)
    return values


def _without(table: pa.Table, rows: Ids) -> pa.Table:
    """Return the rows of a table that are not named, in the order of their row ids."""
    left = np.ones(table.num_rows, np.bool_)
    left[rows] = False
    return table.filter(pa.array(left)).sort_by(ROW_ID)


def _words(column: pa.ChunkedArray, rows: Ids) -> npt.NDArray[np.uint64]:
    """Return digests (n, 2) as pairs of numbers."""
    found = np.frombuffer(b"".join(column.to_pylist()), np.uint64).reshape(-1, 2)
    return found[rows]


def _ranks(words: npt.NDArray[np.uint64], row_ids: Ids) -> Ids:
    """Return for each row (n,) how many earlier rows have its digest."""
    order = np.lexsort((row_ids, words[:, 1], words[:, 0]))
    ordered = words[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    starts = np.flatnonzero(is_first)
    places = np.arange(len(order))
    found = np.empty(len(order), np.int64)
    found[order] = places - (starts[np.cumsum(is_first) - 1] if len(starts) else 0)
    return found


def _pairs(sides: Sequence[tuple[Ids, Any, Ids]]) -> tuple[Ids, Ids]:
    """Return the rows (n,) of both sides whose digest and rank are equal, in the order of the first side.

    Each side has its rows, their digests (n, 2) and their ranks (n,).
    """
    rows = np.concatenate([side[0] for side in sides])
    words, ranks = np.concatenate([side[1] for side in sides]), np.concatenate([side[2] for side in sides])
    origin = np.repeat([0, 1], [len(side[0]) for side in sides])
    order = np.lexsort((origin, ranks, words[:, 1], words[:, 0]))
    same = (words[order][1:] == words[order][:-1]).all(axis=1) & (ranks[order][1:] == ranks[order][:-1])
    at = np.flatnonzero(same)
    first, second = rows[order[at]], rows[order[at + 1]]
    by_first = np.argsort(first, kind="stable")
    return first[by_first], second[by_first]


_NONE = pa.schema([*VALUES.items(), *PLACE]).empty_table()
