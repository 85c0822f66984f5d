"""Removal of versions: never behind a registered model, by order of publication, and as a dry run first."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from typer.testing import CliRunner

from connectors.storage import Place
from engine.cli.app import app
from engine.core.errors import InputError
from engine.core.output_layout import output_of
from engine.runs.history import history, prune
from engine.runs.runner import run
from engine.storage.manifest import NUMBER, next_number
from engine.storage.registrations import FOLDER, record_registration, recorded_models
from tests import s3 as s3_server
from tests.data import small_recipe


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    run(small_recipe(folder))
    return folder / "out"


@pytest.fixture
def versions(published: Path, tmp_path: Path) -> tuple[Path, list[str]]:
    """An output with three versions, oldest first, whose times of files say the opposite."""
    out = tmp_path / "out"
    shutil.copytree(published, out)
    first = (out / "CURRENT").read_text().strip()
    made = [first, "vb", "vc"]
    for number, name in enumerate(made, 1):
        folder = out / "versions" / name
        if name != first:
            shutil.copytree(out / "versions" / first, folder)
        manifest = json.loads((folder / "manifest.json").read_text()) | {"version": name, NUMBER: number}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        os.utime(folder / "manifest.json", (10**9 - 1000 * number,) * 2)
    (out / "CURRENT").write_text("vc")
    (out / "store" / ("0" * 32)).mkdir()  # of an interrupted run
    return out, made


def files(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if ".lease" not in path.parts}


def test_the_order_is_that_of_publication(versions: tuple[Path, list[str]]) -> None:
    out, made = versions
    entries = history(out)
    assert [entry["version"] for entry in entries] == made[::-1]
    assert [entry[NUMBER] for entry in entries] == [3, 2, 1]
    assert next_number(out) == 4
    assert prune(out, 2).versions == (made[0],)
    assert next_number(out) == 4


def test_a_dry_run_removes_nothing(versions: tuple[Path, list[str]]) -> None:
    out, made = versions
    before = files(out)
    done = prune(out, 1, dry_run=True)
    assert done.versions == (made[1], made[0])
    assert done.fingerprints
    shown = CliRunner().invoke(app, ["versions", str(out), "prune", "--keep", "1", "--dry-run"])
    assert shown.exit_code == 0, shown.output
    assert "would remove 2 versions" in shown.output
    assert files(out) == before
    assert prune(out, 1) == done


def test_a_recorded_model_keeps_its_version(
    versions: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the server of the registration is no longer the one that is asked."""
    out, made = versions
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    record_registration(out, made[0], "churn", "run1", number="7")
    record_registration(out, made[1], "churn", "run2")  # interrupted before the model had a number
    done = prune(out, 1)
    assert done.versions == ()
    assert done.kept_for[made[0]] == "models lead back to it: churn 7"
    assert "churn (registration was interrupted)" in done.kept_for[made[1]]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"dataset_version": 1}', "[" * 100_000, "{}"])
def test_a_record_that_cannot_be_read_stops_the_removal(text: str, versions: tuple[Path, list[str]]) -> None:
    out, made = versions
    (out / FOLDER).mkdir()
    (out / FOLDER / "x.json").write_text(text)
    before = files(out)
    with pytest.raises(
        InputError, match=r"x\.json: this record of a registered model cannot be read"
    ) as found:
        prune(out, 1)
    assert "pydantic" not in str(found.value)
    assert "validation error" not in str(found.value)
    assert files(out) == before
    assert history(out)[0]["version"] == made[-1]


def test_records_of_an_output_on_an_object_store() -> None:
    with s3_server.s3_server() as s3:
        output: Place = output_of(s3.uri(s3.bucket(), "out"))
        assert recorded_models(output) == {}
        assert next_number(output) == 1
        record_registration(output, "v1", "churn", "run")
        record_registration(output, "v1", "churn", "run", number="2")
        assert recorded_models(output, strict=True) == {"v1": ["churn 2"]}


@pytest.mark.parametrize("fails", [False, True])
def test_a_model_is_recorded_when_it_is_registered(
    fails: bool, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before MLflow has it, so that an interruption leaves no model without a record."""
    from engine.training import registration
    from engine.training.data.version import open_version

    out = tmp_path / "out"
    shutil.copytree(published, out)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    version = open_version(str(out))

    def log_model(*_: Any) -> str:
        assert recorded_models(out) == {version.name: ["small (registration was interrupted)"]}
        if fails:
            raise KeyboardInterrupt
        return "4"

    run_ = SimpleNamespace(info=SimpleNamespace(run_id="r"))
    server = MagicMock(create_run=lambda *_, **__: run_)
    monkeypatch.setattr(registration, "client", lambda _: server)
    monkeypatch.setattr(registration, "check_artifacts", lambda *_: None)
    monkeypatch.setattr(registration, "experiment_id", lambda *_: "0")
    monkeypatch.setattr(registration, "_log", lambda *_: None)
    monkeypatch.setattr(registration, "_log_model", log_model)
    monkeypatch.setattr(registration, "trainer_of", lambda _: "erm")
    result: Any = SimpleNamespace(version=version, folder=tmp_path / "t")
    try:
        registration.register(result, cast(Any, None), "small", seed=0)
    except KeyboardInterrupt:
        assert fails
    expected = "(registration was interrupted)" if fails else "4"
    assert recorded_models(out, strict=True) == {version.name: [f"small {expected}"]}
