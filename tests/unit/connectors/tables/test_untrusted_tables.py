"""Tables whose logs and metadata are forged: what they name outside of the table is not opened."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from connectors import ConnectorError, open_source
from connectors.policy import SourcePolicy, set_policy
from connectors.tables import delta, lance
from connectors.tables.delta_log import check_vectors
from connectors.tables.export import VersionTag, open_export
from connectors.tables.iceberg_checks import check_written
from tests import tables

ROWS = pa.table({"k": [1, 2, 3], "y": ["a", "b", "a"]})
NAME = "ab^-aqEH.-t@S}K{vb[*k^"
"""Name of a deletion vector in the protocol's example: the folder ab and a UUID."""


def refused(*words: str, path: Path | str, **settings: Any) -> None:
    """The source is refused by one paragraph that holds the words."""
    delta._read_log.cache_clear()
    lance._opened.cache_clear()
    with pytest.raises(ConnectorError) as caught:
        open_source(str(path), **settings).list()
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text


def made(kind: str, folder: Path) -> Path:
    folder.mkdir()
    found = tables.new(kind, folder)
    tables.append(found, ROWS)
    return Path(found.path)


def edit(table: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change every action of the log in place."""
    for log in (table / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            change(action)
        log.write_text("\n".join(map(json.dumps, actions)))


# Delta: deletion vectors and checkpoints are opened by the library itself


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    pytest.importorskip("deltalake")
    return made("delta", tmp_path / "lake")


def with_vector(table: Path, vector: dict[str, Any]) -> None:
    def change(action: dict[str, Any]) -> None:
        if "protocol" in action:
            features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
        if "add" in action:
            action["add"]["deletionVector"] = {"offset": 1, "sizeInBytes": 34, "cardinality": 1, **vector}

    edit(table, change)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("p", "file://{out}"),
        ("p", "{out}"),
        ("p", "file:///dev/zero"),
        ("p", "file://{table}/../../secret.bin"),
        ("p", "file://{table}/%2e%2e/%2e%2e/secret.bin"),
        ("p", "file://{table}/..\\..\\secret.bin"),
        ("p", "file://{table}/.\t./secret.bin"),
        ("p", "http://127.0.0.1:1/x"),
        ("p", "s3://bucket/x"),
        ("u", f"../../{NAME}"),
        ("u", f"a/%2e%2e/%2e%2e/{NAME}"),
        ("u", f"/etc/{NAME}"),
        ("u", f"http://127.0.0.1:1/{NAME}"),
    ],
)
def test_the_deletion_vectors_of_a_delta_table_lie_below_it(kind: str, name: str, lake: Path) -> None:
    out = lake.parent.parent / "secret.bin"
    out.write_bytes(b"secret" * 10)
    with_vector(
        lake,
        {
            "storageType": kind,
            "pathOrInlineDv": name.replace("{out}", str(out)).replace("{table}", str(lake)),
        },
    )
    refused("source.path", "deletion vector", path=lake, format="delta")


def test_a_deletion_vector_of_a_checkpoint_lies_below_the_table(lake: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    with_vector(lake, {"storageType": "u", "pathOrInlineDv": NAME[-20:]})
    check_vectors(str(lake), 1)
    deltalake.DeltaTable(str(lake)).create_checkpoint()
    file = next((lake / "_delta_log").glob("*.checkpoint.parquet"))
    change_adds(
        file, lambda add: add["deletionVector"].update(storageType="p", pathOrInlineDv="file:///dev/zero")
    )
    refused("source.path", "/dev/zero", path=lake, format="delta")


def change_adds(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the data files that a checkpoint names."""
    held = pq.read_table(file)
    place, adds = held.schema.get_field_index("add"), held["add"].to_pylist()
    for add in filter(None, adds):
        change(add)
    pq.write_table(held.set_column(place, held.schema.field("add"), pa.array(adds, held["add"].type)), file)


@pytest.mark.parametrize(
    ("high", "row"), [(0, 2**32 - 1), (1000, 5), (2**32 - 1, 0)], ids=["4 GiB", "4 TiB", "16 EiB"]
)
@pytest.mark.parametrize("stored", [False, True])
def test_a_deletion_vector_marks_no_row_that_no_file_has(
    high: int, row: int, stored: bool, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library makes a mask of all rows up to it; without memory for it, it ends the process."""
    monkeypatch.setattr("deltalake.DeltaTable.deletion_vectors", lambda _: pytest.fail("a mask was made"))
    tables.mark_deleted(str(lake), [row], high=high)
    if stored:
        store_vectors(lake)
    refused("source.path", "marks a row beyond the 268,435,456", path=lake, format="delta")


def store_vectors(table: Path) -> None:
    """Put the vectors of a log into a file of their own."""
    name = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"  # of the protocol's example

    def store(action: dict[str, Any]) -> None:
        vector = action.get("add", {}).get("deletionVector")
        if vector:
            text = vector["pathOrInlineDv"].encode().translate(bytes.maketrans(tables.Z85, tables.B85))
            data = base64.b85decode(text)[: vector["sizeInBytes"]]
            content = b"\1" + len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
            (table / "ab").mkdir()
            (table / "ab" / name).write_bytes(content)
            vector |= {"storageType": "u", "pathOrInlineDv": NAME, "offset": 1}

    edit(table, store)


def test_deletion_vectors_in_files_are_read(lake: Path) -> None:
    tables.mark_deleted(str(lake), [1])
    store_vectors(lake)
    source = open_source(str(lake), format="delta")
    listing = source.list()
    assert source.read(listing.shards[0], ["k"], listing.schema)["k"].to_pylist() == [1, 3]


def test_all_deletion_vectors_mark_a_bounded_number_of_rows(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.mark_deleted(str(lake), [0, 2])
    monkeypatch.setattr("connectors.tables.delta.MAX_ROWS", 1)
    refused("source.path", "mark more than 1 rows", path=lake, format="delta")


def test_a_panic_of_a_library_is_an_error_of_the_table(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An inline vector without bytes made one, which no handler of errors catches."""
    with_vector(lake, {"storageType": "i", "pathOrInlineDv": "", "offset": None})
    monkeypatch.setattr("connectors.tables.delta_log.check_widths", lambda *_: None)
    refused("cannot be read by Delta", path=lake, format="delta")


@pytest.mark.parametrize("name", ["i", "i0000000000", "iab^", "u%61" + NAME[-20:]])
def test_a_damaged_deletion_vector_is_named(name: str, lake: Path) -> None:
    with_vector(lake, {"storageType": name[0], "pathOrInlineDv": name[1:]})
    refused("source.path", path=lake, format="delta")


@pytest.mark.parametrize("name", ["../outside.parquet", "%252e%252e/x.parquet", "file:///etc/x", "//etc/x"])
def test_the_files_of_a_checkpoint_lie_below_the_table(name: str, lake: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    deltalake.DeltaTable(str(lake)).create_checkpoint()
    file = next((lake / "_delta_log").glob("*.checkpoint.parquet"))
    change_adds(file, lambda add: add.update(path=name))
    refused("source.path", "data file", path=lake, format="delta")


@pytest.mark.parametrize(
    "line",
    [
        '{"sidecar": {"path": "../../x.parquet"}}',
        '{"sidecar": {"path": "file:///etc/x.parquet"}}',
        '{"add": {"path": "a", "deletionVector": {"pathOrInlineDv": "x", "pathOrInlineDv": "/etc/y"}}}',
        '{"add": {"deletion\\u0056ector": {"storageType": "p", "path\\u004frInlineDv": "/etc/x"}}}',
        '{"x": ' + "[" * 200_000,
        "no JSON",
    ],
)
def test_other_forged_lines_of_a_log(line: str, lake: Path) -> None:
    """Of parts of a checkpoint, of keys that are there twice or are spelt otherwise, and of deep JSON."""
    (lake / "_delta_log" / "00000000000000000001.json").write_text(line)
    check_vectors(str(lake), 0)  # later commits do not count
    with pytest.raises(ConnectorError, match=r"^source\.path: [^\n]*$"):
        check_vectors(str(lake), 1)


@pytest.mark.parametrize(
    "name", ["_delta_log", "_delta_log/00000000000000000000.json", "_delta_log/_last_checkpoint"]
)
def test_links_in_a_log_lead_nowhere(name: str, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltalake.DeltaTable", lambda *_, **__: pytest.fail("the log was read"))
    outside = lake.parent.parent / "outside"
    if (lake / name).exists():
        (lake / name).rename(outside)
    else:
        outside.write_text("{}")
    (lake / name).symlink_to(outside)
    refused("lies outside of", path=lake, format="delta")
    refused("lies outside of", path=f"file://{lake}", format="delta")


@pytest.mark.parametrize("name", ["_last_checkpoint", "00000000000000000000.json"])
def test_a_file_of_a_log_has_a_bounded_size(name: str, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library reads it whole."""
    monkeypatch.setattr("deltalake.DeltaTable", lambda *_, **__: pytest.fail("the log was read"))
    with (lake / "_delta_log" / name).open("a") as file:
        file.truncate(2**40)  # takes no room on the disk
    refused("source.path", name, "1,099,511,627,776 bytes", "268,435,456", path=lake, format="delta")
    table = open_export("delta", str(lake), "append")
    with pytest.raises(ConnectorError, match=rf"output\.export: .*{name}.* 1,099,511,627,776 bytes"):
        table.committed_state(VersionTag("v1", "a1"))


def test_a_small_checkpoint_stands_for_no_million_files(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million equal rows in 250 KB took more than 1.5 GB and minutes of the library's."""
    deltalake = pytest.importorskip("deltalake")
    deltalake.DeltaTable(str(lake)).create_checkpoint()
    file = next((lake / "_delta_log").glob("*.checkpoint.parquet"))
    rows = pq.read_table(file)
    add = rows.filter(pc.is_valid(rows["add"])).slice(0, 1)
    pq.write_table(pa.concat_tables([rows, *[add] * 100_000]).combine_chunks(), file, compression="zstd")
    assert file.stat().st_size < 300_000
    monkeypatch.setattr("deltalake.DeltaTable", lambda *_, **__: pytest.fail("the log was read"))
    refused("source.path", ".checkpoint.parquet", "states 100,0", path=lake, format="delta")


def test_a_log_counts_as_bytes_of_the_source(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (lake / "_delta_log" / "00000000000000000001.json").write_text(" " * 100_000)
    set_policy(SourcePolicy(max_bytes=50_000))
    try:
        refused("source.path", "50,000 are allowed", path=lake, format="delta")
    finally:
        set_policy(None)


def test_a_log_states_the_bytes_of_its_files(lake: Path) -> None:
    """The limit of an installation would count one byte for a file of any size."""

    def small(action: dict[str, Any]) -> None:
        if "add" in action:
            action["add"]["size"] = 1

    edit(lake, small)
    assert open_source(str(lake), format="delta").list().shards[0].n_bytes == 1
    set_policy(SourcePolicy(max_bytes=50_000))
    try:
        refused("source.path", " bytes, and its table states 1,", path=lake, format="delta")
    finally:
        set_policy(None)


def test_a_lance_dataset_without_sizes_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Datasets of early versions of the format state no size."""
    pytest.importorskip("lance")
    path = made("lance", tmp_path / "lake")
    size = sum(file.stat().st_size for file in (path / "data").iterdir())
    assert open_source(str(path), format="lance").list().shards[0].n_bytes == size
    file = next((path / "data").iterdir()).name
    stated = SimpleNamespace(path=file, file_size_bytes=None, base_id=None)
    source = open_source(str(path), format="lance")
    assert isinstance(source, lance.LanceSource)
    assert source._size(stated) == size
    limited = replace(source, spec=replace(source.spec, policy=SourcePolicy(max_bytes=50_000)))
    assert limited._size(stated) == size
    with pytest.raises(ConnectorError, match="its table states 1,"):
        limited._size(SimpleNamespace(path=file, file_size_bytes=1))


def test_a_pipe_in_a_table_is_not_waited_for(lake: Path) -> None:
    data = next(lake.glob("*.parquet"))
    data.unlink()
    os.mkfifo(data)
    refused("is a pipe or a device", str(data), path=lake, format="delta")
    os.mkfifo(lake / "_delta_log" / "_last_checkpoint")
    refused("is a pipe or a device", path=lake, format="delta")


# Lance


@pytest.mark.parametrize("folder", ["_versions", "data", "_deletions"])
@pytest.mark.parametrize("whole", [False, True])
def test_links_in_a_lance_dataset_lead_nowhere(folder: str, whole: bool, tmp_path: Path) -> None:
    library = pytest.importorskip("lance")
    path = made("lance", tmp_path / "lake")
    library.dataset(str(path)).delete("k = 2")
    assert sum(shard.n_rows for shard in open_source(str(path), format="lance").list().shards) == 2
    place = path / folder if whole else next(path.glob(f"{folder}/*.*"))
    place.rename(tmp_path / "outside")
    place.symlink_to(tmp_path / "outside")
    refused("lies outside of", path=path, format="lance")
    refused("lies outside of", path=f"file://{path}", format="lance")


# Iceberg


@pytest.fixture
def iceberg(tmp_path: Path) -> Path:
    """The folder of a table, which is also named by a hint."""
    pytest.importorskip("pyiceberg")
    found = tables.new("iceberg", tmp_path)
    tables.append(found, ROWS)
    place = tables.catalog_of(found).load_table(found.path).metadata_location.removeprefix("file://")
    (Path(place).parent / "version-hint.text").write_text(Path(place).name)
    return Path(place).parent.parent


@pytest.mark.parametrize("hint", ["../../../../x", "/etc/x.metadata.json", "%2e%2e/x", "9\n", "", "a/../b"])
def test_the_hint_of_an_iceberg_table_names_a_file_of_its_own(hint: str, iceberg: Path) -> None:
    assert sum(shard.n_rows for shard in open_source(str(iceberg), format="iceberg").list().shards) == 3
    (iceberg / "metadata" / "version-hint.text").write_text(hint)
    refused("source.path", "version-hint.text", path=iceberg, format="iceberg")


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_the_metadata_of_an_iceberg_table_are_files(kind: str, iceberg: Path) -> None:
    current = iceberg / "metadata" / (iceberg / "metadata" / "version-hint.text").read_text()
    current.rename(iceberg.parent.parent.parent / "outside")
    if kind == "link":
        current.symlink_to(iceberg.parent.parent.parent / "outside")
    else:
        os.mkfifo(current)
    refused(str(current), path=iceberg, format="iceberg")


def test_reading_writes_nothing_into_the_database_of_a_catalog(tmp_path: Path) -> None:
    """pyiceberg makes its own tables in any database that it is given."""
    pytest.importorskip("pyiceberg")
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("create table t (k int)")
    before = (tmp_path / "other.db").read_bytes()
    for extra in ({}, {"type": "sql"}, {"init_catalog_tables": "true"}):
        catalog = {"uri": f"sqlite:///{tmp_path}/other.db", **extra}
        refused("a.b cannot be read by Iceberg", path="a.b", format="iceberg", options={"catalog": catalog})
        assert (tmp_path / "other.db").read_bytes() == before


@pytest.mark.parametrize(
    "catalog",
    [
        {"type": "in-memory", "uri": "http://127.0.0.1:1"},
        {"type": "sql", "uri": "duckdb:////tmp/x.db"},
        {"type": "glue"},
    ],
)
def test_an_error_of_a_catalogs_client_is_one_paragraph(
    catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyiceberg")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    refused("a.b cannot be read by Iceberg", path="a.b", format="iceberg", options={"catalog": catalog})


def test_settings_of_the_working_directory_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of data may hold a file that sends the credentials of the environment's catalog elsewhere."""
    pytest.importorskip("pyiceberg")
    from connectors.tables.iceberg import load_catalog

    (tmp_path / "data").mkdir()
    file = tmp_path / "data" / ".pyiceberg.yaml"
    file.write_text("catalog:\n  prod:\n    uri: http://127.0.0.1:1\n")
    monkeypatch.chdir(tmp_path / "data")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PYICEBERG_HOME", raising=False)
    for catalog in ("prod", {"uri": "sqlite://"}):
        refused(
            "source.options.catalog",
            str(file),
            "PYICEBERG_HOME",
            path="a.b",
            format="iceberg",
            options={"catalog": catalog},
        )
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path / "data"))  # the operator trusts it
    load_catalog({"type": "sql", "uri": "sqlite://"})


@pytest.mark.parametrize(("format", "inner"), [("lance", "data"), ("delta", "_delta_log")])
def test_an_export_writes_nothing_behind_a_link(
    format: Literal["delta", "lance"], inner: str, tmp_path: Path
) -> None:
    """Whoever may write to a table could have the next export write its files to any folder."""
    rows = pa.table({"a": [1, 2]})

    def export(name: str) -> None:
        table = open_export(format, str(tmp_path / "t"), "append")
        pending = table.start_export(rows.schema, VersionTag(name, name))
        pending.commit([pending.write(rows, 0)])

    export("a1")
    (tmp_path / "t" / inner).rename(tmp_path / "elsewhere")
    (tmp_path / "t" / inner).symlink_to(tmp_path / "elsewhere")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConnectorError, match=rf"{inner} is a link that leads out of the table"):
        export("a2")
    assert sorted(tmp_path.rglob("*")) == before


def exported(made: tables.MadeTable, name: str) -> None:
    """Export two rows to an Iceberg table."""
    rows = pa.table({"a": [1, 2]})
    pending = open_export("iceberg", made.path, "append", made.options["catalog"]).start_export(
        rows.schema, VersionTag(name, name)
    )
    pending.commit([pending.write(rows, 0)])


@pytest.mark.parametrize("inner", ["data", "metadata"])
def test_an_iceberg_export_writes_nothing_behind_a_link(inner: str, tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    made = tables.new("iceberg", tmp_path)
    exported(made, "a1")
    folder = tmp_path / "lake" / "shop" / "rows"
    (folder / inner).rename(tmp_path / "elsewhere")
    (folder / inner).symlink_to(tmp_path / "elsewhere")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConnectorError, match=rf"{inner} is a link that leads out of the table"):
        exported(made, "a2")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_iceberg_export_writes_no_table_behind_a_link(tmp_path: Path) -> None:
    """The folder that a new table would get is a link to another one."""
    pytest.importorskip("pyiceberg")
    made = tables.new("iceberg", tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "lake" / "shop").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConnectorError, match=r"output\.export\.catalog.*not below the warehouse"):
        exported(made, "a1")
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    ("location", "allowed"),
    [
        ("s3://ours/shop/rows", True),
        ("s3://theirs/shop/rows", False),
        ("s3://ours/../theirs/rows", False),
        ("s3://theirs/x?a=s3://ours/rows", False),
        ("file:///lake/rows", False),
    ],
)
def test_a_catalog_of_the_recipe_places_no_table_beside_the_outputs(location: str, allowed: bool) -> None:
    """The recipe's own catalog, a REST server or a database, says where a table lies."""
    pytest.importorskip("pyiceberg")
    metadata = SimpleNamespace(location=location, properties={})
    catalog = {"type": "rest", "uri": "https://catalog.example.org", "warehouse": "/lake"}
    set_policy(SourcePolicy(outputs=("s3://ours/*",)))
    try:
        if allowed:
            check_written(metadata, catalog)
            return
        with pytest.raises(ConnectorError, match=r"output\.export.*ROWSIEVE_OUTPUTS|with '\.\.'"):
            check_written(metadata, catalog)
    finally:
        set_policy(None)


def test_an_iceberg_export_obeys_the_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyiceberg")
    made = tables.new("iceberg", tmp_path)
    monkeypatch.setenv("ROWSIEVE_OUTPUTS", f"{tmp_path}/other/*")
    with pytest.raises(ConnectorError, match=r"output\.export.*cannot be written to.*ROWSIEVE_OUTPUTS"):
        exported(made, "a1")
    assert not list(tmp_path.rglob("*.parquet"))
    monkeypatch.setenv("ROWSIEVE_OUTPUTS", f"{tmp_path}/lake/*")
    exported(made, "a1")
    assert list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"location": "file://{folder}/elsewhere"}, "not below the warehouse"),
        ({"properties": {"write.metadata.path": "file://{folder}/elsewhere"}}, r"write\.metadata\.path"),
        ({"properties": {"s3.endpoint": "http://127.0.0.1:1"}}, r"output\.export: the metadata of the table"),
        ({"properties": {"s3.profile-name": "operator"}}, r"output\.export: the metadata of the table"),
    ],
    ids=["location", "metadata", "endpoint", "profile"],
)
def test_forged_metadata_send_an_iceberg_export_nowhere(
    change: dict[str, Any], text: str, tmp_path: Path
) -> None:
    """Whoever may write to a table's metadata says where its next files lie, and who gets credentials."""
    pytest.importorskip("pyiceberg")
    made = tables.new("iceberg", tmp_path)
    exported(made, "a1")
    found = Path(tables.catalog_of(made).load_table(made.path).metadata_location.removeprefix("file://"))
    forged = json.dumps(change).replace("{folder}", str(tmp_path))
    found.write_text(json.dumps(json.loads(found.read_text()) | json.loads(forged)))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConnectorError, match=text):
        exported(made, "a2")
    assert sorted(tmp_path.rglob("*")) == before
