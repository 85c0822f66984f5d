"""SQL databases as a source: shards are ranges of a key column.

SQLite is read by the standard library, other databases through ADBC.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any
from urllib.parse import quote, urlsplit

import pyarrow as pa
from pydantic import Field, model_validator

from connectors.base import Connector, ConnectorError, Listing, Source, SourceOptions, SourceShard, SourceSpec
from connectors.files import no_row
from connectors.foundation.remedies import CORRECT_PATH
from connectors.policy import NAMES_VARIABLE, SourcePolicy
from connectors.schema import pick
from connectors.tables.common import check_database, fingerprint, gather, library, location, plain
from connectors.tables.sql_text import literal, quoted, where
from connectors.tables.sqlite_cursor import SqliteCursor, check_sqlite, reading_sqlite, took_too_long

DRIVERS = {
    "postgresql": "adbc_driver_postgresql.dbapi",
    "postgres": "adbc_driver_postgresql.dbapi",
    "duckdb": "adbc_driver_duckdb",
}
DUCKDB_SETTINGS = {"enable_external_access": "false", "lock_configuration": "true"}
"""A SELECT could otherwise read any file and URL by ``read_text`` and the like."""
STATEMENT_SECONDS = 3600
"""Longest time of a statement."""
LONGEST_QUERY = 20_000
"""Characters of a query. DuckDB's parser took more than 40 s for a union of 30,000 tables."""
POSTGRESQL_SETTINGS = (
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "SET TRANSACTION READ ONLY",
    "SET standard_conforming_strings = on",  # else a backslash, which a filter may hold, hides a quote
)
RISKY = re.compile(
    r"pg_(?!catalog$|typeof$).*|set_config|dblink.*|lo_.*|txid_.*|nextval|setval|copy|into|uescape"
    r"|.*_to_xml.*|ts_stat|ts_rewrite|xpath_table|crosstab.*|connectby"
)
"""Names of PostgreSQL that do more than read tables, also within a read-only transaction: functions of its
administration, and those that run a text as a query, in which nothing could be checked.
"""
VARIABLE = re.compile(r"\$\{(\w+)\}")
SAMPLE_ROWS = 1000
"""Rows whose types are the column types, where a database knows none of its own (SQLite)."""


class SqlOptions(SourceOptions):
    """Table or query to read, and how its rows are cut into shards."""

    table: str | None = Field(default=None, min_length=1, description="Table or view, also `schema.table`")
    query: str | None = Field(
        default=None,
        min_length=1,
        max_length=LONGEST_QUERY,
        description="A SELECT instead, without a semicolon",
    )
    key: str = Field(
        min_length=1,
        description="Column by whose ranges rows are cut into shards, and in whose order they are read: "
        "unique, never null, of whole numbers, text or dates; best one with an index",
    )
    rows_per_shard: int = Field(default=100_000, ge=1, description="Rows of a shard")
    changed_by: str | None = Field(
        default=None,
        description="Column that grows whenever a row changes, such as `updated_at`. Without it, rows that "
        "change while their keys stay are taken for unchanged: sidecars of earlier runs are reused",
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> SqlOptions:
        if (self.table is None) == (self.query is None):
            raise ValueError("set one of table and query")
        return self


class Sql(Connector[SqlOptions]):
    """Opens sources of the format ``sql``."""

    name = "sql"
    summary = (
        "PostgreSQL, SQLite and DuckDB by URL (pip install 'rowsieve[sql]'); a shard is a range of a key"
    )
    schemes = (*DRIVERS, "sqlite")
    Options = SqlOptions

    def open(self, spec: SourceSpec, options: SqlOptions) -> Source:
        """Return a source for the database; ``${NAME}`` in the URL is a variable of the environment."""
        if spec.path.startswith("postgres"):
            check_database(spec.path)
        source = SqlSource(spec, options, expand(spec.path, spec.policy))
        if options.query:
            source.check_query(options.query)
        return source


@dataclass(frozen=True)
class KeyRange(SourceShard):
    """Rows whose key lies between two SQL literals, both included."""

    low: str
    high: str


@dataclass(frozen=True)
class SqlSource:
    """Rows of a table or query, in the order of its key.

    A database keeps no versions: what is frozen are the key ranges and how many rows they hold. Rows with
    keys between or beyond them are not read; a range with another number of rows is an error.
    """

    spec: SourceSpec
    options: SqlOptions
    url: str = field(repr=False)

    @property
    def skip_corrupt(self) -> bool:
        """Return whether ``spec.skip_corrupt`` allows shards that cannot be read to be left out."""
        return self.spec.skip_corrupt

    def check_query(self, query: str) -> None:
        """Raise ConnectorError unless ``query`` is one SELECT that only reads the database."""
        scheme = self.url.partition("://")[0]
        try:
            if scheme == "duckdb":
                check_duckdb(query)
            elif scheme == "sqlite":
                check_sqlite(query, self._file())
            else:
                check_postgresql(query)
        except ConnectorError:
            raise
        except Exception as error:  # each database's parser has errors of its own
            raise not_one_select(str(error)) from error

    def list(self) -> Listing:
        """Let the database cut the rows into ranges: one pass over the key, sorted."""
        with self._connected() as cursor:
            sample = self._sample(cursor)
            schema = plain(self._name, sample.schema)
            self._check_key(cursor, schema)
            found = _fetch(cursor, self._ranges(schema)).to_pylist()
        width = sample.nbytes / max(1, sample.num_rows)
        shards, identities, first = list[SourceShard](), {}, 0
        for row in found:
            low, high, rows = literal(row["low"]), literal(row["high"]), int(row["n"])
            path = f"{self._name}[{low}..{high}]"
            n_bytes = int(width * rows)
            shards.append(KeyRange(path, 0, 1, rows, file_row=first, n_bytes=n_bytes, low=low, high=high))
            identities[path] = fingerprint([self._from, low, high, rows, row["changed"], row["n_changed"]])
            first += rows
        if not shards:
            raise no_row(self._name, {}, filtered=self.spec.filter is not None)
        return Listing(schema, tuple(shards), identities)

    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the named columns of one key range."""
        pick(schema, columns, shard.path)
        names = ", ".join(map(quoted, columns or [self.options.key]))
        key = quoted(self.options.key)
        with self._connected() as cursor:
            cursor.execute(
                f"SELECT {names} FROM {self._from} WHERE {self._within(shard, schema)} ORDER BY {key}"
            )
            return gather(self.spec, shard, cursor.fetch_record_batch(), columns, schema)

    def locate(self, shard: SourceShard, row: int) -> str:
        """Name a row by its key: "id = 17"."""
        key = quoted(self.options.key)
        with self._connected() as cursor:
            schema = plain(self._name, self._sample(cursor).schema)
            rows = f"SELECT {key} FROM {self._from} WHERE {self._within(shard, schema)} ORDER BY {key}"
            found = _fetch(cursor, f"{rows} LIMIT 1 OFFSET {row}")
        return f"{self.options.key} = {found.column(0)[0].as_py()!r}"

    def file_rows(self, shard: SourceShard, rows: Sequence[int]) -> Sequence[int]:
        """Return the rows by their place in the order of the key, 0-based."""
        return [shard.file_row + row for row in rows]

    @property
    def _name(self) -> str:
        """URL of the database without user and password, followed by the table."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}{parts.path}#{self.options.table or 'query'}"

    @property
    def _from(self) -> str:
        if self.options.query:
            return f"({self.options.query}\n) AS rowsieve_query"  # the line end ends a comment
        return ".".join(quoted(part) for part in str(self.options.table).split("."))

    def _sample(self, cursor: Any) -> pa.Table:
        if isinstance(cursor, SqliteCursor):
            return cursor.sample(self._from, SAMPLE_ROWS)
        return _fetch(cursor, f"SELECT * FROM {self._from} LIMIT {SAMPLE_ROWS}")

    def _ranges(self, schema: pa.Schema) -> str:
        """Return the query for the ranges of ``rows_per_shard`` rows in the order of the key.

        Of each range it gives the first and last key, the number of rows, and the largest value and the count
        of the column ``changed_by``.
        """
        key, n = quoted(self.options.key), self.options.rows_per_shard
        changed = quoted(self.options.changed_by) if self.options.changed_by else "NULL"
        place = f"(row_number() OVER (ORDER BY {key}) - 1)"
        return (
            f"SELECT min(k) AS low, max(k) AS high, count(*) AS n, max(c) AS changed, count(c) AS n_changed "
            f"FROM (SELECT {key} AS k, {changed} AS c, {place} - {place} % {n} AS part FROM {self._from} "
            f"WHERE {self._where(schema)}) AS rowsieve_rows GROUP BY part ORDER BY part"
        )

    def _where(self, schema: pa.Schema) -> str:
        return where(self.spec.filter, schema, mixes_types=self.url.startswith("sqlite"))

    def _within(self, shard: SourceShard, schema: pa.Schema) -> str:
        if not isinstance(shard, KeyRange):
            raise ConnectorError(f"{shard.path} is not a key range. Plan and run again.")
        key = quoted(self.options.key)
        return f"{key} >= {shard.low} AND {key} <= {shard.high} AND {self._where(schema)}"

    def _check_key(self, cursor: Any, schema: pa.Schema) -> None:
        for name in filter(None, (self.options.key, self.options.changed_by)):
            pick(schema, [name], self._name)
        key = quoted(self.options.key)
        if isinstance(cursor, SqliteCursor):
            cursor.check_one_type(self._name, key, self._from)
        counts = _fetch(
            cursor,
            f"SELECT count(*) AS n, count({key}) AS valid, count(DISTINCT {key}) AS keys FROM {self._from}",
        ).to_pylist()[0]
        if len(set(counts.values())) > 1:
            raise ConnectorError(
                f"{self._name}: source.options.key: {self.options.key!r} has {counts['keys']} values in "
                f"{counts['n']} rows ({counts['n'] - counts['valid']} null). Name a column that is unique "
                f"and never null, or make one in source.options.query."
            )

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        seconds = min(STATEMENT_SECONDS, self.spec.policy.seconds or STATEMENT_SECONDS)
        if self.url.startswith("sqlite"):
            with reading_sqlite(self._file(), self._name, seconds, self.spec.max_bytes) as reading:
                yield reading
            return
        errors = library("adbc_driver_manager.dbapi", "sql").Error
        stopped = threading.Event()
        try:
            with (
                self._connect() as connection,
                connection.cursor() as cursor,
                stopping(cursor, seconds, stopped),
            ):
                limit = f"SET statement_timeout = '{seconds}s'"
                for statement in (*POSTGRESQL_SETTINGS, limit) if self.url.startswith("postgres") else ():
                    cursor.execute(statement)
                yield cursor
        except errors as error:
            if stopped.is_set():
                raise took_too_long(self._name, seconds) from None
            raise ConnectorError(f"{self._name}: {' '.join(str(error).split())[:500]}") from error

    def _connect(self) -> Any:
        """Return a connection; files are opened for reading alone."""
        scheme = self.url.partition("://")[0]
        driver = library(DRIVERS[scheme], "sql")
        if scheme.startswith("postgres"):
            return driver.connect(self.url)
        path = self._file()
        return library("adbc_driver_manager.dbapi", "sql").connect(
            driver=driver.driver_path(),
            entrypoint="duckdb_adbc_init",
            db_kwargs={"path": path, "access_mode": "READ_ONLY", **DUCKDB_SETTINGS},
        )

    def _file(self) -> str:
        """Return the path of a database in a file. Raises ConnectorError where there is none."""
        path = location(self.url.partition("://")[2].removeprefix("/"), self.spec.root)
        if not os.path.exists(path):
            raise ConnectorError(f"{self._name}: there is no file {path}. {CORRECT_PATH}.")
        if not os.path.isfile(path):  # a pipe would be waited for
            raise ConnectorError(f"{self._name}: {path} is not a file. {CORRECT_PATH}.")
        return path


@contextmanager
def stopping(cursor: Any, seconds: float, stopped: threading.Event) -> Iterator[None]:
    """Interrupt what a cursor does once the block has taken ``seconds``, and set the event.

    PostgreSQL has a limit of its own for each statement; DuckDB has none.
    """

    def stop() -> None:
        stopped.set()
        with suppress(Exception):  # the cursor was closed at the same moment
            cursor.adbc_cancel()

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _fetch(cursor: Any, statement: str) -> pa.Table:
    cursor.execute(statement)
    return cursor.fetch_arrow_table()


def not_one_select(reason: str) -> ConnectorError:
    """Make the error of a ``query`` that is not one SELECT."""
    return ConnectorError(
        f"source.options.query is not one SELECT that only reads: {' '.join(reason.split())[:200]}. "
        f"Write one SELECT without a semicolon, or make a view in the database and name it in "
        f"source.options.table."
    )


def check_duckdb(query: str) -> None:
    """Raise unless DuckDB's own parser finds exactly one SELECT."""
    duckdb = library("duckdb", "sql")
    statements = duckdb.extract_statements(query)
    kinds = [statement.type for statement in statements]
    if kinds != [duckdb.StatementType.SELECT]:
        raise not_one_select(f"it holds {len(kinds)} statements ({', '.join(kind.name for kind in kinds)})")


def check_postgresql(query: str) -> None:
    """Raise unless ``query`` is surely one SELECT, by a conservative reading of its text.

    PostgreSQL has no parser to ask. Comments, backslashes and dollar quotes are refused, so that quotes
    are found without doubt. The rest may hold no semicolon, and its parentheses must match. That the
    transaction is read-only is the database's own check.
    """
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", " 0 ", query)
    marks = [mark for mark in ("\\", "\0") if mark in query]
    marks += [mark for mark in (";", "--", "/*", "$", "'", '"') if mark in bare]
    if marks:
        raise not_one_select(f"it holds {marks[0]!r}")
    depths = list(accumulate(1 if sign == "(" else -1 for sign in re.findall(r"[()]", bare)))
    words = re.findall(r"[a-z_][a-z0-9_]*", bare.lower())
    if min(depths, default=0) < 0 or depths[-1:] not in ([], [0]):
        raise not_one_select("its parentheses do not match")
    if not words or words[0] not in ("select", "with"):
        raise not_one_select("it does not begin with SELECT or WITH")
    quoted_names = re.findall(r'"([^"]*)"', re.sub(r"'[^']*'", "", query).lower())
    risky = next((word for word in [*words, *quoted_names] if RISKY.fullmatch(word)), None)
    if risky:
        raise not_one_select(f"{risky} may write, or read what is not in tables")


def expand(url: str, policy: SourcePolicy) -> str:
    """Replace ``${NAME}`` in the user and password of a URL by environment variables.

    Only variables that the policy lists are read. Otherwise a recipe could send any
    secret of the process to a host of its choice.

    Raises
    ------
    ConnectorError
        A name is not listed or not set, or stands elsewhere in the URL.
    """

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name not in policy.variables:
            raise ConnectorError(
                f"source.path: ${{{name}}} would send this environment variable to the database's host. "
                f"The administrator allows {', '.join(policy.variables) or 'none'}. If you trust the recipe, "
                f"set {NAMES_VARIABLE}={','.join([*policy.variables, name])} on every node."
            )
        if name not in os.environ:
            raise ConnectorError(
                f"source.path: the environment variable {name} is not set. Set it on every node."
            )
        return quote(os.environ[name], safe="")

    scheme, mark, rest = url.partition("://")
    authority = re.match(r"[^/?#]*", rest)
    user, at, host = (authority[0] if authority else "").rpartition("@")
    after = host + rest[len(user + at + host) :]
    if found := VARIABLE.search(after + scheme):
        raise ConnectorError(
            f"source.path: {found[0]} may stand in the user and password of a database URL only. Write the "
            f"host, path and query out."
        )
    return scheme + mark + VARIABLE.sub(value, user) + at + after
