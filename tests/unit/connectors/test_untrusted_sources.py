"""Recipes, tables and rows are untrusted: every attack is refused by one paragraph that names the key."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors import ConnectorError, files, guarded_client, open_source
from connectors.base import MAX_SHARD_ROWS, SourceSpec
from connectors.errors import redact_uris
from connectors.files import identity, resolve
from connectors.jsonl_source import too_deep
from connectors.policy import SourcePolicy, current_policy, set_policy
from tests import tables
from tests.unit import formats

ROWS = pa.table({"k": [1, 2, 3], "y": ["a", "b", "a"]})


def refused(*words: str, path: str, **settings: Any) -> None:
    """The source is refused by one paragraph that holds the words."""
    with pytest.raises(ConnectorError) as caught:
        open_source(path, **settings).list()
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that an attack would import; importing it writes the file."""
    written = tmp_path / "attacked"
    code = f"import pathlib\npathlib.Path({str(written)!r}).touch()\ndef load(*a, **k): pass\n"
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "stranger.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    yield written
    assert not written.exists()
    assert "stranger" not in sys.modules


# 1: properties of an Iceberg catalog


@pytest.mark.parametrize(
    ("properties", "key"),
    [
        ({"py-catalog-impl": "stranger.load"}, "source.options.catalog.py-catalog-impl"),
        ({"type": "sql", "uri": "sqlite://", "py-io-impl": "stranger.load"}, "py-io-impl"),
        (
            {"type": "rest", "uri": "http://127.0.0.1:1", "s3.retry-strategy-impl": "stranger.load"},
            "s3.retry",
        ),
        ({"type": "rest", "uri": "http://127.0.0.1:1", "auth": '{"type": "custom"}'}, "catalog.auth"),
        ({"type": "rest", "uri": "http://127.0.0.1:1", "ssl": "{}"}, "catalog.ssl"),
        ({"type": "rest", "uri": "http://169.254.169.254/"}, "source.options.catalog.uri"),
        (
            {"type": "rest", "uri": "http://127.0.0.1:1", "s3.endpoint": "http://169.254.169.254"},
            "s3.endpoint",
        ),
        ({"type": "sql", "uri": "nosuch://x"}, "source.options.catalog.uri"),
    ],
)
def test_a_catalog_loads_no_code(properties: dict[str, str], key: str, canary: Path) -> None:
    pytest.importorskip("pyiceberg")
    refused(key, path="shop.people", format="iceberg", options={"catalog": properties})


def test_an_operator_may_allow_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    from connectors.tables.iceberg_checks import check_properties

    monkeypatch.delenv("ROWSIEVE_FACTORIES", raising=False)
    found = {"py-catalog-impl": "good.catalogs.Ours"}
    with pytest.raises(
        ConnectorError, match=r"output\.export\.catalog\.py-catalog-impl.*ROWSIEVE_FACTORIES=good"
    ):
        check_properties(found, "output.export.catalog")
    monkeypatch.setenv("ROWSIEVE_FACTORIES", "good")
    check_properties(found, "output.export.catalog")


PROFILES = ("client.profile-name", "s3.profile-name", "glue.profile-name")


@pytest.mark.parametrize("name", [*PROFILES, "client.role-arn", "s3.role-arn", "hdfs.kerberos_ticket"])
def test_a_recipe_acts_as_nobody_else(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile, a role or a ticket is the operator's: a stranger's recipe would read with its rights."""
    from connectors.tables.iceberg_checks import check_properties

    monkeypatch.delenv("ROWSIEVE_PROFILES", raising=False)
    pytest.importorskip("pyiceberg")
    catalog = {"type": "rest", "uri": "http://127.0.0.1:1", "client.role-session-name": "x", name: "admin"}
    words = (f"source.options.catalog.{name}", "ROWSIEVE_PROFILES=admin")
    refused(*words, path="a.b", format="iceberg", options={"catalog": catalog})
    with pytest.raises(ConnectorError, match=r"^output\.export\.catalog\..*'admin'"):
        check_properties(catalog, "output.export.catalog")
    monkeypatch.setenv("ROWSIEVE_PROFILES", "other, admin")
    check_properties(catalog, "output.export.catalog")


@pytest.mark.parametrize(
    "uri", ["hdfs://name/x?kerb_ticket=/tmp/krb5cc_0", "s3://b/x?tls_ca_file_path=/tmp/theirs.pem"]
)
def test_a_uri_names_no_file_of_the_operator(uri: str) -> None:
    refused(uri.partition("?")[2].partition("=")[0], path=uri, format="parquet")


@pytest.mark.parametrize("name", ["sslkey", "sslcert", "passfile", "service"])
def test_a_database_url_uses_no_keys_of_this_machine(name: str) -> None:
    refused(name, path=f"postgresql://u:p@db/x?{name}=/x", format="sql", options={"table": "t", "key": "k"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("py-catalog-impl", "stranger.load"),
        ("auth", "{}"),
        ("uri", "http://169.254.169.254"),
        ("s3.endpoint", "http://169.254.169.254"),
    ],
)
def test_an_export_loads_no_code_either(name: str, value: str, canary: Path) -> None:
    """It is refused when the run is planned, before anything is computed or written."""
    pytest.importorskip("pyiceberg")
    from connectors.tables.export import VersionTag, open_export
    from connectors.tables.iceberg_export import IcebergExport

    with pytest.raises(ConnectorError, match=rf"output\.export\.catalog\.{name}"):
        open_export("iceberg", "a.b", "create", {name: value})
    export = IcebergExport("a.b", "create", {name: value})
    with pytest.raises(ConnectorError, match=rf"output\.export\.catalog\.{name}"):
        export.committed_state(VersionTag("v1", "0" * 8))


def test_the_metadata_of_a_table_load_no_code(tmp_path: Path, canary: Path) -> None:
    """A table's own properties reach the catalog's file system when it is loaded."""
    pytest.importorskip("pyiceberg")
    made = tables.new("iceberg", tmp_path)
    tables.append(made, ROWS)
    metadata = Path(tables.catalog_of(made).load_table(made.path).metadata_location.removeprefix("file://"))
    found = json.loads(metadata.read_text())
    metadata.write_text(json.dumps(found | {"properties": {"py-io-impl": "stranger.load"}}))
    refused(
        "property of the catalog or table", "stranger", path=made.path, format="iceberg", options=made.options
    )


class Catalog(BaseHTTPRequestHandler):
    """A REST catalog whose configuration names a module."""

    def do_GET(self) -> None:
        body = json.dumps({"defaults": {}, "overrides": {"py-io-impl": "stranger.load"}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Redirect(Catalog):
    """A server that sends its readers on to another address, where it serves a table."""

    reached: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        host = self.headers["Host"]
        self.reached.append(host.partition(":")[0])
        away = host.startswith("127.0.0.1")
        self.send_response(302 if away else 200)
        self.send_header("Location", f"http://{host.replace('127.0.0.1', '127.0.0.2')}/x.csv")
        self.send_header("Content-Length", "0" if away else "10")
        self.end_headers()
        if not away and self.command == "GET":
            self.wfile.write(b"n,y\n1,a\n2,")


def serve(kind: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("0.0.0.0", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


PACKED = gzip.compress(b"n,y\n" + b" " * 2**23, mtime=0)


class Packed(BaseHTTPRequestHandler):
    """Answers with a gzip stream of 8 MiB, whatever is asked for and whatever it has said."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "64")
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()

    def do_GET(self) -> None:
        body = PACKED
        self.send_response(206)
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_an_answer_of_the_web_is_not_expanded() -> None:
    """It had been, whole, before anything was counted."""
    server = serve(Packed)
    try:
        filesystem, where = resolve(f"http://127.0.0.1:{server.server_port}/x.csv")
        with filesystem.open_input_file(where) as file:
            tracemalloc.start()
            file.read(64)
            assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
        server.shutdown()


def test_a_rest_catalog_cannot_name_a_module(canary: Path) -> None:
    pytest.importorskip("pyiceberg")
    server = serve(Catalog)
    uri = f"http://127.0.0.1:{server.server_port}"
    try:
        from connectors.tables.iceberg import load_catalog

        catalog = load_catalog({"type": "rest", "uri": uri})
        with pytest.raises(ConnectorError, match=r"property of the catalog or table.*stranger"):
            catalog._load_file_io()
    finally:
        server.shutdown()


# 2: SQL

QUERIES = [
    "select * from t) as a; copy (select 1) to '{out}'; select * from (select 1",
    "copy (select 1) to '{out}'",
    "select 1; select 2",
    "create table z (k int)",
    "select 1 as k) as a, (select 2",
    "delete from t",
    "",
]


@pytest.mark.parametrize("query", [*QUERIES, "select * from read_text('/etc/hostname')"])
def test_a_query_of_duckdb_is_one_select(query: str, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "x.db")) as connection:
        connection.execute("create table t as select 1 as k")
    out = tmp_path / "out.csv"
    words = ["source.options.query"] if "read_text" not in query else ["disabled"]
    query = query.format(out=out) or " "
    refused(*words, path=f"duckdb:///{tmp_path}/x.db", options={"query": query, "key": "k"})
    assert not out.exists()
    good = {"query": "select k -- with a comment", "key": "k"}
    good["query"] = "select k from t -- with a comment"
    assert len(open_source(f"duckdb:///{tmp_path}/x.db", options=good).list().shards) == 1


@pytest.mark.parametrize(
    "query",
    [*QUERIES, "select load_extension('x')", "attach 'y.db' as y", "pragma user_version", "select 1 /*"],
)
def test_a_query_of_sqlite_is_one_select(query: str, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("create table t as select 1 as k")
    before = (tmp_path / "x.db").read_bytes()
    path = f"sqlite:///{tmp_path}/x.db"
    refused("source.options.query", path=path, options={"query": query.format(out="o") or " ", "key": "k"})
    assert [*tmp_path.iterdir()] == [tmp_path / "x.db"]
    assert (tmp_path / "x.db").read_bytes() == before
    good = {"query": "with a as (select k from t) select k from a -- c", "key": "k"}
    assert len(open_source(path, options=good).list().shards) == 1


@pytest.mark.parametrize(
    "query",
    [
        *QUERIES,
        "select pg_read_file('/etc/passwd')",
        "select \"pg_read_file\"('/etc/passwd')",
        "select * into z from t",
        "select E'\\'' ; drop table t --'",
        "select $$ ' $$; drop table t",
        "select 1 -- ) as a",
        "select U&\"!0073et_config\" uescape '!' ('a', 'b', false)",
        "select 'a",
        "select set_config('default_transaction_read_only', 'off', false)",
        "select word from ts_stat('select pg_read_file(''/etc/hostname'')::tsvector')",
        "select word from TS_Stat('select 1')",
        "select pg_catalog.pg_switch_wal()",
        'select "pg_stat_reset"()',
        "select passwd from pg_shadow",
        "select table_to_xml('t', true, true, '')",
        "select * from crosstab2('select 1')",
    ],
)
def test_a_query_of_postgresql_is_one_select(query: str) -> None:
    pytest.importorskip("adbc_driver_postgresql")
    query = query.format(out="o") or " "
    refused("source.options.query", path="postgresql://u@127.0.0.1:1/x", options={"query": query, "key": "k"})


def test_postgresql_takes_ordinary_selects() -> None:
    from connectors.tables.sql import check_postgresql

    for query in (
        "select a, 'it''s; --' as b from t",
        'WITH x AS (SELECT "into; " FROM t) SELECT * FROM x',
        "select pg_typeof(a) from pg_catalog.x",
    ):
        check_postgresql(query)


@pytest.mark.parametrize(
    "url", ["postgresql://${HOME}@db/x", "postgresql://u@${HOME}/x", "postgresql://u@db/x?options=${HOME}"]
)
def test_a_url_reads_no_variable_that_is_not_allowed(url: str) -> None:
    refused("source.path", "${", path=url, options={"table": "t", "key": "k"})


# 5: URIs, and paths in tables


@pytest.mark.parametrize(
    "uri",
    [
        "reference://x",
        "simplecache::file:///etc/passwd",
        "https://example.org::file:///etc/passwd",
        "zip://x::/etc/a.zip",
        "http://169.254.169.254/latest/x.csv",
        "http://2852039166/x.csv",
        "http://[::ffff:169.254.169.254]/x.csv",
        "http://metadata.google.internal/x.csv",
        "s3://bucket/x.csv?endpoint_override=169.254.169.254",
        "sftp://host/x.csv",
    ],
)
def test_other_schemes_chains_and_metadata_services_are_refused(uri: str) -> None:
    refused("source.path", path=uri)
    for format in ("csv", "delta", "lance"):
        refused("source.path", path=uri, format=format)
    with pytest.raises(ConnectorError, match=r"source\.path"):
        identity(uri)


def test_a_redirect_reaches_no_metadata_service(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiohttp")
    server = serve(Redirect)
    path = f"http://127.0.0.1:{server.server_port}/x.csv"
    try:
        monkeypatch.setattr(guarded_client, "is_metadata_address", lambda text: text == "127.0.0.2")
        refused("cannot be", path=path, format="csv")
        assert {*Redirect.reached} == {"127.0.0.1"}
        monkeypatch.undo()
        assert files.exists(SourceSpec(path), path)
    finally:
        server.shutdown()


def test_an_operator_sets_schemes_and_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWSIEVE_SCHEMES", "s3, https")
    monkeypatch.setenv("ROWSIEVE_HOSTS", "*.example.org")
    refused("ROWSIEVE_SCHEMES", path="http://data.example.org/x.csv")
    refused("ROWSIEVE_HOSTS", path="https://example.com/x.csv")
    current_policy().check_uri("https://data.example.org/x.csv")
    set_policy(SourcePolicy(hosts=("169.254.169.254",)))
    try:
        current_policy().check_uri("http://169.254.169.254/x.csv")
    finally:
        set_policy(None)


@pytest.mark.parametrize(
    "name",
    [
        "/etc/hostname",
        "../outside.parquet",
        "http%3A//127.0.0.1/x",
        "file:///etc/x",
        "a/%2e%2e/%2e%2e/outside.parquet",
        "link.parquet",
    ],
)
def test_the_files_of_a_delta_table_lie_below_it(name: str, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    (tmp_path / "lake").mkdir()
    made = tables.new("delta", tmp_path / "lake")
    tables.append(made, ROWS)
    formats.parquet(tmp_path, "outside", formats.rows())
    if name == "link.parquet":  # only here, as any link in the folder is refused before the log is read
        (Path(made.path) / name).symlink_to(tmp_path / "outside.parquet")
    for log in (Path(made.path) / "_delta_log").glob("*.json"):
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        for entry in entries:
            if "add" in entry:
                entry["add"]["path"] = name
        log.write_text("\n".join(map(json.dumps, entries)))
    words = ["is a symbolic link"] if name == "link.parquet" else ["source.path", "is not below the table"]
    refused(*words, path=made.path, format="delta")


def test_the_files_of_an_iceberg_table_lie_below_it(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    made = tables.new("iceberg", tmp_path)
    tables.append(made, ROWS)
    table = tables.catalog_of(made).load_table(made.path)
    folder = Path(table.location().removeprefix("file://"))
    good = open_source(table.metadata_location, format="iceberg")
    assert sum(shard.n_rows for shard in good.list().shards) == 3
    text = Path(table.metadata_location.removeprefix("file://")).read_text()
    forged = folder / "metadata" / "00009-forged.metadata.json"
    forged.write_text(text.replace(json.dumps(table.location())[1:-1], "/etc"))
    refused("source.path", "/etc", path=str(forged), format="iceberg")
    data = next((folder / "data").rglob("*.parquet"))
    data.rename(tmp_path / "outside.parquet")
    table.delete()
    (tmp_path / "outside.parquet").rename(data)
    with table.transaction() as change:
        moved = tmp_path / "moved.parquet"
        moved.write_bytes(data.read_bytes())
        change.add_files([str(moved)])
    table = tables.catalog_of(made).load_table(made.path)
    refused("source.path", "moved.parquet", path=table.metadata_location, format="iceberg")


# 11: deep JSON, slow patterns


@pytest.mark.parametrize("depth", [5_000, 200_000])
@pytest.mark.parametrize("lines", [0, 3])
def test_deep_json_is_an_error_that_names_the_line(depth: int, lines: int, tmp_path: Path) -> None:
    """In a process of its own: the parser used to overrun its stack and end it."""
    good = b'{"y": "a", "v": [[1]]}\n' * lines
    (tmp_path / "x.jsonl").write_bytes(good + b'{"v": ' + b"[" * depth + b"]" * depth + b"}\n")
    code = (
        "from connectors import ConnectorError, open_source\n"
        f"source = open_source({str(tmp_path)!r}, format='jsonl')\n"
        "try:\n    listing = source.list()\n    source.read(listing.shards[0], [], listing.schema)\n"
        "except ConnectorError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]
    assert f"x.jsonl, line {lines + 1}" in done.stdout
    assert "more than 100 deep" in done.stdout


def test_depth_is_counted_outside_of_texts() -> None:
    assert too_deep(b'{"a": "' + b"[" * 500 + b'"}', 100) is None
    assert too_deep(b'{"a": "\\"' + b"[" * 500 + b'"}', 100) is None
    assert too_deep(b'{"a": "\\\\", "b": ' + b"[" * 500, 100) == 17 + 99
    assert too_deep(b"[]" * 500, 100) is None
    assert too_deep(b"]" * 500 + b"[" * 101, 100) == 600


def test_deep_json_elsewhere(tmp_path: Path) -> None:
    import io
    import tarfile

    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        formats.add(tar, "a.json", b"[" * 200_000)
    refused("sample a", "100 deep", path=str(tmp_path / "x.tar"))
    saved = tmp_path / "saved"
    saved.mkdir()
    formats.huggingface(saved, "a", formats.rows())
    (saved / "state.json").write_bytes(io.BytesIO(b"[" * 200_000).read())
    refused("state.json", path=str(saved))


@pytest.mark.parametrize("name", ["state.json", "dataset_info.json", "dataset_dict.json", "data-00000.arrow"])
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_the_files_of_a_saved_dataset_are_its_own(name: str, kind: str, tmp_path: Path) -> None:
    """A pipe in their place was waited for without end, and a link to another file followed."""
    saved = tmp_path / "saved"
    saved.mkdir()
    formats.huggingface(saved, "a", formats.rows())
    state = json.loads((saved / "state.json").read_text())
    state["_data_files"] = [{"filename": "data-00000.arrow"}]
    (saved / "state.json").write_text(json.dumps(state))
    place = saved / name
    place.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(place)
    else:
        (tmp_path / "other").write_text('{"features": {}, "splits": ["."]}')
        place.symlink_to(tmp_path / "other")
    what = "is a pipe or a device" if kind == "pipe" else "lies outside of"
    refused(name, what, path=str(saved), format="huggingface")


@pytest.mark.parametrize("kind", [pa.ipc.new_file, pa.ipc.new_stream], ids=["file", "stream"])
@pytest.mark.parametrize("rows", [2**40, -5, 7_777_000])
def test_a_forged_number_of_rows_in_an_arrow_file(rows: int, kind: Any, tmp_path: Path) -> None:
    """Arrow believes it: the size of a batch of lists was read beyond its buffers; the process ended."""
    path = tmp_path / "x.arrow"
    table = pa.table({"a": pa.array([[1.0]] * 7777)})
    with pa.OSFile(str(path), "wb") as file, kind(file, table.schema) as writer:
        writer.write_table(table)
    path.write_bytes(path.read_bytes().replace(struct.pack("<q", 7777), struct.pack("<q", rows)))
    code = f"from connectors import open_source; open_source({str(path)!r}).list()"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 1, done.returncode  # a traceback; a crash has another code
    assert "is not a whole Arrow file" in done.stderr


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_a_pipe_is_no_source(name: str, tmp_path: Path) -> None:
    """The error said that there is no x.csv in the folder, but an x.csv."""
    os.mkfifo(tmp_path / name)
    refused(f"{name} is a pipe or a device", path=str(tmp_path / name))
    refused("/dev/zero is a pipe or a device", path="/dev/zero", format="csv")


@pytest.mark.parametrize("scheme", ["sqlite", "duckdb"])
def test_a_pipe_is_no_database(scheme: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.db")
    options = {"query": "select 1 as k", "key": "k"}
    refused("x.db is not a file", path=f"{scheme}:///{tmp_path}/x.db", options=options)


@pytest.mark.parametrize(
    "text", ["?" * 100_000, "?password" * 20_000, "a" * 200_000, "://a:" * 50_000, "a://" * 50_000 + "@"]
)
def test_redaction_takes_linear_time(text: str) -> None:
    start = time.process_time()
    redact_uris(text)
    assert time.process_time() - start < 2


def test_a_secret_behind_a_second_question_mark_is_redacted() -> None:
    assert redact_uris("s3://b/x?a=b;?mytoken=hidden&c=d") == "s3://b/x?a=b;?mytoken=***&c=d"
    assert redact_uris("s3://b/x?mytoken=ab?cd#ef&c=d") == "s3://b/x?mytoken=***&c=d"


@pytest.mark.parametrize("password", ["hunter2", "hun/ter2", "hun@ter2", "h@un/t:er2"])
def test_passwords_with_separators_are_redacted(password: str) -> None:
    assert redact_uris(f"at postgresql://ann:{password}@db/shop!") == "at postgresql://***@db/shop!"


@pytest.mark.parametrize("password", ["hun@ter2", "hun/ter2", "h/un@ter2", "hunter2@x/ter2"])
def test_a_password_with_separators_is_part_of_no_message(password: str) -> None:
    """A client would take the end of such a password for the name of the host, and show that."""
    pytest.importorskip("adbc_driver_postgresql")
    with pytest.raises(ConnectorError, match=r"source\.path: .*%40") as caught:
        open_source(f"postgresql://ann:{password}@db/shop", options={"table": "t", "key": "k"}).list()
    assert "ter2" not in str(caught.value)


# 13: symbolic links


@pytest.mark.parametrize("folder", [False, True])
def test_links_that_lead_out_of_a_folder_are_refused(folder: bool, tmp_path: Path) -> None:
    outside, data = tmp_path / "outside", tmp_path / "data"
    outside.mkdir()
    data.mkdir()
    secret = formats.csv(outside, "secret", formats.rows())
    formats.csv(data, "mine", formats.rows())
    assert len(open_source(str(data)).list().shards) == 1
    (data / "inner.csv").symlink_to(formats.csv(tmp_path / "data", "_hidden", formats.rows()))
    assert len(open_source(str(data)).list().shards) == 2
    link = data / ("linked" if folder else "linked.csv")
    link.symlink_to(outside if folder else secret)
    refused("symbolic link", str(link), path=str(data))
    refused("symbolic link", path=f"{data}/**/*.csv")
    assert len(open_source(str(link)).list().shards) == 1  # the user named it
    set_policy(SourcePolicy(outside_links=True))
    try:
        assert len(open_source(str(data)).list().shards) == 3
    finally:
        set_policy(None)


@pytest.mark.parametrize(
    "text",
    ["null\n", '{"y": "a"}\nnull\n', '{"y": "a"} null', " \t null", '{"y": "\\"}"}\r\n\n null\n{"y": "b"}'],
)
def test_a_row_that_is_null_is_an_error_and_not_a_crash(text: str, tmp_path: Path) -> None:
    """In a process of its own: Arrow's parser overran memory and ended it. Found by fuzzing."""
    (tmp_path / "x.jsonl").write_text(text)
    code = (
        "from connectors import ConnectorError, open_source\n"
        f"source = open_source({str(tmp_path)!r}, format='jsonl')\n"
        "try:\n    listing = source.list()\n    source.read(listing.shards[0], [], listing.schema)\n"
        "except ConnectorError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "x.jsonl" in done.stdout
    assert "object" in done.stdout


def test_null_in_texts_lists_and_values_stays(tmp_path: Path) -> None:
    rows = '{"y": "it is null", "v": null, "w": [null,null]}\n{"y": "}\\n null", "v": 1, "w": [1]}\n'
    (tmp_path / "x.jsonl").write_text(rows)
    source = open_source(str(tmp_path), format="jsonl")
    listing = source.list()
    assert source.read(listing.shards[0], ["y"], listing.schema).num_rows == 2


def test_a_key_that_is_not_utf8_is_an_error_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"a": 1, "b\xe7\xe7": "x"}\n')
    refused("x.jsonl", path=str(tmp_path), format="jsonl")


@pytest.mark.parametrize("kind", ["packed bits", "no bytes"])
def test_an_arrow_file_of_a_few_kilobytes_with_more_rows_than_memory(kind: str, tmp_path: Path) -> None:
    n_rows, path = MAX_SHARD_ROWS + 8, tmp_path / "x.arrow"
    bits = pa.py_buffer(np.full(n_rows // 8, 0b01010011, np.uint8))
    column = pa.nulls(n_rows)
    if kind == "packed bits":
        column = pa.Array.from_buffers(pa.bool_(), n_rows, [None, bits])
    batch = pa.RecordBatch.from_arrays([column], ["y"])
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    assert path.stat().st_size < 10_000
    refused("x.arrow", f"{n_rows:,} rows", "Write smaller row groups or batches", path=str(path))


@pytest.mark.parametrize("ending", ["arrow", "parquet"])
def test_rows_that_take_less_than_a_byte_are_cut_as_if_they_took_one(ending: str, tmp_path: Path) -> None:
    path, rows = tmp_path / f"x.{ending}", pa.table({"y": pa.nulls(3000), "k": pa.nulls(3000)})
    if ending == "parquet":
        pq.write_table(rows, path, row_group_size=1000)
    else:
        with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, rows.schema) as writer:
            writer.write_table(rows, 1000)
    shards = open_source(str(path), shard_bytes=1500).list().shards
    assert [shard.n_rows for shard in shards] == [1000, 1000, 1000]
