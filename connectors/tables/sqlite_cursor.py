"""Reading SQLite by the standard library, with limits that ADBC's driver for SQLite does not have.

A query of a recipe, or a view in a database of a stranger, may run for ever or build a value of a gigabyte.
SQLite asks a progress handler every few thousand steps whether to go on, and refuses larger values.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from connectors.base import ConnectorError
from connectors.tables.sql_text import database_error, quoted

BATCH_ROWS, BATCH_BYTES = 1024, 64 * 2**20
"""A batch ends at whichever comes first; a value may have a gigabyte."""
TABLE_BYTES = 256 * 2**20
"""Bytes of texts after which a table has no more rows."""
STEPS = 100_000
"""Instructions of SQLite's machine between two looks at the clock: about a millisecond."""
LOADING = ("load_extension", "fts3_tokenizer")
"""Functions that load or run code."""
MAX_BYTES = 2**30 - 1
"""Bytes of a value that SQLite can be told to allow."""


class SqliteCursor:
    """Runs statements that only read. Has the methods of an ADBC cursor that the source ``sql`` uses."""

    def __init__(self, connection: sqlite3.Connection, seconds: float) -> None:
        """Use a connection; each statement may take ``seconds`` until its last row is fetched."""
        self._cursor = connection.cursor()
        self._seconds, self._end = seconds, 0.0
        connection.set_progress_handler(self._expired, STEPS)

    def _expired(self) -> bool:
        return time.monotonic() > self._end

    @property
    def expired(self) -> bool:
        """Return whether the last statement has used its time."""
        return self._expired()

    def execute(self, statement: str) -> None:
        """Start a statement. Raises sqlite3.Error."""
        self._end = time.monotonic() + self._seconds
        self._cursor.execute(statement)

    def fetch_record_batch(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches, each with types of its own: those that hold all its values."""
        while rows := self._fetch(BATCH_ROWS, BATCH_BYTES):
            yield self._batch(rows)

    def fetch_arrow_table(self) -> pa.Table:
        """Return all rows; a column without a value has the type int64.

        Raises ConnectorError where they are too large to be held together.
        """
        found = self.fetch_sample()
        if self._cursor.fetchone() is not None:
            raise ConnectorError(
                f"What this database answers takes more than {TABLE_BYTES:,} bytes in memory: its keys may "
                f"be too long. Name another key in source.options.key."
            )
        return found

    def sample(self, table: str, n_rows: int) -> pa.Table:
        """Return the first rows of a table or query, of long ones only the first.

        A column without a value in them has the type of its first values.
        """
        self.execute(f"SELECT * FROM {table} LIMIT {n_rows}")  # noqa: S608
        found = self.fetch_sample()
        for index, name in enumerate(found.schema.names):
            if found[index].null_count == found.num_rows:
                column = quoted(name)
                some = f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL"  # noqa: S608
                self.execute(f"{some} LIMIT {n_rows}")
                kind = self.fetch_sample().schema.field(0).type
                found = found.set_column(index, name, pa.nulls(found.num_rows, kind))
        return found

    def check_one_type(self, name: str, column: str, table: str) -> None:
        """Raise ConnectorError for a key that holds texts or bytes beside values of another type, or whole
        numbers beside fractions that float64 does not hold, as which both are read.

        Parameters
        ----------
        name : what is read, for the error.
        column, table : the key and its table or query, as SQL.
        """
        self.execute(f"SELECT DISTINCT typeof({column}) FROM {table} WHERE {column} IS NOT NULL")  # noqa: S608
        kinds = sorted({row[0] for row in self._fetch(sys.maxsize, TABLE_BYTES)})
        if len(kinds) > 1 and kinds != ["integer", "real"]:
            raise ConnectorError(
                f"{name}: source.options.key: {column} holds values of several types ({', '.join(kinds)}), "
                f"which have no common order. Name another key, or cast it in source.options.query."
            )
        if len(kinds) > 1 and (large := self._inexact(column, table)):
            raise ConnectorError(
                f"{name}: source.options.key: {column} holds fractions beside {large}, which float64 "
                f"rounds, so that its ranges would have wrong ends. Name another key, or cast it in "
                f"source.options.query."
            )

    def _inexact(self, column: str, table: str) -> int | None:
        """Return a whole number of a column that float64 rounds, or None; SQLite compares them exactly."""
        rounded = f"typeof({column}) = 'integer' AND {column} <> CAST({column} AS REAL)"
        self.execute(f"SELECT {column} FROM {table} WHERE {rounded} LIMIT 1")  # noqa: S608
        return next((int(row[0]) for row in self._fetch(1, TABLE_BYTES)), None)

    def fetch_sample(self) -> pa.Table:
        """Return the rows, of long ones only the first."""
        return pa.Table.from_batches([self._batch(self._fetch(sys.maxsize, TABLE_BYTES))])

    def _fetch(self, n_rows: int, n_bytes: int) -> list[Sequence[Any]]:
        """Return the next rows: at most so many, and none after they hold so many bytes of texts."""
        found, held = list[Sequence[Any]](), 0
        while len(found) < n_rows and held < n_bytes and (row := self._cursor.fetchone()) is not None:
            found.append(row)
            held += sum(len(value) for value in row if isinstance(value, (str, bytes)))
        return found

    def _batch(self, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        names = [column[0] for column in self._cursor.description]
        columns = [*zip(*rows, strict=True)] if rows else [()] * len(names)
        return pa.RecordBatch.from_arrays([array_of(column) for column in columns], names)


@contextmanager
def reading_sqlite(path: str, name: str, seconds: float, max_bytes: int) -> Iterator[SqliteCursor]:
    """Yield a cursor on a database that is opened for reading alone.

    Parameters
    ----------
    path : file of the database.
    name : what is read, for errors.
    seconds : limit of a statement.
    max_bytes : limit of one value.

    Raises
    ------
    ConnectorError
        SQLite refuses a statement, or it takes too long.
    """
    with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(max_bytes, MAX_BYTES))
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.set_authorizer(stay_inside)
        cursor = SqliteCursor(connection, seconds)
        try:
            yield cursor
        except sqlite3.Error as error:
            if "interrupt" in str(error) and cursor.expired:
                raise took_too_long(name, seconds) from None
            raise database_error(name, error) from error


def took_too_long(name: str, seconds: float) -> ConnectorError:
    """Make the error of a statement that was stopped."""
    return ConnectorError(
        f"{name}: source.options: the database was stopped after {seconds:g} seconds without an end. Look "
        f"for a recursive query or a view without an end, add an index on the key, or name less of the "
        f"table; whoever operates this installation can raise ROWSIEVE_MAX_SECONDS, up to an hour."
    )


def check_sqlite(query: str, path: str) -> None:
    """Raise unless SQLite compiles ``query`` as one statement that only reads; it is not run."""
    with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as connection:
        connection.set_authorizer(allow_reading)
        for statement in (f"SELECT * FROM ({query}\n)", query):  # noqa: S608
            connection.execute(f"EXPLAIN {statement}")  # sqlite3 refuses more than one statement


def allow_reading(action: int, first: str | None, second: str | None, *_: object) -> int:
    """Return SQLITE_OK for what a SELECT does; SQLITE_DENY for the rest."""
    reads = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE)
    harmless = action == sqlite3.SQLITE_FUNCTION and second not in LOADING
    return sqlite3.SQLITE_OK if reads or harmless else sqlite3.SQLITE_DENY


def stay_inside(action: int, first: str | None, second: str | None, *_: object) -> int:
    """Return SQLITE_DENY for what leaves the database, which is open for reading alone; else SQLITE_OK.

    Less is refused than by :func:`allow_reading`, as a full-text index needs statements of its own.
    """
    leaves = action in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH)
    loads = action == sqlite3.SQLITE_FUNCTION and second in LOADING
    return sqlite3.SQLITE_DENY if leaves or loads else sqlite3.SQLITE_OK


def array_of(values: Sequence[Any]) -> pa.Array:
    """Return values of SQLite, which has no types of columns, as one type that holds them all.

    Examples
    --------
    >>> [str(array_of(column).type) for column in ([1, None], [1, 2.5], [1, "a"], [b"a", "b"], [None])]
    ['int64', 'double', 'string', 'binary', 'int64']
    """
    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {int}:
        return pa.array(values, pa.int64())
    if kinds <= {int, float}:
        # Arrow refuses whole numbers that float64 does not hold; they are rounded, as SQLite's REAL does.
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    texts = [value if value is None or isinstance(value, bytes) else _text(value) for value in values]
    if bytes not in kinds:
        return pa.array(texts, pa.string())
    return pa.array([text.encode() if isinstance(text, str) else text for text in texts], pa.binary())


def _text(value: Any) -> str:
    """Return a value as SQLite writes it: a whole number of type REAL has a decimal."""
    if not isinstance(value, float):
        return str(value)
    text = f"{value:.15g}"
    return text if not text.lstrip("-").isdigit() else f"{text}.0"
