"""The targets of fuzzing: functions of bytes that return for every input, and raise for a defect.

A target lets the project's own errors pass, which say what is wrong with the input. Everything else is a
finding: another exception, a check that does not hold, more than ``SECONDS`` or more memory than the runner's
limit. ``test_corpus.py`` runs every kept input without atheris.
"""

from __future__ import annotations

import io
import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import pyarrow as pa

from connectors import open_source
from connectors.errors import ConnectorError, redact_uris
from connectors.jsonl_source import infer_json, parse_json, unread_keys
from connectors.policy import SourcePolicy, hosts_named, is_metadata_address
from connectors.tables.common import library
from connectors.tables.delta import _check_below
from connectors.tables.iceberg import reading_iceberg
from connectors.tables.iceberg_checks import check_file, check_location, check_properties, guard_imports
from connectors.tables.sql import check_duckdb, check_postgresql, check_sqlite, expand
from connectors.webdataset_source import column_of, members, split_samples, type_of, unpack
from engine.core.errors import RowsieveError
from engine.core.terminal import json_text, printable
from engine.recipe.recipe import Recipe
from engine.recipe.yaml_text import parse_yaml
from engine.storage.manifest import parse_manifest
from operators.base import OperatorError
from tests.fuzz.text_targets import cards, delta_log, descriptions, events

OURS = (ConnectorError, RowsieveError, OperatorError)
SECONDS = 5.0
SECRET = "hunter2hunter2"


@contextmanager
def in_time() -> Iterator[None]:
    start = time.process_time()
    yield
    used = time.process_time() - start
    assert used < SECONDS, f"{used:.1f} s for one input"


def recipe(data: bytes) -> None:
    """YAML to a checked recipe."""
    try:
        Recipe.parse(parse_yaml(data.decode("utf-8", "surrogateescape"), "recipe"), "recipe")
    except OURS as error:
        assert "recipe" in str(error)


@cache
def _database() -> str:
    path = os.path.join(tempfile.mkdtemp(), "x.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table t (k int, v text)")
        connection.commit()
    return path


def sql(data: bytes) -> None:
    """The checks of a query; one that passes is one SELECT also where it stands in a statement."""
    query = data.decode("utf-8", "replace")
    duckdb = library("duckdb", "sql")
    for check in (check_duckdb, check_postgresql):
        try:
            check(query)
        except OURS:
            continue
        except Exception as error:  # SqlSource.check_query turns these into its own error
            assert type(error).__module__.partition(".")[0] in ("duckdb", "_duckdb", "builtins"), error
            continue
        statement = f"SELECT * FROM ({query}\n) AS rowsieve_query LIMIT 1"
        if check is check_duckdb:
            try:
                kinds = [found.type for found in duckdb.extract_statements(statement)]
            except duckdb.Error:
                continue
            assert kinds == [duckdb.StatementType.SELECT], statement
        else:
            assert ";" not in _without_quotes(query), query
    before = Path(_database()).read_bytes()
    try:
        check_sqlite(query, _database())
    except (*OURS, sqlite3.Error, ValueError, UnicodeError):
        pass
    assert Path(_database()).read_bytes() == before


def _without_quotes(query: str) -> str:
    """The query as PostgreSQL's lexer sees it, without texts and quoted names."""
    kept, quote = [], ""
    for sign in query:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        else:
            kept.append(sign)
    return "".join(kept)


POLICY = SourcePolicy(hosts=("*",))


def uri(data: bytes) -> None:
    """The check of a URI, its parts, and what is shown of it."""
    text = data.decode("utf-8", "replace")
    while SECRET in text:  # where it is no password nobody can know it for one
        text = text.replace(SECRET, "")
    hosts_named(text)
    for policy in (SourcePolicy(), POLICY):
        try:
            policy.check_uri(text, known={"postgresql"})
            expand(text, policy)
        except OURS:
            pass
    shown = redact_uris(text)
    assert redact_uris(shown) == shown, (shown, redact_uris(shown))
    assert SECRET not in redact_uris(f"s3://KEY:{SECRET}@bucket/{text}")
    assert SECRET not in redact_uris(f"{text} s3://KEY:{SECRET}@bucket/x")
    assert printable(printable(text)) == printable(text)
    assert json.loads(json_text(text)) == text
    try:
        is_metadata_address(text)
    except ValueError:
        pass


@cache
def _arrow_file() -> str:
    return os.path.join(tempfile.mkdtemp(), "x.arrow")


def arrow(data: bytes) -> None:
    """Lists and reads an Arrow file, whose sizes and offsets Arrow itself does not check."""
    Path(_arrow_file()).write_bytes(data)
    try:
        source = open_source(_arrow_file(), format="arrow")
        listing = source.list()
        for shard in listing.shards:
            source.read(shard, listing.schema.names, listing.schema)
    except OURS:
        pass


TABLE = "/lake/people"


def tables(data: bytes) -> None:
    """Names of data files in logs of Delta and metadata of Iceberg: what passes is below the table."""
    name = data.decode("utf-8", "replace")
    try:
        _check_below(TABLE, name)
    except OURS:
        pass
    else:
        _lies_below(os.path.join(TABLE, name))
        _lies_below(os.path.join(TABLE, unquote(name)))
    for folder in (TABLE, f"file://{TABLE}", "s3://bucket/people"):
        table = SimpleNamespace(metadata=SimpleNamespace(location=folder))
        for path in (name, f"{folder}/{name}"):
            try:
                check_file(table, path)
            except OURS:
                continue
            bare = path.removeprefix("file://").removeprefix("file:")
            if "s3://" not in folder and "://" not in bare:
                _lies_below(bare)
        try:
            check_location(folder, name)
        except OURS:
            pass
    try:
        check_properties({"uri": name, name: "x", "s3.endpoint": name}, "catalog")
    except OURS:
        pass


def _lies_below(path: str) -> None:
    assert os.path.commonpath([TABLE, os.path.normpath(path)]) == TABLE, path


class _File:
    """A file of a table in memory, as pyiceberg opens one."""

    location = "/lake/people/metadata/a.avro"

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def open(self) -> io.BytesIO:
        return io.BytesIO(self.data)


def avro(data: bytes) -> None:
    """Manifests of Iceberg and lists of them: what they hold is decoded within the file."""
    guard_imports()
    iceberg = library("pyiceberg.manifest", "iceberg")
    listed = iceberg.ManifestFile.from_args(
        manifest_path=_File.location, partition_spec_id=0, sequence_number=1
    )
    opener = SimpleNamespace(new_input=lambda _: _File(data))
    for read in (
        lambda: list(iceberg.read_manifest_list(_File(data))),
        lambda: listed.fetch_manifest_entry(opener),
    ):
        try:
            with reading_iceberg(_File.location):
                read()
        except OURS as error:
            assert _File.location in str(error)


def manifest(data: bytes) -> None:
    """The manifest of a version: what passes names files in its own folder."""
    try:
        found = parse_manifest(data.decode("utf-8", "replace"), "place")
    except OURS as error:
        assert "place" in str(error)
        return
    for part in found["parts"]:
        assert os.path.dirname(os.path.normpath(part["path"])) == "data"
    assert set(found["content"]) <= set("0123456789abcdef")


def jsonl(data: bytes) -> None:
    """JSON lines: types, rows and unknown keys."""
    try:
        schema = infer_json(data)
        unread_keys(data, schema)
        table = parse_json(data, schema)
        assert table.schema == schema
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    try:
        unread_keys(data, pa.schema([("a", pa.struct([("b", pa.int64())]))]))
    except UnicodeError:
        pass


def images(data: bytes) -> None:
    """Images of every format that is opened."""
    from operators.image_files import open_image

    try:
        found = open_image(data, 32)
    except ValueError:
        return
    assert found.shape == (3, 32, 32)


def tar(data: bytes) -> None:
    """Members of a WebDataset tar, their samples and their fields."""
    try:
        split_samples("x.tar", members("x.tar", io.BytesIO(data)))
        samples = split_samples("x.tar", unpack("x.tar", data))
        for name in {name for sample in samples for name in sample.fields}:
            kind = type_of("x.tar", name, lambda: samples)
            column_of("x.tar", pa.field(name, kind), samples)
    except OURS:
        pass


def models(data: bytes) -> None:
    """Stored models, their description and their weights. The first byte says which file is changed."""
    from engine.training.fit.ensemble import Ensemble
    from operators.models.storage import load

    first, rest = data[:1], data[1:]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, content in _model_files().items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
        names = sorted(_model_files())
        (folder / names[(first or b"\0")[0] % len(names)]).write_bytes(rest)
        for read in (load, Ensemble.load):
            try:
                read(folder)
            except OURS:
                pass


@cache
def _model_files() -> dict[str, bytes]:
    """A small network, alone and as an ensemble of one."""
    import numpy as np

    from engine.training.fit.ensemble import Ensemble
    from operators.models import ModelSpec, build
    from operators.models.storage import save

    spec = ModelSpec(model="logistic", n_features=2, n_classes=2)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        save(build(spec, seed=0), spec, folder)
        rows = np.arange(3)
        whole = Ensemble(spec, (build(spec, seed=0),), np.ones(1), np.ones((3, 1)), rows, np.ones(3), {})
        whole.save(folder / "e")
        for path in sorted((folder / "e").rglob("*")):
            if path.is_file():
                target = folder / path.relative_to(folder / "e")
                target.parent.mkdir(exist_ok=True)
                path.rename(target)
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }


def states(data: bytes) -> None:
    """Files of an operator's state: the check that every file passes before an operator reads it."""
    from engine.storage.state_files import check_state

    names = ("state.json", "model.npz", "rows.npy", "labels.parquet", "model.safetensors")
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / names[(data[:1] or b"\0")[0] % len(names)]).write_bytes(data[1:])
        try:
            check_state(Path(scratch))
        except OURS as error:
            assert scratch in str(error)


def trees(data: bytes) -> None:
    """Stored trees of XGBoost and LightGBM, by our own readers; what they write is read as it is."""
    from engine.training.libraries import lightgbm_format, xgboost_format

    for read in (xgboost_format.canonical, lightgbm_format.canonical):
        try:
            found = read(data, 2, 2)
        except OURS as error:
            assert "damaged or forged" in str(error)
        else:
            assert read(found, 2, 2) == found


VERSION = "v0123456789ab"
RECORDS = (
    f"withdrawn/{VERSION}.json",
    f"removed/{VERSION}.json",
    f"exported/{VERSION}/a.json",
    "registered/a.json",
    "runs/pending/a.json",
    f"runs/{VERSION}.json",
    f"runs/{VERSION}.train.json",
    "runs/schedule.json",
    "models/m/.progress.json",
)


def records(data: bytes) -> None:
    """Small records in a shared output. The first byte says which of ``RECORDS`` holds the rest."""
    from engine.jobs.cron import Cron
    from engine.jobs.schedule import read_last, schedule_file
    from engine.publish.export_records import exported_tables
    from engine.publish.mlflow_outbox import pending
    from engine.runs.run_record import unfinished_steps
    from engine.runs.training_record import read_training
    from engine.storage.registrations import recorded_models
    from engine.storage.removals import removal_of
    from engine.storage.withdrawals import withdrawal_of
    from engine.training.fit.progress import ProgressReader

    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch)
        file = output / RECORDS[(data[:1] or b"\0")[0] % len(RECORDS)]
        file.parent.mkdir(parents=True)
        file.write_bytes(data[1:])
        readers: tuple[Callable[[], object], ...] = (
            lambda: str(withdrawal_of(output, VERSION)),
            lambda: str(removal_of(output, VERSION)),
            lambda: [str(table) for table in exported_tables(output, VERSION)],
            lambda: recorded_models(output, strict=True),
            lambda: pending(output),
            lambda: unfinished_steps(output, VERSION),
            lambda: read_training(output, VERSION),
            lambda: read_last(schedule_file(output), Cron("0 3 * * *", "UTC")),
            lambda: ProgressReader(output / RECORDS[-1], output, lambda _: None).read(),
        )
        for read in readers:
            try:
                read()
            except OURS as error:
                assert file.name in str(error)


TARGETS: dict[str, Callable[[bytes], None]] = {
    function.__name__: function
    for function in (
        recipe,
        sql,
        uri,
        tables,
        avro,
        manifest,
        jsonl,
        arrow,
        images,
        tar,
        models,
        states,
        trees,
        records,
        delta_log,
        events,
        cards,
        descriptions,
    )
}


def run(name: str, data: bytes) -> None:
    """Run one target on one input. Raises for a finding."""
    with in_time():
        TARGETS[name](data)
