"""Hosts in URIs, catalogs and answers: no metadata service, and no ambient credentials for a stranger."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from connectors import ConnectorError, files, open_source
from connectors.files import resolve
from connectors.policy import SourcePolicy, current_policy, is_metadata_address, set_policy
from connectors.storage import place_of
from tests import tables

ROWS = pa.table({"k": [1, 2, 3], "y": ["a", "b", "a"]})
AMBIENT = {
    "AWS_ACCESS_KEY_ID": "AMBIENTKEY",
    "AWS_SECRET_ACCESS_KEY": "AMBIENTSECRET",
    "AWS_SESSION_TOKEN": "AMBIENTTOKEN",
    "AWS_REGION": "eu-west-1",
    "AZURE_STORAGE_ACCOUNT_NAME": "acct",
    "AZURE_STORAGE_ACCOUNT_KEY": "YW1iaWVudA==",
    "PGPASSWORD": "AMBIENTSECRET",
}


@dataclass
class Server:
    """An attacker's server: the requests that it has received, and what it answers."""

    host: str
    requests: list[str] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name, value in AMBIENT.items():
        monkeypatch.setenv(name, value)
    for name in ("ROWSIEVE_HOSTS", "ROWSIEVE_SCHEMES", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "PGHOST"):
        monkeypatch.delenv(name, raising=False)
    found = Server("")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.requests.append(f"{self.command} {self.path} {dict(self.headers.items())}")
            answer = found.answers.get(self.path.partition("?")[0])
            body = json.dumps(answer).encode() if isinstance(answer, dict) else b""
            body = answer if isinstance(answer, bytes) else body
            self.send_response(302 if isinstance(answer, str) else 200 if answer else 404)
            if isinstance(answer, str):
                self.send_header("Location", answer)
            self.send_header("Content-Type", "application/json")
            if body.startswith(b"\x1f\x8b"):
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    found.host = f"127.0.0.1:{running.server_port}"
    yield found
    running.shutdown()


@pytest.mark.parametrize(
    "uri",
    [
        "http://0xa9fea9fe/x",
        "http://0251.0376.0251.0376/x",
        "http://169.254.43518/x",
        "http://[64:ff9b::a9fe:a9fe]/x.csv",
        "http://[::169.254.169.254]/x.csv",
        "http://[2002:a9fe:a9fe::]/x",
        "http://169.254.169.254./x",
        "http://169。254。169。254/x",
        "http://169.254.169.254\\@example.org/x",
        "http://example.org\t.evil/x",
        "http:///169.254.169.254/x.csv",
        "HTTP://127.0.0.1/x.csv",
        "S3://bucket/x.csv",
        "FILE:///etc/hostname",
        "s3a://b::file:///etc/passwd",
        "az://b::reference:///etc/passwd",
        "abfs://acct:key@169.254.169.254/container/x.csv",
        "abfs://c:k@acct.dfs.core.windows.net/x.csv?blob_storage_authority=169.254.169.254",
        "s3://b/x.csv?Endpoint_Override=169.254.169.254",
        "s3://b/x.csv?endpoint%5Foverride=169.254.169.254",
        "s3://k:s@b/x.csv?endpoint_override=http://2852039166",
        "s3://b/x.csv?region=evil.example%2F",
        "s3://b/x.csv?proxy_options=http://169.254.169.254",
        "postgresql://u@%31%36%39.254.169.254/x",
        "postgresql://u@db,169.254.169.254:1/x",
        "postgresql://u@db/x?hostaddr=169.254.169.254",
    ],
)
def test_spellings_of_metadata_services_and_of_schemes(uri: str) -> None:
    with pytest.raises(ConnectorError, match=r"^source\.path: ") as caught:
        current_policy().check_uri(uri, known={"postgresql"})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "uri", ["s3://b/a::b", "abfs://c@acct.dfs.core.windows.net/x", "abfs://c/x", "http://[2001:db8::1]:80/x"]
)
def test_ordinary_uris_pass(uri: str) -> None:
    current_policy().check_uri(uri)


def test_an_error_of_a_uri_names_the_key_that_it_stands_under() -> None:
    with pytest.raises(ConnectorError, match=r"^output\.export: .* is not a URI"):
        SourcePolicy().check_uri("s3://[bucket/path", "output.export")


def test_addresses_that_stand_for_others() -> None:
    assert is_metadata_address("::ffff:169.254.169.254")
    for text in (
        "fd00:c1::a9fe:a9fe",
        "fd00:ec2::23",
        "fd00:42::42",
        "64:ff9b:1::a9fe:a9fe",
        "::ffff:0:a9fe:a9fe",
    ):
        assert is_metadata_address(text), text
    assert not is_metadata_address("2001:db8::1")
    assert not is_metadata_address("64:ff9b::808:808")
    assert not is_metadata_address("::1")


def test_local_files_can_be_taken_out() -> None:
    policy = SourcePolicy(schemes=frozenset({"s3"}))
    for path in ("/etc/hostname", "x.csv", "file:///etc/hostname"):
        with pytest.raises(ConnectorError, match="ROWSIEVE_SCHEMES"):
            policy.check_uri(path)


# 14: an endpoint that a URI or an option names


@pytest.mark.parametrize(
    "uri",
    [
        "s3://b/x.csv?endpoint_override={host}&scheme=http",
        "s3://KEY@b/x.csv?endpoint_override={host}&scheme=http",
        "gs://b/x.csv?endpoint_override={host}&scheme=http",
        "az://c/x.csv?endpoint_override={host}/acct&scheme=http",
        "abfs://acct@{host}/c/x.csv?enable_tls=false",
    ],
)
def test_an_endpoint_in_a_uri_gets_no_ambient_credentials(uri: str, server: Server) -> None:
    uri = uri.format(host=server.host)
    with pytest.raises(ConnectorError, match=r"source\.path: '127\.0\.0\.1' is named as the endpoint"):
        resolve(uri)
    with pytest.raises(ConnectorError, match=r"output\.path: '127\.0\.0\.1' is named as the endpoint"):
        place_of(uri).exists()
    for format in ("delta", "lance", "csv"):
        with pytest.raises(ConnectorError, match="is named as the endpoint"):
            open_source(uri, format=format).list()
    assert server.requests == []


def test_keys_of_a_uri_are_not_joined_with_tokens_of_the_environment(server: Server) -> None:
    pytest.importorskip("obstore")
    uri = f"s3://OWNKEY:OWNSECRET@b/x.csv?endpoint_override={server.host}&scheme=http&region=eu-west-1"
    assert not place_of(uri).exists()
    filesystem, where = resolve(uri)
    filesystem.get_file_info(where)
    assert len(server.requests) >= 2
    for request in server.requests:
        assert "OWNKEY" in request
        assert "AMBIENT" not in request


def test_an_operator_names_endpoints(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"s3://b/x.csv?endpoint_override={server.host}&scheme=http"
    monkeypatch.setenv("ROWSIEVE_HOSTS", "*")  # any host may be read, but none gets the credentials
    with pytest.raises(ConnectorError, match="is named as the endpoint"):
        current_policy().check_uri(uri)
    monkeypatch.setenv("ROWSIEVE_HOSTS", "127.0.0.*")
    current_policy().check_uri(uri)
    monkeypatch.delenv("ROWSIEVE_HOSTS")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{server.host}")
    current_policy().check_uri(uri)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://u@127.0.0.1:1/x", "PGPASSWORD is set"),
        ("postgresql://u@/x?host=127.0.0.1", "PGPASSWORD is set"),
        ("postgresql://u:p@127.0.0.1:1/x?passfile=/root/.pgpass", "passfile"),
        ("postgres://u:p@127.0.0.1:1/x?service=prod", "service"),
    ],
)
def test_a_database_gets_no_password_of_the_environment(url: str, words: str, server: Server) -> None:
    pytest.importorskip("adbc_driver_postgresql")
    with pytest.raises(ConnectorError, match=rf"^source\.path: .*{words}"):
        open_source(url, options={"table": "t", "key": "k"})


@pytest.mark.parametrize(
    ("properties", "key"),
    [
        ({"s3.endpoint": "{host}"}, "s3.endpoint"),
        ({"s3.endpoint": "http://{host}"}, "s3.endpoint"),
        ({"gcs.service.host": "http://{host}"}, "gcs.service.host"),
        ({"adls.blob-storage-authority": "{host}"}, "adls.blob-storage-authority"),
        ({"glue.endpoint": "http://{host}"}, "glue.endpoint"),
        ({"rest.sigv4-enabled": "true"}, "uri"),
        ({"adls.connection-string": "BlobEndpoint=http://169.254.169.254/x;AccountKey=x"}, "adls.connection"),
        ({"uri": "postgresql+psycopg2://u@{host}/x", "type": "sql"}, "uri: PGPASSWORD"),
        ({"uri": "sqlite:////nowhere/made.db", "type": "sql"}, "there is no file"),
    ],
)
def test_a_catalog_gets_no_ambient_credentials(properties: dict[str, str], key: str, server: Server) -> None:
    pytest.importorskip("pyiceberg")
    server.answers["/v1/config"] = {"defaults": {}, "overrides": {}}
    filled = {name: value.format(host=server.host) for name, value in properties.items()}
    catalog = {"name": "x", "type": "rest", "uri": f"http://{server.host}"} | filled
    with pytest.raises(ConnectorError, match=rf"source\.options\.catalog\.?.*{key}"):
        open_source("a.b", format="iceberg", options={"catalog": catalog}).list()
    assert "AMBIENT" not in str(server.requests)


def test_properties_are_not_joined_with_a_catalog_of_the_operator(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyiceberg")
    config = SimpleNamespace(get_catalog_config=lambda name: {"token": "AMBIENT"} if name == "prod" else None)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", config)
    catalog = {"name": "prod", "type": "rest", "uri": f"http://{server.host}"}
    with pytest.raises(ConnectorError, match="defines the catalog 'prod'"):
        open_source("a.b", format="iceberg", options={"catalog": catalog}).list()
    assert server.requests == []


def test_a_rest_catalog_is_not_redirected_to_a_metadata_service(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyiceberg")
    server.answers["/v1/config"] = "http://169.254.169.254/latest/meta-data"
    catalog = {"type": "rest", "uri": f"http://{server.host}"}
    with pytest.raises(ConnectorError, match="metadata service"):
        open_source("a.b", format="iceberg", options={"catalog": catalog}).list()
    # A name that stands for another address at the time of the connection than when it was checked.
    from connectors.tables import guarded_http

    server.requests.clear()
    monkeypatch.setattr(guarded_http, "is_metadata_address", lambda address: address == "127.0.0.1")
    with pytest.raises(ConnectorError, match="metadata service"):
        open_source("a.b", format="iceberg", options={"catalog": catalog}).list()
    assert server.requests == []


def test_what_a_rest_catalog_answers_is_checked(server: Server) -> None:
    """A catalog may turn on signatures with the keys of AWS, or send the reader to another store."""
    pytest.importorskip("pyiceberg")
    catalog = {"type": "rest", "uri": f"http://{server.host}"}
    server.answers["/v1/config"] = {"defaults": {}, "overrides": {"rest.sigv4-enabled": "true"}}
    with pytest.raises(ConnectorError, match="is named as the endpoint"):
        open_source("a.b", format="iceberg", options={"catalog": catalog}).list()
    assert "AMBIENT" not in str(server.requests)


def test_a_rest_catalog_asks_no_metadata_service_for_a_token(server: Server) -> None:
    """What it answers may name another place of tokens, whose answer it would then be sent as its own."""
    pytest.importorskip("pyiceberg")
    place = "http://169.254.169.254/computeMetadata/token"
    own = {"client_id": "a", "client_secret": "b", "token_url": place}
    server.answers["/v1/config"] = {"defaults": {}, "overrides": {"auth": {"type": "oauth2", "oauth2": own}}}
    catalog = {"type": "rest", "uri": f"http://{server.host}"}
    with pytest.raises(ConnectorError, match=r"169\.254\.169\.254.* is the metadata service"):
        open_source("a.b", format="iceberg", options={"catalog": catalog}).list()


def test_every_module_of_pyiceberg_has_guarded_requests() -> None:
    """Modules that import requests have the guarded functions and sessions in its place."""
    pyiceberg = pytest.importorskip("pyiceberg")
    from connectors.tables.guarded_http import GuardedRequests, GuardedSession
    from connectors.tables.iceberg_checks import guard_imports

    guard_imports()
    folder = Path(pyiceberg.__file__).parent
    found = {
        ".".join(("pyiceberg", *file.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
        for file in folder.rglob("*.py")
        if re.search(r"(?m)^import requests$|^from requests import .*Session", file.read_text("utf-8"))
    }
    assert len(found) >= 3
    for name in found:
        module = import_module(name)
        assert getattr(module, "requests", GuardedRequests) is GuardedRequests, name
        if name != "pyiceberg.catalog.rest.auth":  # it names the class as a type alone
            assert getattr(module, "Session", GuardedSession) is GuardedSession, name


@pytest.mark.parametrize("packed", [False, True])
def test_the_answer_of_a_rest_catalog_has_a_bounded_size(
    packed: bool, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata of a table come in an answer, which may be compressed."""
    pytest.importorskip("pyiceberg")
    from connectors.tables import guarded_http

    catalog = {"type": "rest", "uri": f"http://{server.host}"}
    answer = json.dumps({"defaults": {}, "overrides": {}, "x": "a" * 20_000}).encode()
    server.answers["/v1/config"] = gzip.compress(answer) if packed else answer
    with pytest.raises(ConnectorError, match=r"a\.b cannot be read"):  # what follows is a 404
        open_source("a.b", format="iceberg", options={"catalog": catalog}).list()
    asked = len(server.requests)
    assert asked > 1
    monkeypatch.setattr(guarded_http, "MAX_ANSWER_BYTES", 10_000)
    with pytest.raises(ConnectorError, match=r"source\.options\.catalog\.uri: .*more than 10,000 bytes"):
        open_source("a.b", format="iceberg", options={"catalog": catalog}).list()
    assert len(server.requests) == asked + 1


@pytest.mark.parametrize("setting", ["s3.endpoint", "s3.profile-name"])
def test_the_properties_of_a_tables_metadata_are_checked(
    setting: str, tmp_path: Path, server: Server
) -> None:
    pytest.importorskip("pyiceberg")
    made = tables.new("iceberg", tmp_path)
    tables.append(made, ROWS)
    metadata = Path(tables.catalog_of(made).load_table(made.path).metadata_location.removeprefix("file://"))
    found = json.loads(metadata.read_text())
    metadata.write_text(json.dumps(found | {"properties": {setting: f"http://{server.host}"}}))
    with pytest.raises(ConnectorError, match=rf"source\.path: the metadata of the table\.{setting}"):
        open_source(made.path, format="iceberg", options=made.options).list()


def test_links_in_tables_lead_nowhere(tmp_path: Path) -> None:
    """Also where the table is named by a file:// URI."""
    pytest.importorskip("deltalake")
    (tmp_path / "lake").mkdir()
    made = tables.new("delta", tmp_path / "lake")
    tables.append(made, ROWS)
    data = next(Path(made.path).glob("*.parquet"))
    data.rename(tmp_path / "outside.parquet")
    data.symlink_to(tmp_path / "outside.parquet")
    for path in (made.path, f"file://{made.path}"):
        with pytest.raises(ConnectorError, match="lies outside of"):
            open_source(path, format="delta").list()


def test_links_in_an_iceberg_table_lead_nowhere(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    made = tables.new("iceberg", tmp_path)
    tables.append(made, ROWS)
    table = tables.catalog_of(made).load_table(made.path)
    data = next((Path(table.location().removeprefix("file://")) / "data").rglob("*.parquet"))
    data.rename(tmp_path / "outside.parquet")
    data.symlink_to(tmp_path / "outside.parquet")
    with pytest.raises(ConnectorError, match="lies outside of"):
        open_source(table.metadata_location, format="iceberg").list()


@pytest.mark.parametrize(("path", "base"), [("../../secret.lance", None), ("/etc/x", None), ("x.lance", 1)])
def test_files_of_a_lance_dataset_lie_in_it(path: str, base: int | None) -> None:
    pytest.importorskip("lance")
    from connectors.tables.lance import check_fragments

    file = SimpleNamespace(path=path, base_id=base)
    dataset = SimpleNamespace(get_fragments=lambda: [SimpleNamespace(metadata=SimpleNamespace(files=[file]))])
    with pytest.raises(ConnectorError, match=r"source\.path: the manifest of p names a data file outside"):
        check_fragments("p", dataset)


def test_a_redirect_leads_to_no_host_that_the_operator_has_not_listed(server: Server) -> None:
    pytest.importorskip("aiohttp")
    port = server.host.partition(":")[2]
    server.answers["/x.csv"] = f"http://localhost:{port}/y.csv"
    set_policy(SourcePolicy(hosts=("127.0.0.1",)))
    try:
        with pytest.raises(ConnectorError):
            files.identity(f"http://{server.host}/x.csv")
        assert server.requests
        assert all("y.csv" not in request for request in server.requests)
        set_policy(SourcePolicy(hosts=("127.0.0.1", "localhost")))
        with pytest.raises(ConnectorError):  # there is no such file
            files.identity(f"http://{server.host}/x.csv")
        assert any("y.csv" in request for request in server.requests)
    finally:
        set_policy(None)
