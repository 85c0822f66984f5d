"""SQL databases as a source, through ADBC: shards are ranges of a key column."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Decimal
from typing import Any
from urllib.parse import quote, urlsplit

import pyarrow as pa
from pydantic import Field, model_validator

from connectors.base import Connector, ConnectorError, Listing, Source, SourceOptions, SourceShard, SourceSpec
from connectors.files import no_row
from connectors.filters import Clause, Predicate
from connectors.schema import pick
from connectors.tables.common import fingerprint, gather, library, location, plain

ENVIRONMENT_NAMES = "ROWSIEVE_ENVIRONMENT_NAMES"
"""Environment variable with the names that ``${NAME}`` in a URL may stand for, separated by commas."""
DRIVERS = {
    "postgresql": "adbc_driver_postgresql.dbapi",
    "postgres": "adbc_driver_postgresql.dbapi",
    "sqlite": "adbc_driver_sqlite.dbapi",
    "duckdb": "adbc_driver_duckdb",
}
SAMPLE_ROWS = 1000
"""Rows whose types are the column types, where a database knows none of its own (SQLite)."""


class SqlOptions(SourceOptions):
    """What to read, and how it is cut into shards."""

    table: str | None = Field(default=None, min_length=1, description="Table or view, also `schema.table`")
    query: str | None = Field(default=None, min_length=1, description="A SELECT instead, without a semicolon")
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
    """The format by name."""

    name = "sql"
    summary = (
        "PostgreSQL, SQLite and DuckDB by URL (pip install 'rowsieve[sql]'); a shard is a range of a key"
    )
    schemes = tuple(DRIVERS)
    Options = SqlOptions

    def open(self, spec: SourceSpec, options: SqlOptions) -> Source:
        """See :class:`connectors.base.Connector`. ``${NAME}`` in the URL is a variable of the environment."""
        return SqlSource(spec, options, _expand(spec.path))


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
        """See :class:`connectors.base.Source`."""
        return self.spec.skip_corrupt

    def list(self) -> Listing:
        """Let the database cut the rows into ranges: one pass over the key, sorted."""
        with self._connected() as cursor:
            sample = _fetch(cursor, f"SELECT * FROM {self._from} LIMIT {SAMPLE_ROWS}")
            schema = plain(self._name, sample.schema)
            self._check_key(cursor, schema)
            found = _fetch(cursor, self._ranges(schema)).to_pylist()
        width = sample.nbytes / max(1, sample.num_rows)
        shards, identities, first = list[SourceShard](), {}, 0
        for row in found:
            low, high, rows = literal(row["low"]), literal(row["high"]), int(row["n"])
            path = f"{self._name}[{low}..{high}]"
            shards.append(KeyRange(path, 0, 1, rows, first, int(width * rows), low, high))
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
            schema = plain(self._name, _fetch(cursor, f"SELECT * FROM {self._from} LIMIT 1").schema)
            rows = f"SELECT {key} FROM {self._from} WHERE {self._within(shard, schema)} ORDER BY {key}"
            found = _fetch(cursor, f"{rows} LIMIT 1 OFFSET {row}")
        return f"{self.options.key} = {found.column(0)[0].as_py()!r}"

    def file_rows(self, shard: SourceShard, rows: Sequence[int]) -> Sequence[int]:
        """Rows by their place in the order of the key, 0-based."""
        return [shard.file_row + row for row in rows]

    @property
    def _name(self) -> str:
        """The database without user and password, and what is read of it."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}{parts.path}#{self.options.table or 'query'}"

    @property
    def _from(self) -> str:
        if self.options.query:
            return f"({self.options.query}) AS rowsieve_query"
        return ".".join(quoted(part) for part in str(self.options.table).split("."))

    def _ranges(self, schema: pa.Schema) -> str:
        """Of every ``rows_per_shard`` rows in the key's order: first and last key, how many, what changes."""
        key, n = quoted(self.options.key), self.options.rows_per_shard
        changed = quoted(self.options.changed_by) if self.options.changed_by else "NULL"
        place = f"(row_number() OVER (ORDER BY {key}) - 1)"
        return (
            f"SELECT min(k) AS low, max(k) AS high, count(*) AS n, max(c) AS changed, count(c) AS n_changed "
            f"FROM (SELECT {key} AS k, {changed} AS c, {place} - {place} % {n} AS part FROM {self._from} "
            f"WHERE {where(self.spec.filter, schema)}) AS rowsieve_rows GROUP BY part ORDER BY part"
        )

    def _within(self, shard: SourceShard, schema: pa.Schema) -> str:
        if not isinstance(shard, KeyRange):
            raise ConnectorError(f"{shard.path} is no key range. Plan and run again.")
        key = quoted(self.options.key)
        return f"{key} >= {shard.low} AND {key} <= {shard.high} AND {where(self.spec.filter, schema)}"

    def _check_key(self, cursor: Any, schema: pa.Schema) -> None:
        for name in filter(None, (self.options.key, self.options.changed_by)):
            pick(schema, [name], self._name)
        key = quoted(self.options.key)
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
        errors = library("adbc_driver_manager.dbapi", "sql").Error
        try:
            with self._connect() as connection, connection.cursor() as cursor:
                yield cursor
        except errors as error:
            raise ConnectorError(f"{self._name}: {' '.join(str(error).split())[:500]}") from error

    def _connect(self) -> Any:
        """A connection; files are opened for reading alone."""
        scheme, _, rest = self.url.partition("://")
        driver = library(DRIVERS[scheme], "sql")
        if scheme.startswith("postgres"):
            return driver.connect(self.url)
        path = location(rest.removeprefix("/"), self.spec.root)
        if not os.path.exists(path):
            raise ConnectorError(f"{self._name}: there is no file {path}. Correct source.path.")
        if scheme == "sqlite":
            return driver.connect(f"file:{quote(path)}?mode=ro")
        return library("adbc_driver_manager.dbapi", "sql").connect(
            driver=driver.driver_path(),
            entrypoint="duckdb_adbc_init",
            db_kwargs={"path": path, "access_mode": "READ_ONLY"},
        )


def _fetch(cursor: Any, statement: str) -> pa.Table:
    cursor.execute(statement)
    return cursor.fetch_arrow_table()


def _expand(url: str) -> str:
    """Replace ``${NAME}`` in the user and password of a URL by environment variables.

    Only variables that ``ROWSIEVE_ENVIRONMENT_NAMES`` lists are read. Otherwise a recipe could send any
    secret of the process to a host of its choice.

    Raises
    ------
    ConnectorError
        A name is not listed or not set, or stands elsewhere in the URL.

    """
    allowed = [name.strip() for name in os.environ.get(ENVIRONMENT_NAMES, "").split(",") if name.strip()]

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name not in allowed:
            raise ConnectorError(
                f"source.path: ${{{name}}} would send this environment variable to the database's host, and "
                f"the operator allows {', '.join(allowed) or 'none'}. If you trust the recipe, set "
                f"{ENVIRONMENT_NAMES}={','.join([*allowed, name])} in the environment, on every node."
            )
        if name not in os.environ:
            raise ConnectorError(f"source.path: the environment variable {name} is not set.")
        return quote(os.environ[name], safe="")

    scheme, mark, rest = url.partition("://")
    authority = re.match(r"[^/?#]*", rest)
    user, at, host = (authority[0] if authority else "").rpartition("@")
    after = host + rest[len(user + at + host) :]
    if found := re.search(r"\$\{(\w+)\}", after + scheme):
        raise ConnectorError(
            f"source.path: {found[0]} may stand in the user and password of a database URL only. Write the "
            f"host, path and query out."
        )
    return scheme + mark + re.sub(r"\$\{(\w+)\}", value, user) + at + after


EVERYTHING = "1 = 1"
NOTHING = "1 = 0"
EQUALITY = ("=", "==", "!=", "in", "not in")


def quoted(name: str) -> str:
    """A column or table name in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: Any) -> str:
    """A whole number, decimal, text, date or time as SQL. Raises ConnectorError for anything else."""
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (date, time)):  # a datetime is a date
        return f"'{value.isoformat()}'"
    if isinstance(value, str) and "\0" not in value:
        return "'" + value.replace("'", "''") + "'"
    raise ConnectorError(
        f"source.options.key: {value!r} ({type(value).__name__}) cannot be written as SQL. Choose a key of "
        f"whole numbers, text or dates."
    )


def where(wanted: Predicate | None, schema: pa.Schema) -> str:
    """A condition that lets through at least the rows that a filter takes.

    Texts are compared for equality alone: databases sort them by rules of their own. Raises ConnectorError
    for an unknown column or a value of another type.
    """
    if wanted is None:
        return EVERYTHING
    wanted.expression(schema)
    ways = (" AND ".join(_condition(clause, schema) for clause in way) for way in wanted.ways)
    return "(" + " OR ".join(f"({way})" for way in ways) + ")"


def _condition(clause: Clause, schema: pa.Schema) -> str:
    name, operation, value = clause
    column, kind = quoted(name), schema.field(name).type
    if value is None:
        return f"{column} IS {'NOT ' if operation == '!=' else ''}NULL"
    if pa.types.is_boolean(kind) or not (operation in EQUALITY or pa.types.is_integer(kind)):
        return EVERYTHING
    if operation in ("in", "not in"):
        values = ", ".join(literal(one) for one in value)
        return f"{column} {operation.upper()} ({values})" if values else _of_none(column, operation)
    sign = {"==": "=", "!=": "<>"}.get(operation, operation)
    return f"{column} {sign} {literal(value)}"


def _of_none(column: str, operation: str) -> str:
    return NOTHING if operation == "in" else f"{column} IS NOT NULL"
