"""Files of a shared output that somebody has forged: each command says so in one paragraph, and goes on."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from engine.cli.app import app
from engine.runs.drift import fitted_version
from engine.runs.runner import run
from engine.storage.manifest import read_manifest
from engine.storage.withdrawals import current_version
from operators.base import OperatorError
from operators.encode.encoding import TableEncoding
from operators.encoded_features import blocks
from tests.data import small_recipe

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output with one version, and beside it the recipe that has made it."""
    folder = tmp_path_factory.mktemp("published")
    recipe = small_recipe(folder, shards=1)
    run(recipe)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json", exclude_unset=True)))
    return folder


@pytest.fixture
def forged(published: Path, tmp_path: Path) -> Path:
    """A copy of the output that a test may forge; its recipe writes there."""
    shutil.copytree(published / "out", tmp_path / "out")
    text = (published / "recipe.yaml").read_text()
    (tmp_path / "recipe.yaml").write_text(text.replace(str(published / "out"), str(tmp_path / "out")))
    return tmp_path


def call(folder: Path, *words: str) -> tuple[int, str]:
    """Run a command on the output or, with a recipe in its words, on the recipe."""
    filled = [word.format(out=folder / "out", recipe=folder / "recipe.yaml") for word in words]
    done = CliRunner().invoke(app, filled)
    return done.exit_code, " ".join(done.output.split())


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)  # opening it would wait for ever


def text(content: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(content) and None


FORGERIES = {"deep": text(DEEP), "list": text("[]"), "pipe": pipe, "torn": text('{"a":')}


@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("name", [".lease/00000001.json", "runs/progress.json", "identities.json"])
def test_a_forged_record(name: str, forgery: str, forged: Path) -> None:
    """Records that only tell how a run goes are passed over."""
    FORGERIES[forgery](forged / "out" / name)
    for words in (["status", "{recipe}"], ["plan", "{recipe}"], ["versions", "{out}"]):
        code, shown = call(forged, *words)
        assert code == 0, shown
        assert "unexpected" not in shown


@pytest.mark.parametrize(
    "values",
    [{"since": "yesterday"}, {"pid": "x"}, {"stale_seconds": [1]}, {"who": {"a": 1}}, {"released": 7}],
    ids=str,
)
def test_a_lease_of_another_form_names_nobody(values: dict[str, Any], forged: Path) -> None:
    lease = forged / "out" / ".lease" / "00000001.json"
    lease.write_text(json.dumps(json.loads(lease.read_text()) | values))
    code, shown = call(forged, "status", "{recipe}")
    assert code == 0, shown


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_state_is_named(forgery: str, forged: Path) -> None:
    """Where the file is needed, the error names it and says what to do."""
    version = str(current_version(forged / "out"))
    manifest = json.loads((forged / "out" / "versions" / version / "manifest.json").read_text())
    ingest = next(entry["fingerprint"] for entry in manifest["operators"] if entry["name"] == "ingest")
    FORGERIES[forgery](forged / "out" / "store" / ingest / "state" / "classes.json")
    code, shown = call(forged, "explain", "{out}", "3")
    assert code == 2, shown
    assert "classes.json is damaged or forged" in shown
    assert "run the recipe again" in shown


@pytest.mark.parametrize(
    "record",
    ["[]", "null", "{}", '{"metrics": []}', '{"metrics": {"a": "b"}}', '{"metrics": {}, "seconds": "x"}'],
)
def test_a_forged_record_of_a_fit_is_named(record: str, forged: Path) -> None:
    for path in (forged / "out").glob("store/*/fit.json"):
        path.write_text(record)
    for words in (["status", "{recipe}"], ["run", "{recipe}"]):
        code, shown = call(forged, *words)
        assert code == 2, shown
        assert "fit.json is damaged or forged: it is not a record of a fit" in shown


@pytest.mark.parametrize(
    "value", [None, [], {"encodings": 3}, {"encodings": [{}]}, {"encodings": [{"type": "x"}]}]
)
def test_a_forged_encoding_of_columns_is_named(value: Any, tmp_path: Path) -> None:
    (tmp_path / "encoding.json").write_text(json.dumps(value))
    with pytest.raises(
        OperatorError, match=r"encoding\.json is damaged or forged: it is not an encoding of columns"
    ):
        TableEncoding.load(tmp_path)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"outputs": 3},
        {"outputs": [1]},
        {"outputs": [{"source": "a"}]},
        {"outputs": [{"source": [], "kind": "", "label": "", "role": ""}]},
    ],
)
def test_a_forged_list_of_features_is_named(value: Any, tmp_path: Path) -> None:
    (tmp_path / "encoding.json").write_text(json.dumps(value))
    with pytest.raises(
        OperatorError, match=r"encoding\.json is damaged or forged: it is not a list of features"
    ):
        blocks(tmp_path)


def torn_parquet(path: Path) -> None:
    """A part whose footer is whole and whose pages are not."""
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\xff" * (len(data) // 2) + data[4 + len(data) // 2 :])


@pytest.mark.parametrize("forgery", [pipe, text("forged"), torn_parquet], ids=["pipe", "text", "pages"])
@pytest.mark.parametrize("part", ["store/*/part-00000.parquet", "versions/*/data/part-00000.parquet"])
def test_a_forged_part_is_named(part: str, forgery: Callable[[Path], None], forged: Path) -> None:
    for path in (forged / "out").glob(part):
        forgery(path)
    code, shown = call(forged, "explain", "{out}", "3")
    assert code == 2, shown
    assert "part-00000.parquet" in shown
    assert "emove" in shown


@pytest.mark.parametrize(
    "forgery", [pipe, text(""), text("[]"), torn_parquet], ids=["pipe", "empty", "list", "pages"]
)
@pytest.mark.parametrize(
    "words",
    [
        ["export", "{out}", "--to", "parquet:{out}-exported", "--executor", "local"],
        ["retrain", "--dataset", "{out}", "--executor", "local", "--set", "epochs=1"],
    ],
    ids=["export", "retrain"],
)
def test_a_forged_part_is_neither_exported_nor_learnt(
    words: list[str], forgery: Callable[[Path], None], forged: Path
) -> None:
    """Only the footer of the first part was read, as it was: by `export`, and by `retrain --register`."""
    for path in (forged / "out").glob("versions/*/data/part-00000.parquet"):
        forgery(path)
    code, shown = call(forged, *words)
    assert code == 2, shown
    assert "part-00000.parquet" in shown
    assert "emove" in shown


def test_a_pipe_among_quarantined_rows_is_named(forged: Path) -> None:
    """`explain` opened it, and waited for ever."""
    for part in (forged / "out").glob("store/*/part-00000.parquet"):
        os.mkfifo(part.with_name(part.name.replace("part-", "quarantine-")))
    code, shown = call(forged, "explain", "{out}", "3")
    assert code == 2, shown
    assert "holds no quarantined rows of a run" in shown


@pytest.mark.parametrize("name", ["CURRENT", "registered/x.json"])
@pytest.mark.parametrize("forgery", ["gigabytes", "pipe", "link"])
def test_small_files_are_not_read_whole(name: str, forgery: str, forged: Path) -> None:
    file = forged / "out" / name
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    if forgery == "gigabytes":
        with file.open("wb") as handle:
            handle.truncate(2**43)  # takes no room on the disk
    elif forgery == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to("/etc/hostname")
    for words in (["versions", "{out}"], ["versions", "{out}", "prune", "--keep", "1", "--dry-run"]):
        code, shown = call(forged, *words)
        assert code == 2, shown
        assert Path(name).name in shown


MANIFESTS: dict[str, Any] = {
    "summary": {},
    "summary.groups": {"\x1b[31m": 1},
    "summary.splits": {"train": -1},
    "incremental": {"base": "../../x", "outcome": "predict", "shards": {}},
    "seed": {"a": 1},
    "recipe": {"a": 1},
    "outputs": [{}],
    "schema": [],
    "version": "vother",
    "publication_number": None,
    "summary.effective_sample_size": "many",
}


@pytest.mark.parametrize("key", MANIFESTS)
def test_a_forged_manifest(key: str, forged: Path) -> None:
    version = str(current_version(forged / "out"))
    manifest = forged / "out" / "versions" / version / "manifest.json"
    record = json.loads(manifest.read_text())
    *above, last = key.split(".")
    place = record[above[0]] if above else record
    place[last] = MANIFESTS[key]
    manifest.write_text(json.dumps(record))
    for words in (["versions", "{out}"], ["lineage", str(manifest.parent)], ["explain", "{out}", "3"]):
        code, shown = call(forged, *words)
        assert code == 2 or (key == "schema" and words[0] != "explain"), shown
        assert "manifest.json" in shown or not code
        assert "\x1b" not in shown


def test_a_version_withdraws_no_other(forged: Path) -> None:
    """A manifest that names another version than its folder does would have that one withdrawn."""
    version = str(current_version(forged / "out"))
    other = forged / "out" / "versions" / "vother"
    shutil.copytree(other.parent / version, other)
    code, shown = call(forged, "retract", "{out}@vother", "--why", "mine")
    assert code == 2, shown
    assert f"names the version '{version}', and its folder is 'vother'" in shown
    assert not (forged / "out" / "withdrawn").exists()


def test_a_version_is_not_its_own_base(forged: Path) -> None:
    """The search for the version that was fitted follows bases: a circle would have no end."""
    output = forged / "out"
    version = str(current_version(output))
    manifest = read_manifest(output / "versions" / version)
    manifest["incremental"] = {"base": version, "outcome": "predict", "shards": {}}
    (output / "versions" / version / "manifest.json").write_text(json.dumps(manifest))
    assert fitted_version(output, version, manifest, {"groups"})[0] == version


@pytest.mark.parametrize("record", [7, [7], {"trained": True}, {"trained": True, "registered": 7}], ids=str)
def test_a_forged_record_of_a_training_counts_as_missing(record: Any, forged: Path) -> None:
    """`versions` and `versions prune` ended in an unexpected error."""
    version = str(current_version(forged / "out"))
    (forged / "out" / "runs" / f"{version}.train.json").write_text(json.dumps(record))
    for words in (["versions", "{out}"], ["versions", "{out}", "prune", "--keep", "1", "--dry-run"]):
        code, shown = call(forged, *words)
        assert code == 0, shown


@pytest.mark.parametrize(
    "values",
    [
        {"steps": [{"status": "failed"}]},
        {"steps": [{"status": "failed", "name": "report", "error": 5}]},
        {"exports": 7},
        {"exports": [{}]},
        {"failed_exports": 7},
        {"failed_exports": [{}]},
    ],
    ids=str,
)
def test_a_forged_record_of_a_run_counts_as_missing(values: dict[str, Any], forged: Path) -> None:
    """`status`, `retract` and a repeated `run` ended in an unexpected error."""
    version = str(current_version(forged / "out"))
    record = forged / "out" / "runs" / f"{version}.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | values))
    for words in (["status", "{recipe}"], ["retract", f"{{out}}@{version}", "--why", "wrong", "--dry-run"]):
        code, shown = call(forged, *words)
        assert code == 0, shown


@pytest.mark.parametrize("outputs", [[], [{"name": "x", "operator": "split", "description": "y"}]], ids=len)
def test_a_version_whose_columns_nobody_names_has_no_card(outputs: Any, forged: Path) -> None:
    folder = forged / "out" / "versions" / str(current_version(forged / "out"))
    record = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(record | {"outputs": outputs}))
    code, shown = call(forged, "export", str(folder), "--to", f"hf:{forged / 'hub'}", "--executor", "local")
    assert code == 2, shown
    assert "Publish again" in shown or "no column 'x'" in shown
    assert not (forged / "hub").exists()


@pytest.mark.parametrize("forgery", [*FORGERIES, "link"])
def test_a_damaged_withdrawal_is_replaced_by_the_command_that_its_error_names(
    forgery: str, forged: Path
) -> None:
    version = str(current_version(forged / "out"))
    record = forged / "out" / "withdrawn" / f"{version}.json"
    record.parent.mkdir()
    (forged / "mine").write_text("mine")
    FORGERIES.get(forgery, lambda path: path.symlink_to(forged / "mine"))(record)
    code, shown = call(forged, "explain", "{out}", "3")
    assert code == 2
    assert "Withdraw the version again" in shown
    code, shown = call(forged, "retract", f"{{out}}@{version}", "--why", "forged labels")
    assert code == 0, shown
    assert not record.is_symlink()
    assert json.loads(record.read_text())["why"] == "forged labels"
    assert (forged / "mine").read_text() == "mine"
