"""A model's folder may come from a stranger: what is forged in it is refused by name, before it is used."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine.core.errors import InputError
from engine.training.fit.ensemble import Ensemble
from engine.training.serving.prediction import ModelFiles, find_model
from engine.training.serving.pyfunc import ServedModel
from engine.training.serving.stored_models import download
from operators.encode.encoding import TableEncoding
from operators.encode.params import EncodeParams
from operators.models import ModelSpec, build

DEEP = "[" * 100_000 + "]" * 100_000
Change = Callable[[Path], Any]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A served model of one number, as ``rowsieve retrain --register`` writes it."""
    folder = tmp_path_factory.mktemp("honest")
    spec = ModelSpec(n_features=1, n_classes=2)
    ones, rows = np.ones(1), np.zeros(1, np.int64)
    Ensemble(spec, (build(spec, seed=0),), ones, np.zeros((1, 1), np.uint8), rows, ones, {}).save(folder)
    (folder / "encoding").mkdir()
    TableEncoding((), {"seed": 0, "classes": ["no", "yes"], "label": "label"}).save(folder / "encoding")
    params = EncodeParams(features=("a",), label="label").model_dump(mode="json")
    record = {
        "version": "v1",
        "classes": ["no", "yes"],
        "features": ["a"],
        "widths": [],
        "encoder": {"name": "encode", "params": params},
        "texts": None,
        "reading": {"format": "csv"},
    }
    (folder / "serving.json").write_text(json.dumps(record))
    (folder / "columns.arrow").write_bytes(pa.schema([("a", "float64")]).serialize().to_pybytes())
    return folder


@pytest.fixture
def model(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / "model"))


def test_an_honest_model_is_loaded(model: Path) -> None:
    assert ServedModel(find_model(str(model), model)).names == ["a"]


def text(name: str, content: str | bytes) -> Change:
    return lambda model: (model / name).write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )


def key(name: str, path: str, value: Any) -> Change:
    def change(model: Path) -> None:
        record = json.loads((model / name).read_text())
        *above, last = path.split(".")
        place = record
        for part in above:
            place = place[part]
        place[last] = value
        (model / name).write_text(json.dumps(record))

    return change


def schema(*fields: Any) -> Change:
    return text("columns.arrow", pa.schema(list(fields)).serialize().to_pybytes())


def pipe(name: str) -> Change:
    def change(model: Path) -> None:
        (model / name).unlink(missing_ok=True)
        os.mkfifo(model / name)  # opening it would wait for ever

    return change


@pytest.mark.parametrize("name", ["serving.json", "encoding/encoding.json", "ensemble.json"])
@pytest.mark.parametrize("content", [DEEP, "[]", "null", "{}", b"\xff\xfe", '{"a":'], ids=range(6))
def test_a_forged_description(name: str, content: str | bytes, model: Path) -> None:
    text(name, content)(model)
    with pytest.raises(InputError, match=r"model.*(?i:train|register)"):
        ServedModel(model)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (key("serving.json", "encoder", {"name": "os.system", "params": {}}), "encoder"),
        (key("serving.json", "encoder", {"name": 5, "params": {}}), r"encoder\.name"),
        (key("serving.json", "encoder.params", 5), r"encoder\.params"),
        (
            key("serving.json", "encoder", {"name": "embed", "params": {"model": "os:x", "column": "a"}}),
            "'os'",
        ),
        (key("serving.json", "classes", list(range(1000))), "1,000 classes"),
        (key("serving.json", "classes", [{"a": 1}, "x"]), "classes"),
        (key("serving.json", "classes", "ab"), "classes"),
        (key("serving.json", "features", [1]), "features"),
        (key("serving.json", "features", ["other"]), "'other'"),
        (key("serving.json", "texts", 5), "texts"),
        (key("serving.json", "texts", {"missing": [1], "strip": True}), r"texts\.missing"),
        (key("serving.json", "reading", 5), "reading"),
        (key("serving.json", "reading", {"options": 5}), r"reading\.options"),
        (key("serving.json", "reading", {"rename": 5}), r"reading\.rename"),
        (key("serving.json", "reading", {"flatten": 5}), r"reading\.flatten"),
        (key("serving.json", "reading", {"encoding": 5}), r"reading\.encoding"),
        (key("encoding/encoding.json", "outputs", 5), "encoding"),
        (key("encoding/encoding.json", "outputs", [{"__class__": 1}]), "encoding"),
        (text("columns.arrow", b""), "columns.arrow"),
        (text("columns.arrow", b"\xff\xff\xff\xff\xff\xff\xff\x7f"), "columns.arrow"),
        (schema(("a", "float64"), ("a", "float64")), "columns.arrow"),
        (schema(("a", pa.list_(pa.float32(), 2**30))), "'a'"),
        (schema(("a", pa.dense_union([pa.field("x", pa.int8())]))), "'a'"),
        (pipe("serving.json"), "regular file"),
        (pipe("ensemble.json"), "regular file"),
        (pipe("columns.arrow"), "regular file"),
        (pipe("more"), "regular file"),
        (lambda model: os.symlink("/etc/hostname", model / "more"), "leads out"),
    ],
    ids=range(28),
)
def test_a_forged_model_is_refused(change: Change, named: str, model: Path) -> None:
    change(model)
    with pytest.raises(InputError, match=named):
        ServedModel(model)


@pytest.mark.parametrize("read", [ModelFiles.read, ServedModel], ids=["read", "served"])
def test_a_model_has_bounded_files(
    read: Callable[[Path], Any], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files of a model's folder are sent to the workers: a stranger's could fill their memory."""
    with (model / "extra.bin").open("wb") as file:
        file.truncate(6 * 2**30)  # takes no room on the disk
    with pytest.raises(InputError, match=r"extra\.bin\) holds more than.*bytes.*ROWSIEVE_MAX_MODEL_BYTES"):
        read(model)
    (model / "extra.bin").unlink()
    monkeypatch.setenv("ROWSIEVE_MAX_MODEL_FILES", "3")
    with pytest.raises(InputError, match=r"more than the 3 files.*ROWSIEVE_MAX_MODEL_FILES"):
        read(model)
    monkeypatch.setenv("ROWSIEVE_MAX_MODEL_FILES", "30")
    assert read(model)


def test_a_model_in_mlflow_is_refused_before_it_is_copied(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.tracking import MlflowClient

    for uri in ("", f"sqlite:///{tmp_path / 'server.db'}"):  # the output's own database, and a server's
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        client = MlflowClient(uri or f"sqlite:///{tmp_path / 'mlflow.db'}")
        place = (tmp_path / ("server" if uri else "mlartifacts")).as_uri()
        run_id = client.create_run(client.create_experiment("models", artifact_location=place)).info.run_id
        client.log_artifacts(run_id, str(model), "model")
        monkeypatch.setenv("ROWSIEVE_MAX_MODEL_BYTES", "1000")
        (tmp_path / f"copy{bool(uri)}").mkdir()
        with pytest.raises(InputError, match="more than the 1,000 bytes"):
            download(f"runs:/{run_id}/model", tmp_path / f"copy{bool(uri)}", tmp_path)
        assert not list((tmp_path / f"copy{bool(uri)}").iterdir())
        monkeypatch.delenv("ROWSIEVE_MAX_MODEL_BYTES")
        found = download(f"runs:/{run_id}/model", tmp_path / f"copy{bool(uri)}", tmp_path)
        assert ServedModel(found).names == ["a"]


@pytest.mark.parametrize("weights", [[], [float("nan")], [-1.0], [[1.0]], [float("inf")], [0.0]])
def test_a_mixture_is_a_distribution(weights: list[Any], model: Path) -> None:
    key("ensemble.json", "model_weights", weights)(model)
    with pytest.raises(InputError, match="model_weights"):
        Ensemble.load(model)


@pytest.mark.parametrize("file", ["/etc/passwd", "../secret.parquet", "a/target-0.parquet", "pipe", 5])
def test_a_table_of_shares_lies_in_its_state(file: Any, tmp_path: Path) -> None:
    """``encoding.json`` names the files of its tables: it could name any file of the reader."""
    entry = {"type": "category", "target": {"file": file, "names": ["x"], "smoothing": 1.0}}
    (tmp_path / "encoding.json").write_text(json.dumps({"outputs": [], "encodings": [entry]}))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"target-0\.parquet"):
        TableEncoding.load(tmp_path)


@pytest.mark.parametrize("uri", ["", "sqlite:///server.db"])
def test_a_database_that_is_not_there_is_not_made(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong folder once became an output with an empty database in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(InputError, match=r"models:/m/1: there is no database sqlite:.*--tracking"):
        download("models:/m/1", tmp_path, tmp_path / "typo")
    assert not list(tmp_path.iterdir())
