"""Functions of all table formats: importing their library, plain types, joining the batches of a shard."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa

from connectors.base import ConnectorError, CorruptError, SourceShard, SourceSpec
from connectors.column_names import check_names
from connectors.files import resolve
from connectors.pickled_types import check_types
from connectors.policy import current_policy, hosts_named
from connectors.schema import map_type, pick, usual_type
from connectors.utf8_texts import check_texts

FILES_OF_SECRETS = {"passfile", "service", "servicefile", "gssdelegation", "sslcert", "sslkey", "sslpassword"}
"""Settings of a PostgreSQL URL that use passwords, keys and tickets of this machine."""


PANIC = "PanicException"
"""Error of a library in Rust for a fault in its own code, which forged bytes may bring about. It is no
``Exception``."""


class MetadataError(ConnectorError):
    """Metadata of a table exceed a bound or are damaged. The message names the file, not a recipe's key."""


def library(module: str, extra: str) -> Any:
    """Import a table format's library. Raises ConnectorError naming the extra that brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConnectorError(
            f"This needs the package {module.partition('.')[0]}, which is not installed: "
            f"pip install 'rowsieve[{extra}]'."
        ) from error


def location(path: str, root: str = "", key: str = "source.path") -> str:
    """Return a table's absolute local path, or its URI as it was given.

    Raises ConnectorError, which names ``key``, for a URI that the policy does not allow.
    """
    if "://" not in path:
        return resolve(path, root)[1]
    current_policy().check_uri(path, key)
    return path


def check_database(url: str, key: str = "source.path") -> None:
    """Raise ConnectorError, which names ``key``, where a PostgreSQL URL could send secrets of this machine.

    The client library takes a password that the URL lacks from ``PGPASSWORD``, and sends it to any host.
    Settings that name files with passwords are refused.
    """
    parts = urlsplit(url)
    if url.partition("?")[0].count("@") > 1 or "@" in parts.path:
        raise ConnectorError(
            f"{key}: {url}: the user or password holds @ or /, at which others would end it and take the "
            f"rest for the host. Write @ as %40 and / as %2F."
        )
    settings = {name.lower(): value for name, value in parse_qsl(parts.query, keep_blank_values=True)}
    refused = sorted(FILES_OF_SECRETS & settings.keys())
    if refused:
        raise ConnectorError(
            f"{key}: a URL cannot set {refused[0]}, which sends what this machine keeps for others, or uses "
            f"it. Write user and password as ${{NAME}}; whoever runs this installation can name a "
            f"certificate in PGSSLCERT and PGSSLKEY."
        )
    if parts.password or settings.get("password") or not os.environ.get("PGPASSWORD"):
        return
    named = [parts.netloc.rpartition("@")[2], settings.get("host", ""), settings.get("hostaddr", "")]
    hosts = hosts_named(",".join(unquote(name) for name in named))
    if hosts:
        current_policy().check_ambient(hosts, f"{key}: PGPASSWORD is set")


@contextmanager
def reading_table(path: str, kind: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn what a library raises while it reads ``path`` into a CorruptError, which may be skipped."""
    try:
        yield
    except ConnectorError:
        raise
    except BaseException as error:
        known = isinstance(error, (pa.ArrowException, OSError, *errors))
        if not (known or type(error).__name__ == PANIC):
            raise
        text = " ".join(str(error).split())
        raise CorruptError(
            f"{path} cannot be read by {kind}: {text[:500]}. Correct its address or permissions."
        ) from error


def check_stated_size(path: str, stated: int, actual: int) -> None:
    """Raise ConnectorError for a data file with more bytes than its table states.

    The limit of bytes of an installation counts what a table states. Call it where there is one.
    """
    if actual > stated:
        raise ConnectorError(
            f"source.path: {path} has {actual:,} bytes, and its table states {stated:,}, by which it would "
            f"pass the limit of this installation. Repair the table's metadata."
        )


def fingerprint(value: Any) -> str:
    """Return the hexadecimal SHA-256 of a JSON-able value."""
    text = json.dumps(value, sort_keys=True, default=str)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def plain(path: str, schema: pa.Schema) -> pa.Schema:
    """Return the schema without metadata, with usual types in place of ``large_`` and ``view`` ones.

    Raises ConnectorError for columns without names, two of one name, or pickled ones.
    """
    check_types(path, schema)
    check_names(path, schema.names)
    return pa.schema([pa.field(field.name, map_type(field.type, _plain)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.OpaqueType):  # PostgreSQL's numeric has no type of Arrow's, and comes as text
        return pa.float64() if kind.type_name == "numeric" else map_type(kind.storage_type, _plain)
    return pa.string() if isinstance(kind, pa.JsonType) else usual_type(kind)


def gather(
    spec: SourceSpec,
    shard: SourceShard,
    batches: Iterable[pa.RecordBatch],
    columns: Sequence[str],
    schema: pa.Schema,
) -> pa.Table:
    """Return one shard's batches as a table of ``columns`` with the types of ``schema``.

    Raises
    ------
    ConnectorError
        They take more than ``spec.max_bytes``, are not as many rows as were listed, lack a column, or hold a
        value that does not fit.
    """
    wanted = pick(schema, columns, shard.path)
    held, n_rows, pieces = 0, 0, []
    for batch in batches:
        held += batch.nbytes
        first, n_rows = n_rows, n_rows + batch.num_rows
        if held > spec.max_bytes:
            raise ConnectorError(
                f"{shard.path}: its {shard.n_rows} rows take more in memory than source.max_shard_bytes "
                f"allows ({spec.max_bytes}). Raise that, or rewrite the table in smaller files."
            )
        table = pa.Table.from_batches([batch])
        check_texts(table, shard, first)
        pieces.append(_cast(shard, table, wanted))
    if n_rows != shard.n_rows:
        raise ConnectorError(
            f"{shard.path} has changed since it was listed: {shard.n_rows} rows were expected, "
            f"{n_rows} are there. Plan and run again."
        )
    if not wanted.names:  # joining tables without columns would lose their rows
        return pa.table({"row": pa.nulls(n_rows)}).select([])
    return pa.concat_tables(pieces) if pieces else wanted.empty_table()


def _cast(shard: SourceShard, table: pa.Table, wanted: pa.Schema) -> pa.Table:
    pick(table.schema, wanted.names, shard.path)
    if not wanted.names:
        return table.select([])
    found = []
    for field in wanted:
        column = table[field.name]
        try:
            if isinstance(column.type, pa.BaseExtensionType) and column.type != field.type:
                column = column.cast(column.type.storage_type)
            found.append(column.cast(field.type))
        except pa.ArrowException as error:
            raise ConnectorError(
                f"{shard.path}, column {field.name!r}: {column.type} values do not fit {field.type}: "
                f"{error}. Cast them where the table is written, or leave the column out by source.exclude."
            ) from error
    return pa.table(found, schema=wanted)
