"""Tables of other formats for tests: written by their own libraries, changed as these change them."""

from __future__ import annotations

import base64
import json
import sqlite3
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from connectors.tables.sqlite_check import JOURNAL_MAGIC

Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


@dataclass(frozen=True)
class MadeTable:
    """A table as a recipe names it: format, path, options."""

    format: str
    path: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> dict[str, Any]:
        """The keys of `source`."""
        return {"format": self.format, "path": self.path, "options": self.options}


def append(made: MadeTable, table: pa.Table) -> None:
    """Write rows to the table, which is made if it is not there."""
    {"lance": _lance, "delta": _delta, "iceberg": _iceberg, "sqlite": _sqlite, "duckdb": _duckdb}[kind(made)](
        made, table
    )


def delete(made: MadeTable, condition: str) -> None:
    """Delete rows as the format's library does it."""
    if made.format == "lance":
        import lance

        lance.dataset(made.path).delete(condition)
    elif made.format == "delta":
        from deltalake import DeltaTable

        DeltaTable(made.path).delete(condition)
    elif made.format == "iceberg":
        catalog_of(made).load_table(made.path).delete(condition)
    else:
        _execute(made, f"DELETE FROM rows WHERE {condition}")


def add_iceberg_deletes(made: MadeTable, content: Any, deleted: pa.Table, **facts: Any) -> None:
    """Commit a file of deleted rows to an Iceberg table; pyiceberg itself writes none."""
    from pyiceberg import manifest
    from pyiceberg.typedef import Record

    class DeleteWriter(manifest.ManifestWriterV2):
        def content(self) -> manifest.ManifestContent:
            return manifest.ManifestContent.DELETES

        @property
        def _meta(self) -> dict[str, str]:
            return {**super()._meta, "content": "deletes"}

    table = catalog_of(made).load_table(made.path)
    name = f"{table.location()}/data/deleted-{content.name.lower()}.parquet"
    with table.io.new_output(name).create() as stream:
        pq.write_table(deleted, stream)
    fixed = {"file_path": name, "file_format": manifest.FileFormat.PARQUET, "partition": Record()}
    sizes = {"record_count": deleted.num_rows, "file_size_in_bytes": len(table.io.new_input(name))}
    file = manifest.DataFile.from_args(content=content, **fixed, **sizes, **facts)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        number = append._snapshot_id
        entry = manifest.ManifestEntry.from_args(
            status=manifest.ManifestEntryStatus.ADDED,
            snapshot_id=number,
            sequence_number=None,
            file_sequence_number=None,
            data_file=file,
        )
        output = table.io.new_output(f"{table.location()}/metadata/deleted-{content.name.lower()}.avro")
        with DeleteWriter(table.spec(), table.schema(), output, number, "deflate") as writer:
            writer.add_entry(entry)
        manifests = [*append._manifests(), writer.to_manifest_file()]
        append._manifests = lambda: manifests


def kind(made: MadeTable) -> str:
    """Name of the library's format: of ``sql``, the database."""
    return made.path.partition("://")[0] if made.format == "sql" else made.format


def new(name: str, folder: Path) -> MadeTable:
    """Return the place at which a table of this kind is to be written."""
    if name in ("sqlite", "duckdb"):
        return MadeTable(
            "sql", f"{name}:///{folder}/rows.{name}", {"table": "rows", "key": "a", "rows_per_shard": 40}
        )
    if name == "iceberg":
        (folder / "lake").mkdir(exist_ok=True)
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/lake",
        }
        return MadeTable("iceberg", "shop.rows", {"catalog": catalog})
    return MadeTable(name, str(folder / f"rows.{name}"))


def catalog_of(made: MadeTable) -> Any:
    """Its Iceberg catalog."""
    from pyiceberg.catalog import load_catalog

    return load_catalog("default", **made.options["catalog"])


def _lance(made: MadeTable, table: pa.Table) -> None:
    import lance

    lance.write_dataset(table, made.path, mode="append" if Path(made.path).exists() else "create")


def _delta(made: MadeTable, table: pa.Table) -> None:
    from deltalake import write_deltalake

    write_deltalake(made.path, table, mode="append", configuration={"delta.enableDeletionVectors": "true"})


def _iceberg(made: MadeTable, table: pa.Table) -> None:
    catalog = catalog_of(made)
    if not catalog.table_exists(made.path):
        catalog.create_namespace_if_not_exists(made.path.partition(".")[0])
        catalog.create_table(made.path, schema=table.schema)
    catalog.load_table(made.path).append(table)


def _sqlite(made: MadeTable, table: pa.Table) -> None:
    names = ", ".join(table.column_names)
    types = {"string": "TEXT", "int64": "INTEGER", "double": "REAL"}
    columns = ", ".join(f"{f.name} {types[str(f.type)]}" for f in table.schema)
    with sqlite3.connect(made.path.removeprefix("sqlite:///")) as connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS rows ({columns})")
        marks = ", ".join("?" * table.num_columns)
        rows = [tuple(row.values()) for row in table.to_pylist()]
        connection.executemany(f"INSERT INTO rows ({names}) VALUES ({marks})", rows)


def _duckdb(made: MadeTable, table: pa.Table) -> None:
    import duckdb

    with duckdb.connect(made.path.removeprefix("duckdb:///")) as connection:
        connection.register("more", table)
        connection.execute("CREATE TABLE IF NOT EXISTS rows AS SELECT * FROM more LIMIT 0")
        connection.execute("INSERT INTO rows SELECT * FROM more")


def _execute(made: MadeTable, statement: str) -> None:
    import duckdb

    connect = duckdb.connect if kind(made) == "duckdb" else sqlite3.connect
    connection = connect(made.path.partition(":///")[2])
    connection.execute(statement)
    connection.commit()
    connection.close()


def mark_deleted(path: str, rows: Sequence[int], high: int = 0) -> None:
    """Give the data file that a Delta table's last version added a deletion vector, as Spark does.

    ``high`` is the upper half of the numbers of the rows, which has 32 bits.
    """
    from deltalake import DeltaTable
    from pyroaring import BitMap

    version = DeltaTable(path).version()
    log = Path(path) / "_delta_log"
    last = (log / f"{version:020d}.json").read_text().splitlines()
    add = next(action["add"] for action in map(json.loads, last) if "add" in action)
    # One 64-bit roaring bitmap with one 32-bit one in it, after its magic number.
    data = struct.pack("<iqI", 1681511377, 1, high) + BitMap(rows).serialize()
    text = base64.b85encode(data + bytes(-len(data) % 4)).translate(bytes.maketrans(B85, Z85)).decode()
    vector = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(rows)}
    stats = json.dumps(json.loads(add["stats"]) | {"tightBounds": False})
    removed = {key: add[key] for key in ("path", "size", "partitionValues")} | {"dataChange": True}
    actions = [
        {"remove": removed | {"extendedFileMetadata": True, "deletionTimestamp": 0}},
        {"add": add | {"deletionVector": vector, "stats": stats}},
        {"commitInfo": {"operation": "DELETE"}},
    ]
    (log / f"{version + 1:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def forge_journal(database: Path, victim: Path | None) -> Path:
    """Write the journal of an interrupted writer; with a victim, as of a writer of several databases."""
    page = 4096
    pages = database.stat().st_size // page
    journal = (JOURNAL_MAGIC + struct.pack(">5I", 0, 0, pages, 512, page)).ljust(512, b"\0")
    if victim is not None:
        name = str(victim).encode()
        journal += struct.pack(">I", 2**30 // page + 1) + name
        journal += struct.pack(">2I", len(name), sum(name)) + JOURNAL_MAGIC
    path = database.with_name(f"{database.name}-journal")
    path.write_bytes(journal)
    return path
